"""A resource claim says that a pod has paid for its devices already.

What it does
------------
Finds the annotation `resource.kubernetes.io/extended-resource-claim` with the value `"true"` on a
new ResourceClaim, and on the claims that a ResourceClaimTemplate makes. Its value counts only as
this text. Kubernetes' scheduler, and others such as KAI's and Volcano's, write it on the claims
that they make for pods which ask for an extended resource.

A user whose name begins with `system:` may create such a claim. For a service account of the
claim's own namespace it is a warning. All others are refused, and so is every template: schedulers
make their claims without one. Claims that were read from a cluster are not checked.

Why it matters
--------------
A quota such as `requests.nvidia.com/gpu` counts the devices of claims too, if their class names
that resource. A claim with the annotation whose owner is a pod is not counted as far as the pod's
own requests are: it is taken for the claim that the scheduler made for them. So a pod that asks for
one GPU gets a second one by its claim, and the quota counts one. Kubernetes 1.34 believes every
such claim, newer releases one for each pod.

An annotation that is added to an existing claim is not seen: API servers do not send updates of
claims to gpuward.

Fix safety
----------
The fix removes the annotation only if the policy says `fix: true`: a refusal shows a user who
copied a claim what is wrong with the copy.

References
----------
- Kubernetes, `pkg/quota/v1/evaluator/core/resource_claims.go` (`getVerifiedPodUsage`)
- https://github.com/kubernetes/kubernetes/issues/135404
- KEP-5004, "DRA: Handle extended resource requests"
"""

from rules.base.json_values import display, remove
from rules.base.traits import CLAIM_OBJECT
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, Fix, define_rule

RESERVED_KEY = "resource.kubernetes.io/extended-resource-claim"
SYSTEM_USER_PREFIX = "system:"


def check(claim: DeviceClaim, context: Context) -> Findings:
    """Yield the annotation, if its writer is no scheduler."""
    if claim.annotations.get(RESERVED_KEY) != "true":
        return
    action = _action_for_writer(claim, context)
    if action is Action.OFF:
        return
    path = (*claim.metadata_path, "annotations", RESERVED_KEY)
    yield Finding(
        path=path,
        key=f"annotations.{RESERVED_KEY}",
        message=(
            f"the annotation {display(RESERVED_KEY)} is the scheduler's: a quota on an extended "
            "resource then does not count the devices of the claim beside the requests of its pod"
        ),
        help="remove it: the scheduler writes its own",
        fix=Fix("remove the annotation", (remove(path),)),
        action=action,
    )


def _action_for_writer(claim: DeviceClaim, context: Context) -> Action:
    if claim.object.kind != "ResourceClaim":
        return Action.DENY
    if context.operation is None:
        return Action.OFF if claim.metadata.get("uid") else Action.DENY
    user = context.user or ""
    if user.startswith(f"{SYSTEM_USER_PREFIX}serviceaccount:{claim.object.namespace}:"):
        return Action.WARN
    return Action.OFF if user.startswith(SYSTEM_USER_PREFIX) else Action.DENY


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(CLAIM_OBJECT,))
