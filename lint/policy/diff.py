"""The command `gpuward policy diff`: what another policy would change for existing manifests."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from kubeyaml import Document
from lint.evaluation import Evaluator, skipped_document
from lint.options import add_exclude_option
from lint.policy import Commands
from lint.suppressions import Suppressions
from policies.loading import load_policy_file
from reports.results import InputNotEvaluated
from rules.engine.bounds import TooManyStepsError
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.objects.object_ref import ObjectRef
from rules.profile.context import Context
from sources.kustomization_files import Kustomizations
from sources.manifests import File, UnparsedDocument
from sources.paths import Exclusion, inputs
from sources.sources import DISK, Input, InputFile, SkippedSource, StandardInput, UnreadableSource
from terminal import printable, write_error

# From the mildest to the most severe.
_STATES_BY_SEVERITY = ("accepted", "noted", "fixed", "warned", "refused")
_STATE_BY_ACTION = {Action.AUDIT: "noted", Action.WARN: "warned", Action.DENY: "refused"}


class ChangedFinding(NamedTuple):
    """A finding that the two policies treat differently, and its line."""

    line: int
    finding: Finding
    old: str
    new: str


class ChangedObject(NamedTuple):
    """An object with such findings; `old` and `new` are the states of its worst findings."""

    file: str
    object: str
    old: str
    new: str
    findings: list[ChangedFinding]


class PolicyComparison:
    """The differences between the results of two rule sets for the same manifests."""

    def __init__(self, rule_sets: list[RuleSet], context: Context) -> None:
        self.changes: list[ChangedObject] = []
        self.skipped: list[tuple[str, str]] = []
        self.not_evaluated: list[tuple[str, str]] = []
        self._rule_sets = rule_sets
        self._context = context
        self._kustomizations = Kustomizations(DISK)

    def add(self, item: Input) -> None:
        """Compare the objects of one file."""
        source = item.read() if isinstance(item, InputFile | StandardInput) else item
        if isinstance(source, UnreadableSource):
            self.not_evaluated.append((source.name, source.why))
        elif isinstance(source, SkippedSource):
            if source.why:
                self.skipped.append((source.name, source.why))
        else:
            file = File(source)
            context = self._kustomizations.context_of(source.name, self._context)
            evaluators = [Evaluator(rules, context) for rules in self._rule_sets]
            for document in file.manifests():
                if isinstance(document, UnparsedDocument):
                    skipped = skipped_document(source, document)
                    group = self.skipped if skipped else self.not_evaluated
                    why = skipped.why if skipped else document.why
                    group.append((f"{source.name}:{document.line}", why))
                else:
                    self._compare(file, document, evaluators)

    def _compare(self, file: File, document: Document, evaluators: list[Evaluator]) -> None:
        try:
            old, new = (_states_by_object(file, document, evaluator) for evaluator in evaluators)
        except _NotEvaluatedError as error:
            self.not_evaluated.append((f"{file.source.name}:{document.line}", str(error)))
            return
        for ref in {**old, **new}:
            before, after = old.get(ref, {}), new.get(ref, {})
            changed = list(_changed_findings(file, document, before, after))
            if changed:
                self.changes.append(
                    ChangedObject(
                        file=file.source.name,
                        object=str(ref),
                        old=_worst_state(before),
                        new=_worst_state(after),
                        findings=changed,
                    )
                )


class _NotEvaluatedError(Exception):
    """A document that cannot be evaluated; the message says why."""


StateByFinding: TypeAlias = dict[str, tuple[str, Finding]]
"""The state of each finding at admission, by its identity."""


def _states_by_object(
    file: File, document: Document, evaluator: Evaluator
) -> dict[ObjectRef | None, StateByFinding]:
    """Return the state of each finding at admission, by the object that it is about."""
    item = evaluator.evaluate(file, document)
    if isinstance(item, InputNotEvaluated):
        raise _NotEvaluatedError(item.message)
    try:
        fixed = evaluator.fix(item._replace(comments=Suppressions([])))
    except TooManyStepsError as error:
        raise _NotEvaluatedError("the fixes take too many steps") from error
    for failure in fixed.remaining.failures:
        raise _NotEvaluatedError(f"the rule {failure.rule} failed: {failure.error}")
    states: dict[ObjectRef | None, StateByFinding] = {}
    outcomes = [("fixed", finding) for finding in fixed.fixed]
    outcomes += [
        (_STATE_BY_ACTION[finding.action], finding) for finding in fixed.remaining.findings
    ]
    for state, finding in outcomes:
        states.setdefault(finding.object, {})[finding.identity] = (state, finding)
    return states


def _changed_findings(
    file: File, document: Document, before: StateByFinding, after: StateByFinding
) -> Iterator[ChangedFinding]:
    for identity, (_, finding) in {**before, **after}.items():
        old, new = (one[identity][0] if identity in one else "accepted" for one in (before, after))
        if old != new:
            yield ChangedFinding(file.span_of_path(document, finding.path).line, finding, old, new)


def _worst_state(states: StateByFinding) -> str:
    return max(
        (state for state, _ in states.values()), key=_STATES_BY_SEVERITY.index, default="accepted"
    )


_DESCRIPTION = """\
Compare what two policies do with manifests at admission: list the objects that they treat
differently, each with the findings that differ. Comments in the manifests suppress nothing."""
_EPILOG = """exit status: 0 nothing changes, 1 something changes, 2 wrong usage or a policy that
cannot be used, 3 something could not be evaluated"""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "diff",
        help="show what another policy would change for manifests",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("old", metavar="OLD", help="a policy, or a ConfigMap with one")
    parser.add_argument("new", metavar="NEW", help="the same")
    parser.add_argument(
        "--filename",
        "-f",
        metavar="PATH",
        dest="paths",
        action="extend",
        nargs="+",
        required=True,
        help="manifests: files, folders, globs, or - for standard input",
    )
    parser.add_argument("--namespace", "-n", help="the namespace of objects that name none")
    add_exclude_option(parser)
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="default: text"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    policies = [load_policy_file(file, []) for file in (options.old, options.new)]
    today = datetime.datetime.now(tz=datetime.UTC).date()
    context = Context(today=today, namespace=options.namespace)
    comparison = PolicyComparison([policy.rule_set() for policy in policies], context)
    for item in inputs(options.paths, Exclusion(options.exclude)):
        comparison.add(item)
    for where, why in comparison.skipped:
        write_error("gpuward", f"skipped: {where}: {why}")
    for where, why in comparison.not_evaluated:
        write_error("gpuward", f"not evaluated: {where}: {why}")
    lines = _json_lines if options.output == "json" else _text_lines
    sys.stdout.writelines(f"{line}\n" for line in lines(comparison.changes))
    return 3 if comparison.not_evaluated else int(bool(comparison.changes))


def _text_lines(changes: list[ChangedObject]) -> Iterator[str]:
    for change in changes:
        states = change.old if change.old == change.new else f"{change.old} -> {change.new}"
        yield printable(f"{change.file}: {change.object}: {states}")
        for line, finding, old, new in change.findings:
            where = f" in {finding.container}" if finding.container else ""
            yield printable(f"  line {line}: {finding.rule}{where}: {old} -> {new}")
    counts = Counter(f"{c.old} -> {c.new}" for c in changes if c.old != c.new)
    parts = [f"{count} {states}" for states, count in counts.most_common()]
    many = f"{len(changes)} object{'s'[len(changes) == 1 :]}"
    summary = f"the new policy treats {many} differently"
    yield ": ".join(filter(None, (summary, ", ".join(parts))))


def _json_lines(changes: list[ChangedObject]) -> Iterator[str]:
    entries = [
        {
            **change._asdict(),
            "findings": [
                {
                    "rule": finding.rule,
                    "container": finding.container_name,
                    "line": line,
                    "message": finding.message,
                    "old": old,
                    "new": new,
                }
                for line, finding, old, new in change.findings
            ],
        }
        for change in changes
    ]
    yield json.dumps({"changes": entries}, indent=2)
