"""Decide about workloads, from which controllers make pods.

They cause warnings, because their owners keep them elsewhere, such as in Git. A policy may ask for
more: to add the one fix without which the API server refuses them, or to refuse those whose pods
will be refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from policies.policy import Policy
from rules.base.json_values import Json, Operation
from rules.engine.fixing import fix
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.workloads.future_pods import future_pods, has_final_pods
from webhook.admission.decision import Decision
from webhook.admission.enforcement import WOULD_BE_REFUSED, allow
from webhook.admission.evaluating import evaluate
from webhook.admission.outcomes import workload_outcomes
from webhook.admission.refusing import refuse
from webhook.admission.request import AdmissionRequest

# The one fix that a policy may allow in workloads: without it the API server refuses them.
TEMPLATE_FIX = "request-only"
PODS_REFUSED = "its pods will be refused: "
PODS_WOULD_BE_REFUSED = "its pods would be refused in mode deny: "


class WorkloadDecider:
    """Decides about workloads by one policy, whose rules are `rules`."""

    def __init__(self, policy: Policy, rules: RuleSet) -> None:
        self._rules = rules
        self._template_rules = rules.restricted_to([TEMPLATE_FIX])
        self._fixes = policy.workloads == "fix"
        self._refuses = policy.workloads == "deny"

    def decide(self, request: AdmissionRequest) -> Decision:
        """The decision of the mutating webhook, the only one that is called for workloads.

        It refuses workloads as well. That a webhook which is called later would correct the
        template does not help: the pods are evaluated after all webhooks have been called.
        """
        fixed: list[Finding] = []
        operations: list[Operation] = []
        if self._fixes and request.review.group in BUILT_IN_GROUPS:
            result = fix(request.object, self._template_rules, request.context, steps=request.steps)
            fixed = result.fixed
            if request.mode is Action.DENY:
                operations = result.operations
                request = request._replace(object=result.manifest)
        remaining = evaluate(request, self._rules)
        refused = self._refused_in_pods(request, remaining.findings) if remaining.findings else []
        denied = refused if self._refuses else []
        by_rule = workload_outcomes(
            request.mode, remaining, denied, fixed, patched=bool(operations)
        )
        verbs = {finding.identity: self._verb(request) for finding in refused}
        if denied and request.mode is Action.DENY:
            return refuse(remaining, denied, by_rule, verbs=verbs)
        return allow(request, remaining, remaining.findings, by_rule, fixed, operations, verbs)

    def _verb(self, request: AdmissionRequest) -> str:
        """What will happen because of a finding for which pods will be refused."""
        if request.mode is Action.DENY:
            return PODS_REFUSED
        return WOULD_BE_REFUSED if self._refuses else PODS_WOULD_BE_REFUSED

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
            for cause in self._refused(request, pod.manifest)
        }
        return [
            finding
            for finding in findings
            if (finding.stable_path, *_cause(finding)) in causes and not finding.api_refuses
        ]

    def _refused(self, request: AdmissionRequest, pod: Json) -> Iterable[tuple[str, str, str]]:
        """Why `pod` will be refused."""
        context = request.context._replace(operation="CREATE")
        remaining = fix(pod, self._rules, context, steps=request.steps).remaining.findings
        return (_cause(f) for f in remaining if f.action is Action.DENY and not f.api_refuses)


def _cause(finding: Finding) -> tuple[str, str, str]:
    """What a finding has in common in a workload and in a pod of it."""
    return finding.rule, finding.container_name, finding.key
