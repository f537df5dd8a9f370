"""A workload has more replicas than a quota of its namespace has GPUs for.

What it does
------------
Multiplies what a pod of a Deployment, StatefulSet, ReplicaSet, ReplicationController or Job counts
for by its `replicas` or `parallelism`, and compares the result with the keys `requests.<GPU
resource>` of the ResourceQuotas of the namespace, if they are among the manifests of the same run.
A Job never has more pods at a time than `completions`.
A single pod that exceeds the quota is reported by `quota-exceeded`. Quotas with scopes are not
compared.

Why it matters
--------------
The pods beyond the quota are not created, while the workload looks healthy but for its number of
replicas. A job whose workers wait for each other never begins, and holds the GPUs that it has.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
"""

from rules.base.json_values import display
from rules.base.traits import GPU_WORKLOAD, KNOWN_QUOTAS
from rules.gpu.devices import effective_requests
from rules.gpu.quotas import smallest_quota
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule


def check(workload: KubernetesObject, context: Context) -> Findings:
    """Yield each GPU resource of which the pods together exceed the smallest quota."""
    for field, count in workload.pods_at_a_time().items():
        if count <= 1:
            continue
        for pod in workload.pods:
            for resource, wanted in effective_requests(pod).items():
                limit = smallest_quota(context.inventory, pod.object.namespace, resource)
                if limit is None or not wanted <= limit.value < count * wanted:
                    continue
                yield Finding(
                    path=(*workload.path, "spec", field),
                    key=f"quota.{resource}",
                    message=(
                        f"{count} pods with {wanted} {resource} each are more than the "
                        f"{limit.value} that the quota {display(limit.name)} of their namespace "
                        f"allows: at most {limit.value // wanted} can run at a time"
                    ),
                    help=f"write {field}: {limit.value // wanted}, or raise the quota",
                )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_WORKLOAD, KNOWN_QUOTAS))
