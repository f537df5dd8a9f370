"""Dry runs: whether gpuward does in each mode what it should with a new pod.

A dry run goes through all of the API server's admission, so it shows also what no object says. Only
gpuward's own words prove something: a pod may be refused for many other reasons.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster.api.errors import ClusterError
from cluster.doctor.checks.failed_calls import calls_between
from cluster.doctor.checks.in_process import exported_objects
from cluster.doctor.checks.release import (
    accepted_exceptions,
    expected_configurations,
    policy_in_force,
)
from cluster.doctor.facts import DoctorFacts, by_name, own_configurations
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.doctor.samples import Sample, Samples, Seen, what_is_seen
from cluster.source.objects import (
    NAMESPACES,
    VALIDATING,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    Object,
)
from cluster.source.registered import is_excluded_by_provider, registered_mode
from cluster.webhooks.dry_runs import NotTried, SendPod, answer_to
from cluster.webhooks.ways import Way
from policies.policy import Policy
from rules.base.json_values import as_object
from rules.finding import Action
from terminal import DOCS_URL
from webhook.registration import WEBHOOK_NAME_SUFFIX

DRY_RUN = "dry run"
_MOST_NAMESPACES = 3  # of one mode, in which a pod is tried until an answer proves something
_FIRST = "default"  # is tried first: most clusters leave it as it was
_SEE = f"see what the other rows about gpuward say, and {DOCS_URL}/resilience.md"
_SHOULD_BE = {Action.DENY: "refused", Action.WARN: "warned about"}
_NO_RIGHT = "cannot create resource"  # words of the API server
_RIGHT = "grant the right to create pods there, or skip the dry runs with --no-dry-run"
_OTHERS = "see what it names; if a policy restricts images, name one that it allows: --image IMAGE"
_POLICY = (
    "see what the row about the policy says; if the policy has gpuExceptions, grant the right to "
    "get the ConfigMap of the release whose name ends with -exceptions"
)
_INTENDED = "nothing, if the policy should let such pods pass"
_PROXY = "give the address of the API server itself in the kubeconfig file"
_METRICS = (
    "see what the row about failed calls says; of several API servers, give the address of one in "
    "the kubeconfig file"
)

FROM_FILES = NotTried(
    "the objects are from files, so no pod was tried", "run it against the cluster"
)
NOT_WANTED = NotTried("no pod was tried (--no-dry-run)", "leave --no-dry-run out")


class Effect(enum.Enum):
    """The effect of gpuward on pods in namespaces of a mode, as far as a dry run has shown it."""

    REFUSES = enum.auto()
    WARNS = enum.auto()
    RECORDS = enum.auto()
    """It is asked, and users see nothing of that."""
    NOTHING = enum.auto()
    """It should do one of these."""
    BLOCKS = enum.auto()
    """It does not answer, and API servers refuse every pod about which they would ask it."""
    NOT_KNOWN = enum.auto()


class Judgement(NamedTuple):
    """The effect of gpuward, how it was seen, and what to do if it is not as it should be."""

    effect: Effect
    message: str
    remedy: str = ""


class Group(NamedTuple):
    """The namespaces that should have a mode, and in which mode API servers send them."""

    mode: Action
    sent_as: str
    namespaces: tuple[str, ...]


class Trial(NamedTuple):
    """The result of dry runs of a group; `more` are rows besides that about its mode."""

    group: Group
    effect: Effect
    row: Row
    more: tuple[Row, ...] = ()


def check_dry_runs(
    facts: DoctorFacts, groups: Sequence[Group], send: SendPod, image: str
) -> Iterator[Trial]:
    """One trial for each group."""
    exported = frozenset(exported_objects(facts, VALIDATING_POLICIES))
    pods = _Pods(facts, send, Samples(_policy_with_exceptions(facts), image), exported)
    for group in groups:
        yield pods.try_in(group)


def rows_of(trials: Sequence[Trial] | NotTried, groups: Sequence[Group]) -> Iterator[Row]:
    """The rows about trials; one that says why there is none, if a pod could be tried."""
    if not isinstance(trials, NotTried):
        for trial in trials:
            yield from (trial.row, *trial.more)
    elif groups:
        yield not_known(DRY_RUN, "all modes", trials.why, trials.remedy)


def _policy_with_exceptions(facts: DoctorFacts) -> Policy | None:
    """The policy by which the webhook decides; None if it is not known."""
    policy = policy_in_force(facts)
    if policy is None or (exceptions := accepted_exceptions(facts, policy)) is None:
        return None
    return policy._replace(exceptions=(*policy.exceptions, *exceptions))


def groups_of_namespaces(facts: DoctorFacts) -> list[Group]:
    """The namespaces that gpuward should be asked about, from mode deny to mode audit.

    What the chart has recorded says so, if that can be read, else what is registered.
    """
    own = own_configurations(facts, VALIDATING)
    in_process = _as_configuration(facts)
    recorded = expected_configurations(facts)
    known = own
    if isinstance(recorded, list):
        known = [item for item in recorded if item.get("kind") == VALIDATING.kind]
    found: dict[tuple[Action, str], list[str]] = defaultdict(list)
    modes = {action.word: action for action in Action}
    for name, item in by_name(facts.objects(NAMESPACES)):
        metadata = as_object(item.get("metadata"))
        labels = as_object(metadata.get("labels"))
        sent_as = registered_mode([*own, in_process], name, labels)
        wanted = registered_mode([*known, in_process], name, labels)
        if is_excluded_by_provider(own, name, labels):
            wanted = sent_as
        mode = modes.get(wanted or sent_as, Action.OFF)
        if mode is not Action.OFF and "deletionTimestamp" not in metadata:
            found[mode, sent_as].append(name)
    ordered = sorted(found.items(), key=lambda entry: (-entry[0][0], entry[0][1]))
    return [Group(mode, sent_as, tuple(namespaces)) for (mode, sent_as), namespaces in ordered]


def _as_configuration(facts: DoctorFacts) -> Object:
    """Return a configuration of webhooks that act as the exported policies, in their namespaces."""
    selectors: dict[Action, list[object]] = defaultdict(list)
    for binding in exported_objects(facts, VALIDATING_BINDINGS).values():
        spec = as_object(binding.get("spec"))
        selector = as_object(spec.get("matchResources")).get("namespaceSelector")
        done = spec.get("validationActions")
        for action in (Action.DENY, Action.WARN, Action.AUDIT):
            if isinstance(done, list) and action.word.capitalize() in done:
                selectors[action].append(selector)
    webhooks = [
        {"name": f"{action.word}{WEBHOOK_NAME_SUFFIX}", "namespaceSelector": selector}
        for action in sorted(selectors, reverse=True)
        for selector in selectors[action]
    ]
    return {"webhooks": webhooks}


class _Pods:
    """Sends the pods of dry runs, and judges the answers."""

    def __init__(
        self, facts: DoctorFacts, send: SendPod, samples: Samples, exported: frozenset[str]
    ) -> None:
        self._facts, self._send, self._samples = facts, send, samples
        self._exported = exported

    def try_in(self, group: Group) -> Trial:
        """The first trial that proves something, of those in a few namespaces of the group."""
        first = sorted(group.namespaces, key=lambda name: (name != _FIRST, name))
        trials: list[Trial] = []
        for namespace in first[:_MOST_NAMESPACES]:
            trials.append(self._try_in(group, namespace))
            if trials[-1].effect is not Effect.NOT_KNOWN:
                return trials[-1]
        return trials[0]

    def _try_in(self, group: Group, namespace: str) -> Trial:
        sample = self._samples.to_refuse(namespace, group.mode)
        seen, text = self._answer(sample.way, namespace)
        found = judge(group.mode, sample, seen, text)
        is_sent = group.sent_as == group.mode.word
        if found.effect is Effect.RECORDS:
            nothing = found._replace(effect=Effect.NOTHING, remedy=_SEE)
            found = self._counted(group.mode) if is_sent else nothing
        if found.effect is Effect.NOTHING and not is_sent:
            sent = f"sent to gpuward in mode {group.sent_as}" if group.sent_as else "not sent to it"
            message = f"{found.message}; {first_few(group.namespaces)}: {sent}"
            found = found._replace(message=message)
        trial = Trial(group, found.effect, _row(group, namespace, found))
        if group.mode is Action.DENY and found.effect is Effect.REFUSES:
            return self._with_fix(trial, namespace)
        return trial

    def _answer(self, way: Way, namespace: str) -> tuple[Seen, str]:
        pod = self._samples.pod_to_send(way)
        return what_is_seen(answer_to(lambda: self._send(namespace, pod)), way, self._exported)

    def _with_fix(self, trial: Trial, namespace: str) -> Trial:
        """Return the judgement, with what is seen of a pod that gpuward should fix."""
        if (way := self._samples.to_fix(namespace)) is None:
            return trial
        seen, text = self._answer(way, namespace)
        if seen is Seen.CHANGED:
            added = f"a pod with {way.title} is fixed"
        elif seen in {Seen.NOT_KNOWN, Seen.REFUSED}:
            added = f"whether it fixes pods is not known: {text}"
        else:
            fault = {
                Seen.NOT_FIXED: "refused instead of fixed: the mutating webhook is not called",
                Seen.UNANSWERED: f"refused because gpuward gives no answer: {text}",
            }.get(seen, "neither fixed nor refused")
            message = f"a pod with {way.title} is {fault}"
            return trial._replace(more=(wrong(DRY_RUN, f"fix in {namespace}", message, _SEE),))
        return trial._replace(row=trial.row._replace(message=f"{trial.row.message}; {added}"))

    def _counted(self, mode: Action) -> Judgement:
        """Return RECORDS if the API server has counted a call since the facts were read.

        In mode audit nothing else shows that gpuward was asked. A pod of another user may have
        been the reason: that proves as much.
        """
        webhook, before = f"{mode.word}{WEBHOOK_NAME_SUFFIX}", self._facts.metrics
        try:
            now = self._facts.request("/metrics") if self._facts.request else ""
        except ClusterError:
            now = ""
        calls = calls_between(before, now, webhook) if isinstance(before, str) else None
        if calls is None:
            message = f"whether {webhook} is called, only the metrics of an API server say"
            return Judgement(Effect.NOT_KNOWN, message, _METRICS)
        answered, failed = calls
        if failed > 0:
            message = f"the API server counts a call of {webhook} that failed"
            return Judgement(Effect.NOTHING, message, _SEE)
        if answered > 0:
            return Judgement(Effect.RECORDS, f"{webhook} answers, as the API server counts")
        message = f"the API server whose metrics were read has counted no call of {webhook}"
        return Judgement(Effect.NOT_KNOWN, message, _METRICS)


def judge(mode: Action, sample: Sample, seen: Seen, text: str) -> Judgement:
    """Return the effect of gpuward in this mode, by what was `seen` of a sample.

    In mode audit it is RECORDS if nothing contradicts that: a dry run cannot show it.
    """
    pod = f"a pod with {sample.way.title}"
    if seen is Seen.UNANSWERED:
        message = f"{pod} is refused because gpuward gives no answer: {text}"
        return Judgement(Effect.BLOCKS, message, _SEE)
    if seen in {Seen.REFUSED, Seen.NOT_FIXED}:
        return Judgement(Effect.REFUSES, f"{text} refuses {pod}")
    if seen in {Seen.NOT_KNOWN, Seen.CHANGED}:
        remedy = _RIGHT if _NO_RIGHT in text else _OTHERS
        return Judgement(Effect.NOT_KNOWN, f"{pod}: {text}", remedy)
    if mode is Action.AUDIT:
        return Judgement(Effect.RECORDS, f"{pod} is admitted")
    if seen is Seen.WARNED and sample.expected is not Action.DENY:
        return Judgement(Effect.WARNS, f"{text} warns of {pod}")
    return _judge_admitted(sample.expected, seen, text, pod)


def _judge_admitted(expected: Action | None, seen: Seen, text: str, pod: str) -> Judgement:
    """Return the judgement of a pod that was admitted, though more may have to be done to it."""
    if expected is None:
        why = "whether it should be is not known without the policy and its GpuExceptions"
        return Judgement(Effect.NOT_KNOWN, f"{pod} is admitted, and {why}", _POLICY)
    if expected <= Action.AUDIT:
        message = f"{pod} is admitted, as the policy says, which proves nothing"
        return Judgement(Effect.NOT_KNOWN, message, _INTENDED)
    if expected is Action.WARN and seen is Seen.NO_WARNINGS:
        return Judgement(Effect.NOT_KNOWN, f"{pod}: {text}", _PROXY)
    return Judgement(Effect.NOTHING, f"{pod} is not {_SHOULD_BE[expected]}, as it should be", _SEE)


def _row(group: Group, namespace: str, found: Judgement) -> Row:
    """The row about all namespaces of a group, of which one was tried."""
    subject, names = f"mode {group.mode.word}, in {namespace}", group.namespaces
    if found.effect in {Effect.NOTHING, Effect.BLOCKS}:
        return wrong(DRY_RUN, subject, found.message, found.remedy, names=names)
    if found.effect is Effect.NOT_KNOWN:
        return not_known(DRY_RUN, subject, found.message, found.remedy, names=names)
    return ok(DRY_RUN, subject, found.message, names=names)
