"""A quota names a GPU resource that is misspelt.

What it does
------------
Compares the extended resources in the keys of a ResourceQuota's `spec.hard` with the names of GPU
resources, as `unknown-gpu-resource` does for containers. Finds names that are known mistakes
(`requests.nvidia.com/gpus`), that spell a MIG profile otherwise than NVIDIA's device plugin does,
that differ by a letter or two from a known resource of the same vendor, and that no node offers:
labels of nodes (`nvidia.com/gpu.memory`) and MIG profiles that no card has.

Why it matters
--------------
The API server accepts every name with a domain. The quota then limits a resource that no pod asks
for, and the GPUs of the namespace are not limited at all.

Fix safety
----------
The fix renames the key only if the policy says `fix: true`, because it puts a quota into force
that was never in force. If the right key is there as well, or if two keys would become one, there
is no fix.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
"""

from collections import Counter

from rules.base.json_values import display
from rules.base.text_matching import matches_any
from rules.base.traits import QUOTA
from rules.gpu.resource_names import fault_of_name, misspelt_resources, renaming_fix
from rules.objects.kubernetes_objects import LIMITS_PREFIX, REQUESTS_PREFIX
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule


def check(quota: Quota, context: Context) -> Findings:
    """Yield each key with a misspelt name."""
    names = {key: _resource_of_key(key) for key in quota.hard if "/" in key}
    misspelt = misspelt_resources(names.values(), quota.profile, context.inventory)
    meant = {
        key: _key_for(misspelt[name].right_name, key, quota)
        for key, name in names.items()
        if name in misspelt
    }
    times = Counter(meant.values())
    for key, name in names.items():
        if fault := fault_of_name(name):
            yield Finding(
                path=(*quota.path, key),
                key=f"hard.{key}",
                message=f"the quota's key {display(key)} limits nothing: {fault.reason}",
                help=fault.advice,
            )
    for key, right in meant.items():
        path = (*quota.path, key)
        kind, resource = misspelt[names[key]].kind, misspelt[names[key]].right_name
        message = f"the quota's key {display(key)} is {kind} {right}: it does not limit {resource}"
        fix = renaming_fix([(quota.path, quota.hard)], key, right) if times[right] == 1 else None
        advice = f"remove it: {right} is there" if right in quota.hard else f"write {right}"
        yield Finding(path=path, key=f"hard.{key}", message=message, help=advice, fix=fix)


def _resource_of_key(key: str) -> str:
    return key.removeprefix(REQUESTS_PREFIX if key.startswith(REQUESTS_PREFIX) else LIMITS_PREFIX)


def _key_for(name: str, key: str, quota: Quota) -> str:
    """The key by which a quota limits the resource `name`, where a user wrote `key`."""
    counts = key.startswith(LIMITS_PREFIX) and matches_any(quota.profile.limit_quotas, name)
    return (LIMITS_PREFIX if counts else REQUESTS_PREFIX) + name


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(QUOTA,), supersedes=("quota-inert-key",)
)
