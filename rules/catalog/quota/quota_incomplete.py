"""A quota limits one kind of GPU, and others of the cluster are not limited.

What it does
------------
Compares the ResourceQuotas of a namespace with what the cluster has: the GPU resources that known
Nodes offer, and the device classes of GPUs. Finds a namespace with a quota on one of them, in which
no quota limits another. Evaluates namespaces whose quotas are all known: the linter knows those in
the manifests of the same run, and `gpuward audit` those of the cluster. At admission nothing is
said.

Not reported: resources that a container can use only together with another one, such as
`nvidia.com/gpumem` beside `nvidia.com/gpu`, and device classes that stand for a limited resource.
Nothing is said of a cluster with more than 300 such resources and device classes.

Why it matters
--------------
A quota limits the names that it lists and nothing else. Where nodes offer GPUs under several names,
as with MIG, with shared cards or with a DRA driver, the users of the namespace reach all GPUs by
the name that the quota forgot.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/quota/v1/evaluator/core/resource_claims.go`
"""

from rules.base.json_values import display
from rules.base.traits import KNOWN_QUOTAS, QUOTA
from rules.gpu.quotas import (
    counting_keys,
    first_gpu_key,
    quota_keys_by_gpu_source,
    quotas_beside,
)
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule

MAX_LISTED = 3


def check(quota: Quota, context: Context) -> Findings:
    """Yield one finding for the namespace, at the first of its quotas that limits a GPU."""
    inventory = context.inventory
    quotas = quotas_beside(quota, inventory)
    offered = quota_keys_by_gpu_source(inventory, quota.profile)
    names = (
        name for name in sorted(quotas) if first_gpu_key(quotas[name], quota.profile, inventory)
    )
    if not offered or quota.object.name != next(names, None):
        return
    keys = frozenset(key for known in quotas.values() for key in counting_keys(known))
    missing = [(offer, wanted) for offer, wanted in offered.items() if keys.isdisjoint(wanted)]
    if missing:
        limited = first_gpu_key(quotas[quota.object.name], quota.profile, inventory)
        named = ", ".join(name for name, _ in missing[:MAX_LISTED])
        more = f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
        yield Finding(
            path=quota.path,
            key="missing",
            message=(
                f"the quota limits {display(limited)}, and no quota of its namespace limits "
                f"{named}{more}, which the cluster offers as well"
            ),
            help=f"add {', '.join(wanted[0] for _, wanted in missing[:MAX_LISTED])}; 0 forbids it",
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(QUOTA, KNOWN_QUOTAS))
