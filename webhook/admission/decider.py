"""Decide about an object: fix, warn, refuse or ignore.

A decision follows from the policy, the request, the mode and the date alone. Pods are fixed and
refused. Quotas and LimitRanges are evaluated as they are. Workloads have a module of their own.
"""

from __future__ import annotations

import datetime

from policies.policy import Policy
from rules.engine.bounds import StepLimit
from rules.engine.fixing import fix
from rules.engine.result import RuleFailure
from rules.finding import Action, Finding
from rules.inventory.inventory import EMPTY, Inventory
from rules.rule import load_module
from webhook.admission.decision import IGNORED, Decision
from webhook.admission.enforcement import DEFAULTS, allow
from webhook.admission.evaluating import decide_within_bounds, evaluate
from webhook.admission.fixed_annotation import annotation_operations
from webhook.admission.messages import FIX_MISSING, add_line, contact_line
from webhook.admission.not_evaluated import MAX_OPERATIONS, not_evaluated
from webhook.admission.outcomes import (
    API_REFUSED,
    FIX_OUTCOMES,
    POD_OUTCOMES,
    api_refused,
    rule_outcomes,
)
from webhook.admission.reasons import reasons
from webhook.admission.refusing import refuse
from webhook.admission.request import (
    EPHEMERAL,
    AdmissionRequest,
    admission_request,
    fixable_containers,
)
from webhook.admission.review import AdmissionReview
from webhook.admission.workloads import WorkloadDecider


class Decider:
    """One policy, ready to decide. All modes run the same rules and differ in what they report.

    `inventory` is what is known of other objects.
    """

    def __init__(self, policy: Policy, inventory: Inventory = EMPTY) -> None:
        self.policy = policy
        self._inventory = inventory
        self.rules = policy.rule_set()
        for active in self.rules.rules:
            load_module(active.rule)  # no pod waits for an import, or finds it broken
        self._workloads = WorkloadDecider(policy, self.rules)
        self._unmentioned = frozenset() if policy.nag else DEFAULTS
        self._contact = contact_line(policy.contact, policy.docs_url)
        self.denies_on_failure = policy.on_rule_error == "deny"
        """Whether an object is refused if a bug prevented its evaluation."""
        self._names = frozenset(active.rule.name for active in self.rules.rules)
        rules = [active.rule for active in self.rules.rules]
        self._families = {rule.name: rule.family for rule in rules}
        self._bypass_rules = frozenset(rule.name for rule in rules if rule.family == "bypass")

    def depends_on_names(self, namespace: str) -> bool:
        """Whether decisions about objects in `namespace` may depend on their names."""
        return any(exception.names for exception in self.rules.exceptions_in(namespace))

    def mutate(
        self,
        review: AdmissionReview,
        mode: Action,
        today: datetime.date,
        steps: StepLimit | None = None,
    ) -> Decision:
        """The decision of the mutating webhook.

        If `steps` is given and runs out, TooManyStepsError.
        """
        request = admission_request(review, mode, today, self._inventory)
        if request is None:
            return IGNORED
        return self._complete(decide_within_bounds(self._mutate, request, steps))

    def validate(
        self,
        review: AdmissionReview,
        mode: Action,
        today: datetime.date,
        steps: StepLimit | None = None,
    ) -> Decision:
        """The decision of the validating webhook, which never assumes that the other was called.

        If `steps` is given and runs out, TooManyStepsError.
        """
        request = admission_request(review, mode, today, self._inventory)
        if request is None or not request.is_validated:
            return IGNORED
        return self._complete(decide_within_bounds(self._validate, request, steps))

    def _complete(self, decision: Decision) -> Decision:
        """`decision` with its reasons, and with whom to ask."""
        if decision.rule_outcomes and not decision.reasons:
            decision = decision._replace(reasons=reasons(decision, self._families))
        return self.with_contact(decision)

    def with_contact(self, decision: Decision) -> Decision:
        """`decision`, whose refusal ends with whom to ask, if the policy says so."""
        if decision.allowed or not self._contact:
            return decision
        return decision._replace(message=add_line(decision.message, self._contact))

    def _mutate(self, request: AdmissionRequest) -> Decision:
        if request.is_pod:
            return self._mutate_pod(request)
        if request.is_namespace_limit:
            result = evaluate(request, self.rules)
            findings = api_refused(result.findings)
            by_rule = rule_outcomes(findings, API_REFUSED)
            return allow(request, result, findings, by_rule)
        return self._workloads.decide(request)

    def _validate(self, request: AdmissionRequest) -> Decision:
        mode, result = request.mode, evaluate(request, self.rules)
        if request.is_pod and request.old is None and mode is Action.DENY:
            result.findings = [self._escalate_unfixed(finding) for finding in result.findings]
        actions = POD_OUTCOMES[mode]
        by_rule = rule_outcomes(result.findings, actions, excepted=result.excepted)
        denied = [f for f in result.findings if f.action is Action.DENY]
        failures = result.failures if self.denies_on_failure else []
        if mode is not Action.DENY or not (denied or failures):
            return allow(request, result, result.findings, by_rule)
        return refuse(result, denied, by_rule, failures)

    def _mutate_pod(self, request: AdmissionRequest) -> Decision:
        only = fixable_containers(request)
        if only is not None and not only:
            return IGNORED
        result = fix(request.object, self.rules, request.context, only=only, steps=request.steps)
        remaining, fixed, operations = result.remaining, result.fixed, result.operations
        if len(operations) > MAX_OPERATIONS:
            reason = f"its more than {MAX_OPERATIONS:,} faults"
            return not_evaluated(request.review, request.mode, reason)
        if request.mode is not Action.DENY:
            operations = []
        elif only is None:
            operations = operations + annotation_operations(result.manifest, fixed, self._names)
        elif any(not o["path"].startswith(f"/spec/{EPHEMERAL}/") for o in operations):
            error = "a fix reaches beyond the new containers"
            remaining.failures.append(RuleFailure(EPHEMERAL, error))
            operations, fixed = [], []
        own = [f for f in remaining.findings if only is None or f.container_name in only]
        findings = api_refused(own)
        by_rule = rule_outcomes(
            findings, API_REFUSED, fixed, remaining.excepted, patched=bool(operations)
        )
        if not operations:
            # Nothing is fixed, so the API server will refuse also what fixes would have removed.
            findings += api_refused(fixed)
        decision = allow(
            request,
            remaining,
            findings,
            by_rule,
            fixed,
            operations,
            unmentioned=self._unmentioned,
        )
        if not by_rule:
            return decision
        # The API server may call the mutating webhook twice for one object. Into the audit log
        # go only outcomes that the second call either repeats or leaves out.
        kept = {rule: word for rule, word in by_rule.items() if word in FIX_OUTCOMES}
        return decision._replace(annotations=kept)

    def _escalate_unfixed(self, finding: Finding) -> Finding:
        """`finding` with the action deny if it is a bypass that the mutating webhook should fix.

        The fix is missing after a failed call. It is also missing where another webhook changed a
        pod that concerned no rule before: the API server does not call the mutating webhook again
        for a pod that its match condition left out (seen).
        """
        if not finding.fixable or finding.rule not in self._bypass_rules:
            return finding
        advice = f"{finding.help}; {FIX_MISSING}".strip("; ")
        return finding._replace(action=Action.DENY, help=advice)
