"""A Job of GPU pods on spot nodes does not survive that its node is taken away.

What it does
------------
Finds Jobs, and CronJobs, whose pods request GPUs and demand spot nodes, by `nodeSelector` or by
the required node affinity, and which have `backoffLimit: 0` and no `podFailurePolicy` that ignores
disruptions: of its rules about the condition `DisruptionTarget`, the first decides. The labels are
those of GKE, AKS, EKS and Karpenter, such as `karpenter.sh/capacity-type: spot`. A toleration alone
demands nothing.

Whether the program saves its state, so that the next pod goes on from there, no manifest shows.

Why it matters
--------------
The cloud takes a spot node back whenever it wants to. Its pods fail, each counts against the limit
of the Job, and with a limit of 0 the first one ends the Job. The hours of GPU that it has taken are
paid for and lost.

References
----------
- https://kubernetes.io/docs/tasks/job/pod-failure-policy/
- https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects
from rules.base.traits import GPU_WORKLOAD
from rules.gpu.devices import pod_requests_gpu
from rules.placement.node_affinity import spot_label
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

LIMIT_FIELD = "backoffLimit"


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the limit of the Job if the loss of one node ends it."""
    found = workload.job_spec
    if found is None:
        return
    path, spec = found
    if spec.get(LIMIT_FIELD) != 0 or _ignores_disruptions(spec):
        return
    label = next((spot_label(pod) for pod in workload.pods if pod_requests_gpu(pod)), "")
    if label:
        yield Finding(
            path=(*path, LIMIT_FIELD),
            key=LIMIT_FIELD,
            message=f"the Job runs on spot nodes ({label}) and has {LIMIT_FIELD}: 0, so it fails "
            "when the cloud takes its node back",
            help=f"raise {LIMIT_FIELD}, or let podFailurePolicy ignore pods with the condition "
            "DisruptionTarget",
        )


def _ignores_disruptions(spec: Mapping[str, Any]) -> bool:
    """Return whether the first rule that a disrupted pod matches ignores it."""
    rules = as_objects(as_object(spec.get("podFailurePolicy")).get("rules"))
    first = next((rule for _, rule in rules if _is_about_disruptions(rule)), {})
    return first.get("action") == "Ignore"


def _is_about_disruptions(rule: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("status") in (None, "True")
        for _, condition in as_objects(rule.get("onPodConditions"))
    )


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_WORKLOAD,))
