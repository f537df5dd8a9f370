"""What becomes of an object: fixed, warned about, refused, or none of our business.

No API call, no file, no clock: a decision follows from the policy, the call, the mode and
the day alone. Pods are fixed and refused; of the workloads that make them we only speak,
because their owner keeps them elsewhere; quotas are judged as they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from rules.asking import Failure, Verdict
from rules.document import Operation, apply, put
from rules.engine import check, fix, introduced
from rules.pod import BUILT_IN_GROUPS
from rules.policy import Policy
from rules.reading import mapping, text
from rules.rule import Action, Finding
from webhook.answer import CLEAN, IGNORED, NOTHING, Answer, Outcome
from webhook.call import EPHEMERAL, Call, call_of, mendable
from webhook.review import Review
from webhook.weight import too_large, unjudged
from webhook.wording import broken, causes, denial, fitting, mended, warned

FIXED = "gpuward.io/fixed"
# The one fix that a policy may have made in workloads: without it they are not even accepted.
TEMPLATE_FIX = "request-only"

# What the audit log says of a rule's strongest finding: in a pod that is refused for it, …
_REFUSED = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "audited"}
# … in one that is not, and in an object whose pods may yet be.
_SPARED = {**_REFUSED, Action.DENY: "would-be-denied"}
_SPOKEN_OF = {**_REFUSED, Action.DENY: "warned"}


class Judge:
    """One policy, ready to decide. Every mode asks the same rules; they differ in what they say."""

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rule_set()
        self._template_rules = self._rules.only([TEMPLATE_FIX])
        self._fixes_workloads = policy.workloads == "fix"
        self._denies_on_failure = policy.on_rule_error == "deny"
        self._names = frozenset(active.rule.name for active in self._rules.rules)

    def mutate(self, review: Review, mode: Action, today: datetime.date) -> Answer:
        """The answer of the mutating path."""
        call = call_of(review, mode, today)
        if call is None:
            return IGNORED
        if why := too_large(call):
            return unjudged(call, why)
        if call.is_pod:
            return self._mutate_pod(call)
        if call.is_quota:
            verdict = self._judged(call)
            return self._allowed(call, verdict, _doomed(verdict.findings))
        return self._mutate_workload(call)

    def validate(self, review: Review, mode: Action, today: datetime.date) -> Answer:
        """The answer of the validating path, which never assumes that the other one was taken."""
        call = call_of(review, mode, today)
        if call is None or not (call.is_pod or call.is_quota):
            return IGNORED
        if why := too_large(call):
            return unjudged(call, why, refused=call.is_pod)
        verdict = self._judged(call)
        denied = [f for f in verdict.findings if f.action is Action.DENY]
        failures = verdict.failures if self._denies_on_failure else []
        if mode is not Action.DENY or not (denied or failures):
            noted = _noted(verdict.findings, _SPARED)
            return self._allowed(call, verdict, verdict.findings, annotations=noted)
        return Answer(
            "denied",
            allowed=False,
            message=denial(denied, failures),
            causes=causes(denied),
            warnings=fitting(warned(f) for f in verdict.findings if f.action is Action.WARN),
            annotations=_noted(verdict.findings, _REFUSED),
            found=verdict.findings,
            failures=verdict.failures,
            excepted=verdict.excepted,
        )

    def _mutate_pod(self, call: Call) -> Answer:
        only = mendable(call)
        if only is not None and not only:
            return IGNORED
        result = fix(call.object, self._rules, call.context, only=only)
        verdict, fixed, operations = result.remaining, result.fixed, result.operations
        if call.mode is not Action.DENY:
            operations = []
        elif only is None:
            operations = operations + self._marked(result.manifest, fixed)
        elif any(not o["path"].startswith(f"/spec/{EPHEMERAL}/") for o in operations):
            verdict.failures.append(Failure(EPHEMERAL, "a fix reaches beyond the new containers"))
            operations, fixed = [], []
        doomed = _doomed(chain([] if operations else fixed, verdict.findings))
        if only is not None:
            doomed = [finding for finding in doomed if finding.container_name in only]
        return self._allowed(call, verdict, doomed, fixed, operations)

    def _marked(self, manifest: Any, fixed: Sequence[Finding]) -> list[Operation]:
        """The operations that name on a mended pod the rules that have fixed it."""
        if not fixed:
            return []
        before = text(mapping(mapping(manifest.get("metadata")).get("annotations")).get(FIXED))
        # A reinvocation adds to what the first round wrote; what else stands there is not ours.
        known = [name for name in before.split(",") if name in self._names]
        names = ",".join(dict.fromkeys((*known, *(finding.rule for finding in fixed))))
        return apply(manifest, [put(("metadata", "annotations", FIXED), names)])[1]

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
        noted = _noted(found, _SPOKEN_OF)
        return self._allowed(call, verdict, found, fixed, operations, noted)

    def _judged(self, call: Call) -> Verdict:
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
        self,
        call: Call,
        verdict: Verdict,
        found: Sequence[Finding],
        fixed: Sequence[Finding] = (),
        operations: Sequence[Operation] = (),
        annotations: Mapping[str, str] = NOTHING,
    ) -> Answer:
        """An answer that refuses nothing and says what the mode lets it say."""
        if not (found or fixed or verdict.failures or verdict.excepted):
            return CLEAN
        done = "fixed" if operations else "would be fixed"
        lines: list[str] = []
        if call.mode is not Action.AUDIT:
            lines += [warned(f, _verb(call, f)) for f in found if f.action >= Action.WARN]
            lines += mended(fixed, done)
            lines += [broken(failure) for failure in verdict.failures]
        noticed: Outcome = "warned" if lines else "audited" if fixed or found else "clean"
        return Answer(
            "fixed" if operations else noticed,
            warnings=fitting(lines),
            operations=operations,
            annotations={**annotations, **{f.rule: done.replace(" ", "-") for f in fixed}},
            found=found,
            fixed=fixed,
            failures=verdict.failures,
            excepted=verdict.excepted,
        )


def _doomed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that are ours to explain now: the API server refuses the object next."""
    return [finding for finding in findings if finding.api_refuses]


def _verb(call: Call, finding: Finding) -> str:
    """What would have become of a pod in mode deny, unless the API server says so itself."""
    spared = call.mode is not Action.DENY and finding.action is Action.DENY
    ours = (call.is_pod or call.is_quota) and not finding.api_refuses
    return "would be refused: " if ours and spared else ""


def _noted(found: Iterable[Finding], words: Mapping[Action, str]) -> dict[str, str]:
    """What the audit log is told: a key a rule, with a value that no second call changes."""
    strongest: dict[str, Action] = {}
    for finding in found:
        strongest[finding.rule] = max(finding.action, strongest.get(finding.rule, Action.OFF))
    return {rule: words[action] for rule, action in strongest.items()}
