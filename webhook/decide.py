"""What becomes of an object: fixed, warned about, refused, or none of our business.

No API call, no file, no clock: a decision follows from the policy, the call, the mode and
the day alone. Pods are fixed and refused; of the workloads that make them we only speak,
because their owner keeps them elsewhere; quotas are judged as they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from rules.base.json_patch import Operation
from rules.engine.fixing import check, fix, introduced
from rules.engine.result import EvaluationResult, RuleFailure
from rules.finding import Action, Finding
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.policy import Policy
from webhook.answer import CLEAN, IGNORED, NOTHING, Answer, Outcome
from webhook.call import EPHEMERAL, Call, call_of, mendable
from webhook.mark import marked
from webhook.review import Review
from webhook.verdicts import EXPLAINED, MENDING, OF_PODS, OF_WORKLOADS, doomed_of, verdicts
from webhook.weight import MOST_OPERATIONS, too_large, unjudged
from webhook.wording import UNMENDED, broken, causes, denial, fitting, mended, warned

# The one fix that a policy may have made in workloads: without it they are not even accepted.
TEMPLATE_FIX = "request-only"


class Judge:
    """One policy, ready to decide. Every mode asks the same rules; they differ in what they say."""

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rule_set()
        self._template_rules = self._rules.restricted_to([TEMPLATE_FIX])
        self._fixes_workloads = policy.workloads == "fix"
        self._denies_on_failure = policy.on_rule_error == "deny"
        self._names = frozenset(active.rule.name for active in self._rules.rules)
        rules = (active.rule for active in self._rules.rules)
        self._bypasses = frozenset(rule.name for rule in rules if rule.family == "bypass")

    def mutate(self, review: Review, mode: Action, today: datetime.date) -> Answer:
        """The answer of the mutating path."""
        call = call_of(review, mode, today)
        if call is None:
            return IGNORED
        if why := too_large(call):
            return unjudged(call, why, refused=call.is_pod)
        if call.is_pod:
            return self._mutate_pod(call)
        if call.is_quota:
            verdict = self._judged(call)
            doomed = doomed_of(verdict.findings)
            return _allowed(call, verdict, doomed, verdicts(doomed, EXPLAINED))
        return self._mutate_workload(call)

    def validate(self, review: Review, mode: Action, today: datetime.date) -> Answer:
        """The answer of the validating path, which never assumes that the other one was taken."""
        call = call_of(review, mode, today)
        if call is None or not (call.is_pod or call.is_quota):
            return IGNORED
        if why := too_large(call):
            # However heavy a pod is that is there already, it may be labelled.
            return CLEAN if call.is_as_before else unjudged(call, why, refused=call.is_pod)
        verdict = self._judged(call)
        if call.is_pod and call.old is None and mode is Action.DENY:
            verdict.findings = [self._unmended(finding) for finding in verdict.findings]
        noted = verdicts(verdict.findings, OF_PODS[mode], excepted=verdict.excepted)
        denied = [f for f in verdict.findings if f.action is Action.DENY]
        failures = verdict.failures if self._denies_on_failure else []
        if mode is not Action.DENY or not (denied or failures):
            return _allowed(call, verdict, verdict.findings, noted)
        return Answer(
            "denied",
            allowed=False,
            message=denial(denied, failures),
            causes=causes(denied),
            warnings=fitting(warned(f) for f in verdict.findings if f.action is Action.WARN),
            annotations=noted,
            verdicts=noted,
            found=verdict.findings,
            failures=verdict.failures,
        )

    def _mutate_pod(self, call: Call) -> Answer:
        only = mendable(call)
        if only is not None and not only:
            return IGNORED
        result = fix(call.object, self._rules, call.context, only=only)
        verdict, fixed, operations = result.remaining, result.fixed, result.operations
        if len(operations) > MOST_OPERATIONS:
            return unjudged(call, f"its more than {MOST_OPERATIONS:,} faults", refused=True)
        if call.mode is not Action.DENY:
            operations = []
        elif only is None:
            operations = operations + marked(result.manifest, fixed, self._names)
        elif any(not o["path"].startswith(f"/spec/{EPHEMERAL}/") for o in operations):
            verdict.failures.append(
                RuleFailure(EPHEMERAL, "a fix reaches beyond the new containers")
            )
            operations, fixed = [], []
        left = [f for f in verdict.findings if only is None or f.container_name in only]
        doomed = doomed_of(left)
        noted = verdicts(doomed, EXPLAINED, fixed, verdict.excepted, patched=bool(operations))
        if not operations:
            # Nothing is mended, so the API server will refuse what would have been.
            doomed += doomed_of(fixed)
        answer = _allowed(call, verdict, doomed, noted, fixed, operations)
        # The audit log is told only what a second round would say again, or not at all.
        kept = {rule: word for rule, word in noted.items() if word in MENDING}
        return answer._replace(annotations=kept) if noted else answer

    def _mutate_workload(self, call: Call) -> Answer:
        fixed: list[Finding] = []
        operations: list[Operation] = []
        if self._fixes_workloads and call.review.group in BUILT_IN_GROUPS:
            result = fix(call.object, self._template_rules, call.context)
            fixed = result.fixed
            if call.mode is Action.DENY:
                operations = result.operations
                call = call._replace(object=result.manifest)
        verdict = self._judged(call)
        found = verdict.findings
        words = OF_WORKLOADS[call.mode]
        noted = verdicts(found, words, fixed, verdict.excepted, patched=bool(operations))
        verbs = self._fates(call) if found else {}
        return _allowed(call, verdict, found, noted, fixed, operations, verbs)

    def _fates(self, call: Call) -> dict[str, str]:
        """What will become of the pods of a workload, by the identity of the finding."""
        if call.review.group not in BUILT_IN_GROUPS or call.review.kind == "PodTemplate":
            return {}  # what is not seen here may make good what is
        verb = "its pods will be refused: "
        if call.mode is not Action.DENY:
            verb = "its pods would be refused: "
        left = fix(call.object, self._rules, call.context).remaining.findings
        doomed = (f for f in left if f.action is Action.DENY and not f.api_refuses)
        return {finding.identity: verb for finding in doomed}

    def _unmended(self, finding: Finding) -> Finding:
        """A finding in a new pod, more severe if it is a way to a GPU that ought to be mended.

        The mutating path is not asked again about a pod that did not concern it and was changed
        by another webhook afterwards (seen), nor after a call that failed.
        """
        if not finding.fixable or finding.rule not in self._bypasses:
            return finding
        return finding._replace(action=Action.DENY, help=f"{finding.help}; {UNMENDED}".strip("; "))

    def _judged(self, call: Call) -> EvaluationResult:
        """What the rules say of the object, or of what an update changes in it."""
        if call.mode is not Action.DENY and call.is_pod:
            # What would be fixed would not be refused.
            only = mendable(call)
            verdict = fix(call.object, self._rules, call.context, only=only).remaining
        else:
            verdict = check(call.object, self._rules, call.context)
        if call.old is not None and verdict.findings:
            before = check(call.old, self._rules, call.context)
            verdict.findings = introduced(verdict.findings, before.findings)
        return verdict


def _allowed(
    call: Call,
    verdict: EvaluationResult,
    found: Sequence[Finding],
    noted: Mapping[str, str],
    fixed: Sequence[Finding] = (),
    operations: Sequence[Operation] = (),
    verbs: Mapping[str, str] = NOTHING,
) -> Answer:
    """An answer that refuses nothing and says what the mode lets it say."""
    if not (noted or verdict.failures):
        return CLEAN
    lines: list[str] = []
    if call.mode is not Action.AUDIT:
        spoken = [finding for finding in found if finding.action >= Action.WARN]
        lines += [warned(f, verbs.get(f.identity) or _verb(call, f)) for f in spoken]
        lines += mended(fixed, "fixed" if operations else "would be fixed")
        lines += [broken(failure) for failure in verdict.failures]
    silent: Outcome = "audited" if fixed or found or verdict.failures else "excepted"
    noticed: Outcome = "warned" if lines else silent
    return Answer(
        "fixed" if operations else noticed,
        warnings=fitting(lines),
        operations=operations,
        annotations=noted,
        verdicts=noted,
        found=found,
        fixed=fixed,
        failures=verdict.failures,
    )


def _verb(call: Call, finding: Finding) -> str:
    """What would have become of a pod in mode deny, unless the API server says so itself."""
    spared = call.mode is not Action.DENY and finding.action is Action.DENY
    ours = (call.is_pod or call.is_quota) and not finding.api_refuses
    return "would be refused: " if ours and spared else ""
