"""A pod asks for more GPUs than a quota of its namespace allows.

What it does
------------
Compares what a pod counts for, by the requests of all its containers, with the keys
`requests.<GPU resource>` of the ResourceQuotas of its namespace, if they are among the manifests of
the same run. Quotas with scopes are not compared, because they do not count every pod.

Why it matters
--------------
No pod beyond the quota is ever created, also if no other pod runs. A Deployment or a Job is created
without an error, and waits for pods that never come: only its events say why.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/quota/v1/evaluator/core/pods.go`
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE, KNOWN_QUOTAS
from rules.gpu.devices import effective_requests, path_of_first_request
from rules.gpu.quotas import smallest_quota
from rules.inventory.inventory import ResourceQuota
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource of which the smallest quota has not enough for the pod."""
    quotas = context.inventory.all_in(ResourceQuota, pod.object.namespace)
    if not quotas or pod.layout is not POD_SPEC or pod.exists:
        return
    for resource, wanted in effective_requests(pod).items():
        limit = smallest_quota(context.inventory, pod.object.namespace, resource)
        if limit is None or wanted <= limit.value:
            continue
        yield Finding(
            path=path_of_first_request(pod, resource),
            key=f"quota.{resource}",
            message=(
                f"the pod asks for {wanted} {resource}, and the quota {display(limit.name)} of its "
                f"namespace allows {limit.value}: the API server refuses such a pod"
            ),
            help="ask for less, or raise the quota",
        )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU_RESOURCE, KNOWN_QUOTAS), needs_resources=True
)
