"""The quotas of a namespace limit its CPU or memory, and none of the cluster's GPUs.

What it does
------------
Finds a namespace with a quota on CPU or memory, in which no quota limits any GPU resource, and no
device class of GPUs, that the cluster offers. What it offers are the GPU resources of known Nodes
and the device classes. Evaluates namespaces whose quotas are all known: the linter knows those in
the manifests of the same run, and `gpuward audit` those of the cluster. At admission nothing is
said.

Not reported: namespaces without a quota, or whose quotas only count objects; `kube-system`; and
namespaces with a LocalQueue of Kueue whose ClusterQueue has a quota of a GPU, if both are known. A
quota on some of the GPUs is reported by `quota-incomplete`. Nothing is said of a cluster with more
than 300 of these resources and device classes.

Why it matters
--------------
The cluster is shared between namespaces by quotas, and its most expensive resource is not: the
pods of the namespace may take every GPU that is free. Where a scheduler with queues limits GPUs,
only pods outside of them are concerned.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
"""

from rules.base.traits import KNOWN_QUOTAS, QUOTA
from rules.gpu.claims import is_gpu_resource
from rules.gpu.quotas import (
    counting_keys,
    first_gpu_key,
    quota_keys_by_gpu_source,
    quotas_beside,
)
from rules.inventory.inventory import ClusterQueue, Inventory, LocalQueue
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule

COMPUTE_KEYS = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
MAX_LISTED = 3
# Its pods are the cluster's own.
_SYSTEM_NAMESPACE = "kube-system"


def check(quota: Quota, context: Context) -> Findings:
    """Yield one finding for the namespace, at the first of its quotas on CPU or memory."""
    inventory = context.inventory
    quotas = quotas_beside(quota, inventory)
    if not quotas or quota.object.namespace == _SYSTEM_NAMESPACE:
        return
    limiting = [name for name in sorted(quotas) if not COMPUTE_KEYS.isdisjoint(quotas[name].hard)]
    if quota.object.name != next(iter(limiting), None):
        return
    offered = quota_keys_by_gpu_source(inventory, quota.profile)
    keys = frozenset(key for known in quotas.values() for key in counting_keys(known))
    is_limited = any(first_gpu_key(known, quota.profile, inventory) for known in quotas.values())
    if not offered or is_limited or any(not keys.isdisjoint(each) for each in offered.values()):
        return
    if _has_gpu_queue(quota, inventory):
        return
    named = ", ".join(list(offered)[:MAX_LISTED])
    more = f" and {len(offered) - MAX_LISTED} more" if len(offered) > MAX_LISTED else ""
    wanted = ", ".join(keys_of[0] for keys_of in list(offered.values())[:MAX_LISTED])
    yield Finding(
        path=quota.path,
        key="without-gpu",
        message=f"the quotas of the namespace limit its CPU or memory, and no GPU: it may take "
        f"every free one of {named}{more}",
        help=f"add {wanted}; 0 forbids it",
    )


def _has_gpu_queue(quota: Quota, inventory: Inventory) -> bool:
    """Return whether a Kueue queue of the namespace limits GPUs."""
    locals_ = inventory.all_in(LocalQueue, quota.object.namespace).values()
    queues = (inventory.find(ClusterQueue, local.cluster_queue) for local in locals_)
    return any(
        is_gpu_resource(resource, quota.profile)
        for queue in queues
        if queue
        for resource in queue.resources
    )


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(QUOTA, KNOWN_QUOTAS))
