"""A resource claim has the annotation by which a scheduler marks claims of its own.

What it does
------------
Finds the annotation `resource.kubernetes.io/extended-resource-claim` in ResourceClaims, and in what
ResourceClaimTemplates write into their claims. A scheduler writes it into the claims that it makes
for pods which ask for an extended resource, such as `nvidia.com/gpu`. At admission, claims of users
whose names begin with `system:`, such as kube-scheduler, are not reported, but for service accounts
of the namespace of the claim. In a file, claims that a cluster has are not reported: nobody knows
who wrote them.

Why it matters
--------------
The ResourceQuota of a namespace does not count such a claim, because it counts the pod instead.
Early releases of Kubernetes with this feature, which began with 1.34, trust the annotation: whoever
writes it has as many devices as they like. Later ones look for the pod as well. Nobody but a
scheduler has a reason to write it.

Options
-------
`writers`: the users who may create such claims, with `*` for any text. Everybody else is then
reported, service accounts included. By default the list is empty, and the rule decides as described
above.

References
----------
- https://github.com/kubernetes/kubernetes/issues/135404
- Kubernetes, `pkg/quota/v1/evaluator/core/resource_claims.go`
"""

from rules.base.json_values import Path, as_object, display
from rules.base.traits import DEVICE_CLAIM
from rules.base.words import matches_any
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
_OWN_USERS = "system:"


def check(claim: DeviceClaim, context: Context) -> Findings:
    """Yield the annotation, if a user may have written it."""
    is_template = claim.object.kind == "ResourceClaimTemplate"
    place: Path = ("spec", "metadata") if is_template else ("metadata",)
    metadata = as_object(claim.raw.get("spec")) if is_template else claim.raw
    metadata = as_object(metadata.get("metadata"))
    if ANNOTATION not in as_object(metadata.get("annotations")):
        return
    if not is_template and not _is_by_a_user(claim, context):
        return
    yield Finding(
        path=(*claim.base, *place, "annotations", ANNOTATION),
        key=f"annotations.{ANNOTATION}",
        message=(
            f"the annotation {display(ANNOTATION, 80)} is the scheduler's: quotas of some releases "
            "do not count the devices of such a claim"
        ),
        help="remove it: the scheduler writes it into claims of its own",
    )


def _is_by_a_user(claim: DeviceClaim, context: Context) -> bool:
    """Whether somebody else than a scheduler creates the claim."""
    user = context.user
    if user is None:
        return not (claim.raw.get("status") or as_object(claim.raw.get("metadata")).get("uid"))
    if writers := context.options["writers"]:
        return not matches_any(writers, user)
    is_own_account = user.startswith(f"{_OWN_USERS}serviceaccount:{claim.object.namespace}:")
    return is_own_account or not user.startswith(_OWN_USERS)


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(DEVICE_CLAIM,), options={"writers": ()}
)
