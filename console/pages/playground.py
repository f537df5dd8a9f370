"""The results for a manifest: findings at their lines, the patch, the fixed text, the answer."""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from cluster.source.objects import Object
from cluster.why.devices.pod_devices import is_claim
from cluster.why.explanation import Explanation
from cluster.why.explanation import to_document as explained_document
from lint.evaluation import FixTask
from lint.fix.fixer import FixedText, Fixer
from lint.fix.preview import Preview
from lint.linter import Linter
from policies.policy import Policy
from reports.findings import LocatedFinding
from reports.results import Results
from rules.base.json_values import Json, as_object, as_text
from rules.engine.fixing import fix
from rules.finding import Action
from rules.objects.object_ref import group_of, object_ref
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects, flatten_lists
from sources.policy_file import OnePolicy
from sources.sources import DISK, Source, source_of
from webhook.admission.decider import Decider
from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionReview
from webhook.registration import BUILT_IN_WORKLOADS, CUSTOM_WORKLOADS, WEBHOOK_NAME_SUFFIX

NAME = "manifest.yaml"
MODES = {action.word: action for action in (Action.DENY, Action.WARN, Action.AUDIT)}
MAX_CHARACTERS = 200_000
MAX_PLACED_PODS = 3
"""Of so many pods it is said where they would run."""
_MAX_ANSWERS = 50  # objects
_MAX_LINES = 5_000
_LIMITS = ("limitranges", "resourcequotas")


class Line(NamedTuple):
    """A line of the manifest, with the findings that begin there."""

    number: int
    text: str
    findings: tuple[Mark, ...]


class Mark(NamedTuple):
    """A finding below its line: carets of a `width` from a column, counted from 0."""

    level: str
    rule: str
    message: str
    help: str
    start: int
    width: int
    is_fixable: bool


class Admission(NamedTuple):
    """The answer of the API server to one object: see `webhook.admission`."""

    object: str
    outcome: str
    is_allowed: bool
    message: str
    warnings: tuple[str, ...]
    patch: str


class Verdict(NamedTuple):
    """All that is said about a manifest.

    `new_pods` are some of the pods that it would make, and `new_claims` the claims and templates of
    claims in it.
    """

    lines: tuple[Line, ...]
    counts: tuple[tuple[str, int], ...]
    problems: tuple[tuple[str, str], ...]
    fixed: str
    diff: tuple[tuple[str, str], ...]
    admissions: tuple[Admission, ...]
    objects: int
    pods: int
    new_pods: tuple[Object, ...] = ()
    new_claims: tuple[Object, ...] = ()


class Chosen(NamedTuple):
    """A manifest, and how to evaluate it. The profile is empty for those of the policy."""

    manifest: str = ""
    profile: str = ""
    mode: str = Action.DENY.word
    namespace: str = ""


HOW = (
    "POST a form with the field manifest, and if you like profile, mode and namespace, to this "
    "address"
)
"""The answer to programs that only GET the page."""


def chosen(given: Mapping[str, str], profiles: Sequence[str]) -> Chosen:
    """Return the choices of a form; a value that is not among the choices becomes the default."""
    mode, profile = given.get("mode", ""), given.get("profile", "")
    return Chosen(
        # Forms send line breaks as two characters.
        given.get("manifest", "").replace("\r\n", "\n"),
        profile if profile in profiles else "",
        mode if mode in MODES else Action.DENY.word,
        given.get("namespace", "")[:63],
    )


def document(verdict: Verdict, placements: Sequence[Explanation] = ()) -> dict[str, Any]:
    """A verdict as plain data, and where its pods would run."""
    return {
        "version": 1,
        "findings": [
            {
                "level": mark.level,
                "rule": mark.rule,
                "line": line.number,
                "column": mark.start + 1,
                "message": mark.message,
                "help": mark.help,
                "fixable": mark.is_fixable,
            }
            for line in verdict.lines
            for mark in line.findings
        ],
        "problems": [{"level": level, "message": text} for level, text in verdict.problems],
        "fixed": verdict.fixed,
        "admissions": [
            {
                "object": one.object,
                "allowed": one.is_allowed,
                "message": one.message,
                "warnings": list(one.warnings),
                "patch": json.loads(one.patch or "[]"),
            }
            for one in verdict.admissions
        ],
        "placements": [*map(explained_document, placements)],
    }


