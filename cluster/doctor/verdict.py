"""The answer in one line: whether a cluster is guarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cluster.doctor.checks.dry_runs import Effect, Group, Trial
from cluster.doctor.checks.in_process import exported_objects
from cluster.doctor.facts import DoctorFacts, own_configurations
from cluster.doctor.rows import Row, State, first_few
from cluster.source.objects import (
    MUTATING,
    NAMESPACES,
    VALIDATING,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)
from cluster.webhooks.dry_runs import NotTried, shortened
from reports.formats import many
from rules.finding import Action

_MAX_FAULT = 120  # characters of a message in the first line


class Verdict(NamedTuple):
    """The answer to whether the cluster is guarded, None if that is not known, and the reason.

    It is guarded if dry runs have shown that gpuward refuses pods in mode deny, and does what it
    should in the other modes. `faults` are the rows about gpuward that are wrong all the same.
    """

    guarded: bool | None
    conclusion: str
    faults: tuple[Row, ...] = ()

    @property
    def state(self) -> State:
        """The state of a row that would say the same."""
        if self.guarded is None:
            return State.NOT_KNOWN
        return State.OK if self.guarded and not self.faults else State.WRONG

    @property
    def reason(self) -> str:
        """Return the reason, with the first fault."""
        if not self.faults:
            return self.conclusion
        first = self.faults[0]
        more = f", and {len(self.faults) - 1} more" if len(self.faults) > 1 else ""
        fault = f"{first.check}, {first.subject}: {shortened(first.message, _MAX_FAULT)}"
        but = "but " if self.guarded else ""
        return f"{self.conclusion}; {but}wrong: {fault}{more}"

    def __str__(self) -> str:
        if self.guarded is None:
            return f"not known whether the cluster is guarded: {self.reason}"
        if not self.guarded:
            return f"not guarded: {self.reason}"
        return f"{'guarded now' if self.faults else 'guarded'}: {self.reason}"

    def to_document(self) -> dict[str, Any]:
        """The fields that docs/doctor.md describes."""
        return {"guarded": self.guarded, "guardedReason": self.reason}


def verdict(
    facts: DoctorFacts,
    groups: Sequence[Group],
    trials: Sequence[Trial] | NotTried,
    rows: Sequence[Row],
) -> Verdict:
    """The verdict about a cluster.

    `groups` are the namespaces by mode, and `trials` what dry runs have shown of them, or why there
    was none. `rows` are all rows about gpuward.
    """
    said = set() if isinstance(trials, NotTried) else {trial.row for trial in trials}
    faults = tuple(row for row in rows if row.state is State.WRONG and row not in said)
    if found := _without_dry_runs(facts, groups):
        return found._replace(faults=faults)
    if isinstance(trials, NotTried):
        return _untried(groups, trials.why)._replace(faults=faults)
    return _conclusion(trials)._replace(faults=faults)


def _without_dry_runs(facts: DoctorFacts, groups: Sequence[Group]) -> Verdict | None:
    """Return the verdict that objects alone decide; None if a pod can be tried in a namespace."""
    needed = [VALIDATING, NAMESPACES]
    validating = own_configurations(facts, VALIDATING)
    if not validating:  # then exported policies may guard
        needed += [VALIDATING_POLICIES, VALIDATING_BINDINGS]
    for resource in needed:
        if error := facts.missing.get(resource):
            return Verdict(None, shortened(str(error)))
    if groups:
        return None
    if validating or exported_objects(facts, VALIDATING_POLICIES):
        return Verdict(guarded=False, conclusion="no namespace is sent to gpuward")
    if own_configurations(facts, MUTATING) or MUTATING in facts.missing:
        why = "no validating webhook of gpuward is registered"
        return Verdict(guarded=False, conclusion=why)
    return Verdict(guarded=False, conclusion="gpuward is not installed")


def _untried(groups: Sequence[Group], why: str) -> Verdict:
    """The verdict if there was no dry run: only that no pod is refused is certain then."""
    if any(group.mode is Action.DENY for group in groups):
        return Verdict(None, why)
    return Verdict(guarded=False, conclusion=f"no namespace has mode deny; {why}")


def _conclusion(trials: Sequence[Trial]) -> Verdict:
    """By the first trial that shows a fault, else by those in mode deny."""
    for trial in trials:
        if trial.effect in {Effect.NOTHING, Effect.BLOCKS}:
            return Verdict(guarded=False, conclusion=_fault(trial))
    done = ", ".join(_described(trial) for trial in trials)
    in_mode_deny = [trial for trial in trials if trial.group.mode is Action.DENY]
    if not in_mode_deny:
        return Verdict(guarded=False, conclusion=f"no namespace has mode deny; {done}")
    for trial in in_mode_deny:
        if trial.effect is not Effect.REFUSES:
            return Verdict(None, f"{trial.row.subject}: {shortened(trial.row.message)}")
    return Verdict(guarded=True, conclusion=done)


def _fault(trial: Trial) -> str:
    mode = trial.group.mode
    where = f"in {first_few(trial.group.namespaces)} (mode {mode.word})"
    if trial.effect is Effect.BLOCKS:
        answer = "the API server gets no answer from gpuward"
        return f"{answer}, so it refuses every pod that may concern it {where}"
    missing = {
        Action.DENY: "pods that should be refused are admitted",
        Action.WARN: "users are not warned",
    }.get(mode, "gpuward records nothing")
    return f"{missing} {where}"


def _described(trial: Trial) -> str:
    where = f"in {many(len(trial.group.namespaces), 'namespace')} (mode {trial.group.mode.word})"
    words = {
        Effect.REFUSES: "pods are refused",
        Effect.WARNS: "users are warned",
        Effect.RECORDS: "findings are only recorded",
    }
    return f"{words.get(trial.effect, 'not known what happens')} {where}"
