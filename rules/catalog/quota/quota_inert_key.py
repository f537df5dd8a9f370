"""A quota has a key for a device that never counts.

What it does
------------
Finds keys in a ResourceQuota's `spec.hard` that name an extended resource with the prefix `limits.`
or without any prefix (`limits.nvidia.com/gpu`, `nvidia.com/gpu`). Keys with `limits.` that the GPU
platform itself enforces are fine: under the profile `hami` those of the memory and the cores of
cards, which HAMi counts, but not of cards. The linter reads also quotas in objects of which a
controller makes them: a Profile of Kubeflow, a ClusterResourceQuota of OpenShift, a Tenant and a
ResourcePool of Capsule, an AccountQuota of kiosk, and a HierarchicalResourceQuota.

In a quota with `scopes` or a `scopeSelector`, finds also keys that count ResourceClaims, such as
`gpu.nvidia.com.deviceclass.resource.k8s.io/devices`.

Why it matters
--------------
Kubernetes counts extended resources by their requests alone, so only `requests.nvidia.com/gpu`
limits anything. The API server accepts the other spellings without a warning (unless the amount
is a fraction), and they never count and never block: a user who relies on them has no quota at
all. ResourceClaims have no scopes, so a quota with scopes counts none of them.

Fix safety
----------
The fix renames the key only if the policy says `fix: true`, because it puts a quota into force
that was never in force. If the right key is there as well, or if two keys would become one, there
is no fix.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/quota/v1/evaluator/core/pods.go`, `resource_claims.go`
"""

import re
from collections import Counter

from rules.base.json_values import display
from rules.base.quantity import invalid_count_reason, parse
from rules.base.text_matching import matches_any
from rules.base.traits import QUOTA
from rules.gpu.amounts import api_refuses_count
from rules.gpu.quotas import counts_claims
from rules.gpu.resource_names import renaming_fix
from rules.objects.kubernetes_objects import LIMITS_PREFIX, REQUESTS_PREFIX
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule

NATIVE_DOMAIN = "kubernetes.io/"
# Keys with a slash under which Kubernetes or OpenShift counts other things than pod resources.
OTHERWISE_COUNTED_PREFIXES = ("count/", "openshift.io/")
KUBERNETES_DOMAIN_SUFFIX = ".k8s.io"
# A qualified name whose domain is short enough to carry a quota's prefix.
EXTENDED_RESOURCE_PATTERN = (
    r"(?=.{1,243}/)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)


def check(quota: Quota, _context: Context) -> Findings:
    """Yield each key for which Kubernetes counts nothing."""
    for key in filter(counts_claims, quota.hard if quota.has_scopes else ()):
        yield Finding(
            path=(*quota.path, key),
            key=f"hard.{key}",
            message=f"the quota's key {display(key)} never counts: the quota has scopes, and a "
            "quota with scopes counts no ResourceClaim",
            help="move the key to a quota without scopes",
        )
    inert = {key: name for key in quota.hard if "/" in key and (name := _inert_resource(key))}
    times = Counter(inert.values())
    for key, name in inert.items():
        if key.startswith(LIMITS_PREFIX) and matches_any(quota.profile.limit_quotas, name):
            continue  # the GPU platform counts it
        right = REQUESTS_PREFIX + name
        path = (*quota.path, key)
        message = (
            f"the quota's key {display(key)} never counts: Kubernetes limits "
            f"extended resources by their requests alone"
        )
        fix = renaming_fix([(quota.path, quota.hard)], key, right) if times[name] == 1 else None
        advice = (
            f"remove it: only {right} counts" if right in quota.hard else f"write {right} instead"
        )
        # The API server requires whole numbers for these keys, though nothing counts them.
        amount = parse(quota.hard[key])
        refused = api_refuses_count(amount)
        if refused:
            value = display(quota.hard[key])
            message += f"; its value is {value}, {invalid_count_reason(amount)}"
        yield Finding(
            path=path,
            key=f"hard.{key}",
            message=message,
            help=advice,
            fix=fix,
            api_refuses=refused and quota.is_resource_quota,
        )


def _inert_resource(key: str) -> str | None:
    """The extended resource that `key` names without effect; None if Kubernetes counts `key`."""
    name = key.removeprefix(LIMITS_PREFIX)
    domain = name.partition("/")[0]
    if (
        name.startswith(REQUESTS_PREFIX)
        or NATIVE_DOMAIN in name
        or domain.endswith(KUBERNETES_DOMAIN_SUFFIX)
    ):
        return None
    if name.startswith(OTHERWISE_COUNTED_PREFIXES):
        return None
    return name if re.fullmatch(EXTENDED_RESOURCE_PATTERN, name) else None


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(QUOTA,))
