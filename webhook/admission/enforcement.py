"""Turn what the rules found into a decision: allow, fix, warn or refuse, as the mode says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rules.base.json_values import Operation, apply, as_object, as_objects, as_text, find_value, put
from rules.engine.bounds import oversized_reason
from rules.engine.evaluation import EvaluationResult, RuleFailure, introduced_findings
from rules.engine.fixing import check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from webhook.admission.decision import (
    CLEAN_DECISION,
    NO_TEXTS,
    NOT_EVALUATED_OUTCOME,
    Decision,
    DecisionReason,
    Outcome,
)
from webhook.admission.messages import (
    NOT_FIXABLE_MESSAGE,
    denial_message,
    failure_warning,
    fix_warnings,
    limit_warnings,
    status_causes,
    warning_text,
)
from webhook.admission.request import (
    AdmissionRequest,
    containers_with_new_image,
    fixable_containers,
)
from webhook.admission.review import AdmissionReview

# A second `kubectl apply` of the file of a Pod that was fixed.

SECOND_APPLY_WARNING = (
    "gpuward: a second `kubectl apply` of this file will fail, because a Pod cannot change back to "
    "what the file says; write the fixes into the file"
)
# What shows that `kubectl apply` created an object: an annotation of client-side apply, and the
# operation of a field manager, with server-side apply.
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
APPLY_OPERATION = "Apply"
# Lists that apply replaces as a whole; it merges the others by the names of their elements.
_REPLACED_LISTS = ("/spec/tolerations/", "/spec/affinity/")
# The API server itself adds tolerations of these keys to every pod, before any webhook and again
# with every update.
_DEFAULT_TOLERATIONS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def second_apply_fails(manifest: Any, operations: Iterable[Operation]) -> bool:
    """Return whether a second `kubectl apply` would fail because of `operations`, the fixes.

    `manifest` is a new Pod, perhaps applied from a file. Kubernetes lets almost nothing of a Pod
    change. The second apply asks for what the file says again: a value that a fix removed or
    replaced, or a list without what a fix added to it. The API server refuses that, by client-side
    and server-side apply alike. What a fix added where the file has nothing stays (all seen on a
    real API server).
    """
    metadata = as_object(manifest.get("metadata"))
    return _is_applied(metadata) and any(_contradicts_manifest(manifest, o) for o in operations)


def _is_applied(metadata: Mapping[str, Any]) -> bool:
    """Return whether `kubectl apply` created the object, client-side or server-side."""
    if LAST_APPLIED_ANNOTATION in as_object(metadata.get("annotations")):
        return True
    managers = as_objects(metadata.get("managedFields"))
    return any(manager.get("operation") == APPLY_OPERATION for _, manager in managers)


def _contradicts_manifest(manifest: Any, operation: Operation) -> bool:
    if operation["op"] != "add":
        return True
    path = as_text(operation["path"])
    *parents, last = path.split("/")[1:]
    if not path.startswith(_REPLACED_LISTS) or not (last == "-" or last.isdigit()):
        return False
    steps = tuple(int(step) if step.isdigit() else step for step in parents)
    existing = as_objects(find_value(manifest, steps))
    return any(element.get("key") not in _DEFAULT_TOLERATIONS for _, element in existing)


# Without these fixes a pod lacks nothing but a default, so the user has to do nothing about it.
RULES_ABOUT_DEFAULTS = frozenset({"affinity-default", "toleration-default"})
WOULD_BE_REFUSED_PREFIX = "would be refused in mode deny: "


def allow(
    request: AdmissionRequest,
    result: EvaluationResult,
    findings: Sequence[Finding],
    by_rule: Mapping[str, str],
    fixed: Sequence[Finding] = (),
    operations: Sequence[Operation] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
    unmentioned: Collection[str] = (),
) -> Decision:
    """A decision that refuses nothing and warns as far as the mode allows.

    `verbs` says, by the identity of a finding, what would happen to the object. `unmentioned` are
    rules that cause no warning about what would be fixed.
    """
    if not (by_rule or result.failures):
        return CLEAN_DECISION
    lines: list[str] = []
    if request.mode is not Action.AUDIT:
        reported = [finding for finding in findings if finding.action >= Action.WARN]
        lines += [
            warning_text(f, verbs.get(f.identity) or _refusal_prefix(request, f)) for f in reported
        ]
        lines += _fix_warnings(request, fixed, operations, unmentioned)
        lines += [failure_warning(failure) for failure in result.failures]
    silent: Outcome = "audited" if fixed or findings or result.failures else "excepted"
    without_patch: Outcome = "warned" if lines else silent
    return Decision(
        "fixed" if operations else without_patch,
        warnings=limit_warnings(lines),
        operations=operations,
        annotations=by_rule,
        rule_outcomes=by_rule,
        findings=findings,
        fixed=fixed,
        failures=result.failures,
    )


def _fix_warnings(
    request: AdmissionRequest,
    fixed: Sequence[Finding],
    operations: Sequence[Operation],
    unmentioned: Collection[str],
) -> list[str]:
    """Return warnings about the fixes that are made, or would be."""
    if not operations:
        mentioned = (finding for finding in fixed if finding.rule not in unmentioned)
        return fix_warnings(mentioned, "would be fixed")
    lines = fix_warnings(fixed, "fixed")
    if request.is_pod and second_apply_fails(request.object, operations):
        lines.append(SECOND_APPLY_WARNING)
    return lines


def _refusal_prefix(request: AdmissionRequest, finding: Finding) -> str:
    """Return what mode deny would do to the object, unless the API server itself refuses it."""
    spared = request.mode is not Action.DENY and finding.action is Action.DENY
    ours = request.is_validated and not finding.api_refuses
    return WOULD_BE_REFUSED_PREFIX if ours and spared else ""


# Objects that gpuward did not evaluate, or not completely.

TOO_LARGE_REASON, TIMEOUT_REASON = "too-large", "timeout"
"""In place of a rule's name, why an object was not evaluated."""
# Operations of a patch; each takes the API server longer than gpuward.
MAX_OPERATIONS = 1_000