def evaluate(text: str, policy: Policy, mode: Action, namespace: str) -> Verdict:
    """Return the answers of linter and webhook about the manifests in `text`. Nothing is kept."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    context = Context(today=today, namespace=namespace or None)
    source = source_of(NAME, text.encode(errors="surrogatepass"), DISK, is_named=True)
    linter = Linter(OnePolicy(policy), context, FixTask(preview=True))
    linter.evaluate([source])
    results = linter.results
    fixed = _fixed(source, policy, context)
    return Verdict(
        tuple(_lines(text, results)),
        tuple((level, results.count(level)) for level in ("error", "warning", "note")),
        tuple(_problems(results)),
        fixed,
        tuple(_diff(text, fixed)) if fixed != text else (),
        tuple(_admissions(linter.previews, policy, mode, namespace, today)),
        results.objects,
        results.pods,
        tuple(islice(_new_pods(linter.previews, policy, namespace), MAX_PLACED_PODS)),
        tuple(_new_claims(linter.previews, namespace)),
    )


def _new_pods(previews: list[Preview], policy: Policy, namespace: str) -> Iterator[Object]:
    """The pods that the manifests are or would make, as they are after the fixes."""
    for preview in previews:
        yield from _pods_of(preview.after, policy, namespace)


def _pods_of(raw: Any, policy: Policy, namespace: str) -> Iterator[Object]:
    """The pod that an object is, or the pods that it would make."""
    for found in find_subjects(raw, policy.profile, namespace or None):
        if isinstance(found, Pod):
            home = found.object.namespace or namespace or "default"
            metadata = {**found.metadata, "name": found.object.name, "namespace": home}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {**found.spec},
            }


def _new_claims(previews: list[Preview], namespace: str) -> Iterator[Object]:
    """The claims and the templates of claims in the manifests."""
    for preview in previews:
        raw = preview.after
        if isinstance(raw, dict) and is_claim(raw):
            home = as_text(as_object(raw.get("metadata")).get("namespace")) or namespace
            yield {
                **raw,
                "metadata": {**as_object(raw.get("metadata")), "namespace": home or "default"},
            }


def _fixed(source: Any, policy: Policy, context: Context) -> str:
    texts: list[FixedText] = []

    def deliver(text: FixedText) -> bool:
        texts.append(text)
        return True

    Linter(OnePolicy(policy), context, FixTask(fixer=Fixer(deliver))).evaluate([source])
    return texts[0].new if texts else source.text if isinstance(source, Source) else ""


def _lines(text: str, results: Results) -> Iterator[Line]:
    by_line: dict[int, list[Mark]] = {}
    for located in results.findings:
        by_line.setdefault(located.span.line, []).append(_mark(located))
    for number, line in enumerate(text.split("\n")[:_MAX_LINES], 1):
        yield Line(number, line, tuple(by_line.get(number, ())))


def _mark(located: LocatedFinding) -> Mark:
    finding, excerpt = located.finding, located.excerpt
    start = located.span.column - 1
    return Mark(
        located.level,
        finding.rule,
        finding.message,
        finding.help,
        start,
        excerpt.width,
        finding.fixable,
    )


def _problems(results: Results) -> Iterator[tuple[str, str]]:
    for failed in results.not_evaluated:
        where = f"line {failed.line}: " if failed.line else ""
        yield "error", f"not evaluated: {where}{failed.message}"
    for skipped in results.skipped:
        yield "warning", f"not evaluated: {skipped.why}"
    for remark in results.remarks:
        if remark.level != "note":
            yield (
                remark.level,
                f"line {remark.line}: {remark.message}" if remark.line else remark.message,
            )
    for left in results.not_fixed:
        yield "warning", f"not fixed: {', '.join(left.rules)}: {left.reason}"
    if results.reason_nothing_evaluated:
        yield "warning", results.reason_nothing_evaluated


def _diff(before: str, after: str) -> Iterator[tuple[str, str]]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    for line in [*lines][2:_MAX_LINES]:
        yield line[:1], line[1:]


def _admissions(
    previews: list[Preview], policy: Policy, mode: Action, namespace: str, today: datetime.date
) -> Iterator[Admission]:
    """Yield the webhook's answer to each object, as it is created, and to its pods.

    Workloads are admitted, so that the answer to the pods that their controllers make matters more.
    """
    decider = Decider(policy)
    objects = [raw for p in previews for raw, _ in flatten_lists(as_object(p.before), ())]
    for raw in objects[:_MAX_ANSWERS]:
        review = _review(raw, namespace)
        if not _is_sent(review):
            continue
        ref = str(
            object_ref(review.kind, review.group, as_object(raw.get("metadata")), namespace or None)
        )
        yield _answer(decider, review, ref, mode, today)
        if review.is_pod or review.is_claim:
            continue
        of_pods = [
            _answer(
                decider, _review(pod, namespace), f"pods of {ref}, by its template", mode, today
            )
            for pod in islice(_pods_of(raw, policy, namespace), _MAX_ANSWERS)
        ]
        yield from dict.fromkeys(of_pods)


def _answer(
    decider: Decider, review: AdmissionReview, name: str, mode: Action, today: datetime.date
) -> Admission:
    mutated = decider.mutate(review, mode, today)
    after: Json = review.object
    if mutated.operations:
        context = Context(today, review.namespace, "", "CREATE")
        after = fix(review.object, decider.rules, context).manifest
    validated = decider.validate(review._replace(object=after), mode, today)
    hooks = f"pods.{mode.word}" if review.is_pod else f"workloads.{mode.word}", mode.word
    return _admission(name, hooks, mutated, validated)


def _is_sent(review: AdmissionReview) -> bool:
    """Return whether API servers send objects of this kind: see `webhook.registration`."""
    if review.is_pod or review.is_claim:
        return True
    if not review.group and review.resource in _LIMITS:
        return True
    kinds = (BUILT_IN_WORKLOADS, CUSTOM_WORKLOADS)
    return any(review.resource in known.get(review.group, ()) for known in kinds)


def _review(raw: Any, namespace: str) -> AdmissionReview:
    """The review of the creation of an object by a user without a name."""
    metadata = as_object(raw.get("metadata"))
    kind = as_text(raw.get("kind"))
    return AdmissionReview(
        uid="playground",
        api_version="admission.k8s.io/v1",
        group=group_of(raw),
        kind=kind,
        resource=f"{kind.lower()}s",
        operation="CREATE",
        namespace=as_text(metadata.get("namespace")) or namespace or "default",
        name=as_text(metadata.get("name")),
        user="",
        object={**raw},
        old=None,
        dry_run=True,
        size_bytes=len(json.dumps(raw, default=str)),
    )


def _admission(
    ref: str, hooks: tuple[str, str], mutated: Decision, validated: Decision
) -> Admission:
    # The API server shows the same warning once.
    warnings = tuple(dict.fromkeys((*mutated.warnings, *validated.warnings)))
    patch = json.dumps([*mutated.operations], indent=2) if mutated.operations else ""
    for hook, decision in zip(hooks, (mutated, validated), strict=True):
        if not decision.allowed:
            name = f"{hook}{WEBHOOK_NAME_SUFFIX}"
            message = f'admission webhook "{name}" denied the request: {decision.message}'
            return Admission(ref, "refused", False, message, warnings, patch)  # noqa: FBT003  # a field
    outcome = "admitted with changes" if patch else "admitted"
    return Admission(ref, outcome, True, "", warnings, patch)  # noqa: FBT003  # a field
