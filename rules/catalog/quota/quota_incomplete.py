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

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from rules.base.json_access import display
from rules.base.patterns import matches_any
from rules.finding import Action, Finding
from rules.gpu.device_classes import is_gpu_class, is_gpu_resource
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.inventory.inventory import Inventory
from rules.inventory.records import DeviceClass, NodeGroup, ResourceQuota
from rules.objects.quota import LIMITS, REQUESTS, Quota
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.rule import define_rule
from rules.traits.bits import INVENTORY, QUOTA

OF_CLASS = ".deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"
MOST_NAMED = 3
MOST_OFFERS = 300


def check(quota: Quota, context: Context) -> Iterator[Finding]:
    """Yield one finding for the namespace, at the first of its quotas that limits a GPU."""
    inventory = context.inventory
    quotas = inventory.all_in(ResourceQuota, quota.object.namespace)
    offers = inventory.once(_offers, quota.profile) if quota.object.name in quotas else {}
    names = (name for name in sorted(quotas) if _gpu_key(quotas[name], quota.profile, inventory))
    if not offers or quota.object.name != next(names, None):
        return
    keys = frozenset(key for known in quotas.values() for key in known.hard)
    missing = [(offer, wanted) for offer, wanted in offers.items() if keys.isdisjoint(wanted)]
    if missing:
        limited = _gpu_key(quotas[quota.object.name], quota.profile, inventory)
        named = ", ".join(name for name, _ in missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        yield Finding(
            path=quota.path,
            key="missing",
            message=(
                f"the quota limits {display(limited)}, and no quota of its namespace limits "
                f"{named}{more}, which the cluster offers as well"
            ),
            help=f"add {', '.join(wanted[0] for _, wanted in missing[:MOST_NAMED])}; 0 forbids it",
        )


def _offers(inventory: Inventory, profile: Profile) -> Mapping[str, tuple[str, ...]]:
    """By what pods get GPUs, for a message: the keys of quotas that limit it.

    Empty if there are more than MOST_OFFERS: a rule compares all of them with every quota.
    """
    found = list(islice(_each_offer(inventory, profile), MOST_OFFERS + 1))
    return dict(found) if len(found) <= MOST_OFFERS else {}


def _each_offer(inventory: Inventory, profile: Profile) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = inventory.all_in(NodeGroup, None).values()
    offered = {name for group in groups for name in group.resources}
    for name in sorted(offered):
        resource = profile.resource(name)
        if resource is None or offered.isdisjoint(resource.companions):
            is_counted = matches_any(profile.limit_quotas, name)
            keys = (f"{REQUESTS}{name}", *((f"{LIMITS}{name}",) if is_counted else ()))
            yield display(name), keys
    for name, known in sorted(inventory.all_in(DeviceClass, None).items()):
        if is_gpu_class(name, profile, inventory):
            stands_for = (f"{DEVICE_CLASS_PREFIX}{name}", known.extended_resource)
            keys = (f"{name}{OF_CLASS}", *(f"{REQUESTS}{each}" for each in stands_for), CLAIMS)
            yield f"the device class {display(name)}", keys


def _gpu_key(quota: ResourceQuota, profile: Profile, inventory: Inventory) -> str:
    """The first key of the quota that limits GPUs; empty if there is none."""
    for key in quota.hard:
        device_class = key.removesuffix(OF_CLASS)
        if device_class != key and is_gpu_class(device_class, profile, inventory):
            return key
        if key.startswith(REQUESTS) and is_gpu_resource(key.removeprefix(REQUESTS), profile):
            return key
    return ""


RULE = define_rule(check, subject=Quota, action=Action.WARN, since="0.1", needs=(QUOTA, INVENTORY))