def too_large_reason(request: AdmissionRequest) -> str:
    """Return why the objects of the request are too large to evaluate; empty if they are not."""
    size = request.review.size_bytes
    return oversized_reason(request.object, size) or oversized_reason(request.old, size)


def not_evaluated_decision(
    review: AdmissionReview, mode: Action, reason: str, *, because: str = TOO_LARGE_REASON
) -> Decision:
    """Return the decision about an object that is not evaluated, `because` of a bound or of time.

    A pod or a claim for devices is refused in mode deny, because anything may be hidden in it.
    Everything else is admitted with a warning.
    """
    line = f"gpuward [{because}] cannot evaluate this object because of {reason}"
    reasons = (DecisionReason(because, NOT_EVALUATED_OUTCOME),)
    if (review.is_pod or review.is_claim) and mode is Action.DENY:
        by_rule = {because: "denied"}
        return Decision(
            "denied",
            allowed=False,
            message=line,
            annotations=by_rule,
            rule_outcomes=by_rule,
            reasons=reasons,
        )
    warnings = [] if mode is Action.AUDIT else [line]
    by_rule = {because: NOT_EVALUATED_OUTCOME}
    return Decision(
        "not-evaluated",
        warnings=warnings,
        annotations=by_rule,
        rule_outcomes=by_rule,
        reasons=reasons,
    )


def evaluate_request(
    request: AdmissionRequest, rules: RuleSet, fixed_in_new_pods: Collection[str] = ()
) -> EvaluationResult:
    """Return the rules' result for the object, or for what an update changes in it.

    The action is deny for what a new image brings into a pod, if a rule of `fixed_in_new_pods`
    would fix it in a new pod: an existing one cannot be fixed.
    """
    context, steps = request.context, request.steps
    if request.mode is not Action.DENY and request.is_pod:
        # In mode deny the fixes would be made first, so what they remove is not reported.
        only = fixable_containers(request)
        result = fix(request.object, rules, context, only=only, steps=steps).remaining
    else:
        result = check(request.object, rules, context, steps=steps)
    if request.old is not None and result.findings:
        before = check(request.old, rules, context._replace(old_metadata=None), steps=steps)
        result.findings = introduced_findings(result.findings, before.findings)
        if request.is_pod:
            known = frozenset(finding.identity for finding in before.findings)
            names = containers_with_new_image(request)
            for number, finding in enumerate(result.findings):
                is_fixed_in_new_pods = finding.fixable and finding.rule in fixed_in_new_pods
                is_new = finding.container_name in names and finding.identity not in known
                if is_fixed_in_new_pods and is_new:
                    advice = f"{finding.help}; {NOT_FIXABLE_MESSAGE}".strip("; ")
                    denied = finding._replace(action=Action.DENY, help=advice)
                    result.findings[number] = denied
    return result


def refuse(
    result: EvaluationResult,
    denied: Sequence[Finding],
    by_rule: Mapping[str, str],
    failures: Sequence[RuleFailure] = (),
    verbs: Mapping[str, str] = NO_TEXTS,
) -> Decision:
    """Refuse an object because of the findings `denied`, and of `failures`.

    Further findings of `result` are warnings, if their action asks for one. `verbs` says, by the
    identity of a finding, what would happen to the object.
    """
    reasons = {finding.identity for finding in denied}
    warned = (
        finding
        for finding in result.findings
        if finding.action >= Action.WARN and finding.identity not in reasons
    )
    return Decision(
        "denied",
        allowed=False,
        message=denial_message(denied, failures, verbs),
        causes=status_causes(denied),
        warnings=limit_warnings(warning_text(finding) for finding in warned),
        annotations=by_rule,
        rule_outcomes=by_rule,
        findings=result.findings,
        failures=result.failures,
    )


# The annotation on a fixed pod that names the rules which fixed it. The user does not see warnings
# about pods that controllers create, so the pod itself carries a record.

FIXED_ANNOTATION = "gpuward.io/fixed"
# With more characters in annotations, one more might exceed the API server's 256 KiB.
MAX_ANNOTATION_CHARACTERS = 60 << 10


def annotation_operations(
    manifest: Any, fixed: Sequence[Finding], known: Collection[str]
) -> list[Operation]:
    """The operations that add the annotation to a fixed pod; none if nothing was fixed.

    When the API server calls the webhook again for the same pod, names are added to those that are
    there. Names that are not in `known`, the names of all rules, are dropped.
    """
    if not fixed:
        return []
    metadata = manifest.get("metadata")
    listed = as_object(metadata).get("annotations")
    if not all(part is None or isinstance(part, dict) for part in (metadata, listed)):
        return []  # no API server sends such an object
    annotations = as_object(listed)
    size = sum(len(key) + len(as_text(value)) for key, value in annotations.items())
    if size > MAX_ANNOTATION_CHARACTERS:
        return []
    present = as_text(annotations.get(FIXED_ANNOTATION)).split(",")
    earlier = [name for name in present if name in known]
    names = ",".join(dict.fromkeys((*earlier, *(finding.rule for finding in fixed))))
    return apply(manifest, [put(("metadata", "annotations", FIXED_ANNOTATION), names)])[1]
