"""Decide about an object: fix, warn, refuse or ignore.

A decision follows from the policy, the request, the mode and the date alone. Pods are fixed and
refused. Quotas and LimitRanges are evaluated as they are. Workloads, from which controllers make
pods, cause warnings, because their owners keep them elsewhere, such as in Git. A policy may ask for
more: to make the fixes without which the API server refuses them or Kueue never admits them, or to
refuse those whose pods will be refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import TypeAlias

from policies.policy import Policy
from rules.base.json_values import Json, Operation
from rules.engine.bounds import MAX_STEPS, StepLimit, TooManyStepsError
from rules.engine.evaluation import RuleFailure
from rules.engine.exceptions import Suppress, suppress_nothing
from rules.engine.fixing import check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.gpu.quotas import is_queued_by_template
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import load_module
from rules.workloads.discovery import find_subjects
from rules.workloads.future_pods import future_pods, has_final_pods
from webhook.admission.decision import (
    API_REFUSED,
    CLEAN_DECISION,
    FIX_OUTCOMES,
    IGNORED_DECISION,
    POD_OUTCOMES,
    Decision,
    api_refused_findings,
    reasons_of,
    rule_outcomes,
    workload_outcomes,
    worst_first,
)
from webhook.admission.enforcement import (
    MAX_OPERATIONS,
    RULES_ABOUT_DEFAULTS,
    WOULD_BE_REFUSED_PREFIX,
    allow,
    annotation_operations,
    evaluate_request,
    not_evaluated_decision,
    refuse,
    too_large_reason,
)
from webhook.admission.messages import FIX_MISSING_MESSAGE, add_line, contact_line
from webhook.admission.request import (
    EPHEMERAL_FIELD,
    AdmissionRequest,
    admission_request,
    fixable_containers,
)
from webhook.admission.review import AdmissionReview

# The fixes that a policy may allow in workloads: without the first the API server refuses them,
# without the second a DaemonSet makes pods that stay Pending, without the third they go past their
# queue, and without the others Kueue never admits them: it compares templates with its flavors.
RULE_FIXED_IN_TEMPLATES = "request-only"
RULE_ABOUT_NODES = "gpu-node-without-request"
RULE_ABOUT_QUEUES = "missing-queue"
RULES_FIXED_FOR_QUEUES = ("toleration-default", "untolerated-flavor")
PODS_REFUSED_PREFIX = "its pods will be refused: "
PODS_WOULD_BE_REFUSED_PREFIX = "its pods would be refused in mode deny: "

_Fix: TypeAlias = tuple[RuleSet, Context, Suppress]
"""Rules whose fixes are made, their context, and what of it stays as it is."""


class WorkloadDecider:
    """Decides about workloads by one policy, whose rules are `rules`."""

    def __init__(self, policy: Policy, rules: RuleSet) -> None:
        self._rules = rules
        self._families = {active.rule.name: active.rule.family for active in rules.rules}
        self._template_rules = rules.restricted_to([RULE_FIXED_IN_TEMPLATES])
        self._label_rules = rules.restricted_to([RULE_ABOUT_QUEUES])
        self._node_rules = rules.restricted_to([RULE_ABOUT_NODES])
        self._queue_rules = rules.restricted_to(RULES_FIXED_FOR_QUEUES)
        fixes = (
            *(self._fix_of_templates, self._fix_of_nodes),
            *(self._fix_of_labels, self._fix_for_queues),
        )
        self._fixes_in_order = fixes if policy.workloads == "fix" else ()
        self._refuses = policy.workloads == "deny"

    def decide(self, request: AdmissionRequest) -> Decision:
        """The decision of the mutating webhook, the only one that is called for workloads.

        It refuses workloads as well. That a webhook which is called later would correct the
        template does not help: the pods are evaluated after all webhooks have been called.
        """
        fixed: list[Finding] = []
        operations: list[Operation] = []
        for choose_fix in self._fixes_in_order:
            # Each sees what those before it have written.
            if (chosen := choose_fix(request)) is None:
                continue
            rules, context, is_kept = chosen
            result = fix(request.object, rules, context, is_kept, steps=request.steps)
            fixed += result.fixed
            if request.mode is Action.DENY:
                operations += result.operations
                request = request._replace(object=result.manifest)
        remaining = evaluate_request(request, self._rules)
        refused = self._refused_in_pods(request, remaining.findings) if remaining.findings else []
        unqueued = [finding for finding in remaining.findings if _is_unqueued(finding)]
        denied = worst_first([*refused, *unqueued], self._families) if self._refuses else []
        by_rule = workload_outcomes(
            request.mode, remaining, denied, fixed, patched=bool(operations)
        )
        verbs = {finding.identity: self._warning_prefix(request) for finding in refused}
        if self._refuses and request.mode is not Action.DENY:
            verbs |= {finding.identity: WOULD_BE_REFUSED_PREFIX for finding in unqueued}
        if denied and request.mode is Action.DENY:
            return refuse(remaining, denied, by_rule, verbs=verbs)
        return allow(request, remaining, remaining.findings, by_rule, fixed, operations, verbs)

    def _fix_of_templates(self, request: AdmissionRequest) -> _Fix | None:
        """Return the rules whose fixes are made in a built-in workload."""
        if request.review.group not in BUILT_IN_GROUPS:
            return None
        return self._template_rules, request.context, suppress_nothing

    def _fix_of_labels(self, request: AdmissionRequest) -> _Fix | None:
        """Return those about the label at which Kueue looks when a workload is created."""
        if request.old is not None:
            return None
        return self._label_rules, request.context, suppress_nothing

    def _fix_of_nodes(self, request: AdmissionRequest) -> _Fix | None:
        """Return those that keep the pods of a built-in workload off GPU nodes."""
        if request.review.group not in BUILT_IN_GROUPS:
            return None
        return self._unless_stored_without(self._node_rules, request)

    def _fix_for_queues(self, request: AdmissionRequest) -> _Fix | None:
        """Return those for a workload that Kueue queues."""
        if not self._is_queued_by_template(request):
            return None
        return self._unless_stored_without(self._queue_rules, request)

    def _unless_stored_without(self, rules: RuleSet, request: AdmissionRequest) -> _Fix:
        """Return `rules`, which judge a stored template as they judged it when it was new.

        An update keeps what the stored templates have: a user who applies the same manifest again
        means no change. What they lack they go on to lack: many templates are immutable, and a
        change of others replaces pods.
        """
        context = request.context._replace(operation="CREATE")
        if request.old is None:
            return rules, context, suppress_nothing
        stored = check(request.old, rules, context, steps=request.steps)
        lacked = {(finding.stable_path, finding.key) for finding in stored.findings}
        return rules, context, lambda finding, _: (finding.stable_path, finding.key) in lacked

    def _is_queued_by_template(self, request: AdmissionRequest) -> bool:
        """Return whether Kueue queues the workload by its template, which its pods will have."""
        review, profile = request.review, self._rules.profile
        return has_final_pods(review.kind, review.group) and any(
            is_queued_by_template(subject)
            for subject in find_subjects(request.object, profile, review.namespace)
            if isinstance(subject, Pod)
        )

    def _warning_prefix(self, request: AdmissionRequest) -> str:
        """Return what will happen because of a finding for which pods will be refused."""
        if request.mode is Action.DENY:
            return PODS_REFUSED_PREFIX
        return WOULD_BE_REFUSED_PREFIX if self._refuses else PODS_WOULD_BE_REFUSED_PREFIX

    def _refused_in_pods(
        self, request: AdmissionRequest, findings: Iterable[Finding]
    ) -> list[Finding]:
        """Those of `findings` for which pods will be refused after they have been fixed.

        Not those for which the API server refuses the workload itself.
        """
        if not has_final_pods(request.review.kind, request.review.group):
            return []
        namespace, profile = request.review.namespace, self._rules.profile
        causes = {
            (pod.stable_path, *cause)
            for pod in future_pods(request.object, profile, namespace)
            for cause in self._causes_of_refusal(request, pod.manifest)
        }
        return [
            finding
            for finding in findings
            if (finding.stable_path, *_key_of_cause(finding)) in causes and not finding.api_refuses
        ]

    def _causes_of_refusal(
        self, request: AdmissionRequest, pod: Json
    ) -> Iterable[tuple[str, str, str]]:
        """Return why `pod` will be refused."""
        context = request.context._replace(operation="CREATE")
        remaining = fix(pod, self._rules, context, steps=request.steps).remaining.findings
        return (
            _key_of_cause(f) for f in remaining if f.action is Action.DENY and not f.api_refuses
        )


def _is_unqueued(finding: Finding) -> bool:
    """Return whether a workload goes past its queue, by a rule that refuses.

    No pod shows it: Kueue knows the pods of a workload by the workload.
    """
    return finding.rule == RULE_ABOUT_QUEUES and finding.action is Action.DENY


def _key_of_cause(finding: Finding) -> tuple[str, str, str]:
    """Return a key that a finding has in common in a workload and in a pod of it."""
    return finding.rule, finding.container_name, finding.key


class Decider:
    """One policy, ready to decide. All modes run the same rules and differ in what they report.

    `inventory` is what is known of other objects.
    """

    def __init__(self, policy: Policy, inventory: Inventory = EMPTY_INVENTORY) -> None:
        self.policy = policy
        self._inventory = inventory
        self.rules = policy.rule_set()
        for active in self.rules.rules:
            load_module(active.rule)  # no pod waits for an import, or finds it broken
        self._workloads = WorkloadDecider(policy, self.rules)
        self._unmentioned = frozenset() if policy.nag else RULES_ABOUT_DEFAULTS
        self._contact = contact_line(policy.contact, policy.docs_url)
        self.denies_on_failure = policy.on_rule_error == "deny"
        """Whether an object is refused if a bug prevented its evaluation."""
        self._names = frozenset(active.rule.name for active in self.rules.rules)
        rules = [active.rule for active in self.rules.rules]
        self._families = {rule.name: rule.family for rule in rules}
        self._bypass_rules = frozenset(rule.name for rule in rules if rule.family == "bypass")

    def depends_on_names(self, namespace: str) -> bool:
        """Return whether decisions about objects in `namespace` may depend on their names."""
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
            return IGNORED_DECISION
        return self._decide(self._mutate, request, steps)

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
            return IGNORED_DECISION
        return self._decide(self._validate, request, steps)

    def _decide(
        self,
        webhook: Callable[[AdmissionRequest], Decision],
        request: AdmissionRequest,
        steps: StepLimit | None,
    ) -> Decision:
        """Return the decision of one of the webhooks, with its reasons and with whom to ask."""
        decision = self._decide_within_bounds(webhook, request, steps)
        if decision.rule_outcomes and not decision.reasons:
            decision = decision._replace(reasons=reasons_of(decision, self._families))
        return self.with_contact(decision)

    def _decide_within_bounds(
        self,
        webhook: Callable[[AdmissionRequest], Decision],
        request: AdmissionRequest,
        steps: StepLimit | None,
    ) -> Decision:
        """Return the decision of one of the webhooks; "not evaluated" if a bound is exceeded."""
        reason = too_large_reason(request)
        if not reason:
            try:
                return webhook(request._replace(steps=steps or StepLimit()))
            except TooManyStepsError:
                if steps is not None:
                    raise
                reason = f"its size: the rules take more than {MAX_STEPS:,} steps"
        if request.is_pod and request.is_harmless_update:
            return CLEAN_DECISION
        return not_evaluated_decision(request.review, request.mode, reason)

    def with_contact(self, decision: Decision) -> Decision:
        """`decision`, whose refusal ends with whom to ask, if the policy says so."""
        if decision.allowed or not self._contact:
            return decision
        return decision._replace(message=add_line(decision.message, self._contact))

    def _mutate(self, request: AdmissionRequest) -> Decision:
        if request.is_pod:
            return self._mutate_pod(request)
        if request.is_namespace_limit:
            result = evaluate_request(request, self.rules)
            findings = api_refused_findings(result.findings)
            by_rule = rule_outcomes(findings, API_REFUSED)
            return allow(request, result, findings, by_rule)
        return self._workloads.decide(request)

    def _validate(self, request: AdmissionRequest) -> Decision:
        mode = request.mode
        result = evaluate_request(request, self.rules, self._bypass_rules)
        if request.is_pod and request.old is None and mode is Action.DENY:
            result.findings = [self._escalate_unfixed(finding) for finding in result.findings]
        actions = POD_OUTCOMES[mode]
        by_rule = rule_outcomes(result.findings, actions, excepted=result.excepted)
        denied = [f for f in result.findings if f.action is Action.DENY]
        failures = result.failures if self.denies_on_failure else []
        if mode is not Action.DENY or not (denied or failures):
            return allow(request, result, result.findings, by_rule)
        return refuse(result, worst_first(denied, self._families), by_rule, failures)

    def _mutate_pod(self, request: AdmissionRequest) -> Decision:
        only = fixable_containers(request)
        if only is not None and not only:
            return IGNORED_DECISION
        result = fix(request.object, self.rules, request.context, only=only, steps=request.steps)
        remaining, fixed, operations = result.remaining, result.fixed, result.operations
        if len(operations) > MAX_OPERATIONS:
            reason = f"its more than {MAX_OPERATIONS:,} faults"
            return not_evaluated_decision(request.review, request.mode, reason)
        if request.mode is not Action.DENY:
            operations = []
        elif only is None:
            operations = operations + annotation_operations(result.manifest, fixed, self._names)
        elif any(not o["path"].startswith(f"/spec/{EPHEMERAL_FIELD}/") for o in operations):
            error = "a fix reaches beyond the new containers"
            remaining.failures.append(RuleFailure(EPHEMERAL_FIELD, error))
            operations, fixed = [], []
        own = [f for f in remaining.findings if only is None or f.container_name in only]
        findings = api_refused_findings(own)
        by_rule = rule_outcomes(
            findings, API_REFUSED, fixed, remaining.excepted, patched=bool(operations)
        )
        if not operations:
            # Nothing is fixed, so the API server will refuse also what fixes would have removed.
            findings += api_refused_findings(fixed)
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
        advice = f"{finding.help}; {FIX_MISSING_MESSAGE}".strip("; ")
        return finding._replace(action=Action.DENY, help=advice)
