"""A resource claim asks for admin access to devices.

What it does
------------
Finds `adminAccess: true` in the requests of a ResourceClaim or a ResourceClaimTemplate, outside the
namespaces in which the profile lists components of the GPU platform.

Why it matters
--------------
A claim with admin access gets devices that are in use by other pods, and nothing counts them. A
driver may grant more than to other claims, such as the right to reset a device. It is meant for
agents that watch the devices of a node.

Kubernetes 1.34 and newer accepts `adminAccess` only in namespaces with the label
`resource.kubernetes.io/admin-access: "true"`, 1.33 with `resource.k8s.io/admin-access: "true"`, if
the feature is on. Before 1.33 no label is needed. The rule warns, because such a label shows that
a user who may label namespaces allowed it. If the Namespace is among the manifests of the same
run and has no such label, the message says so. Where no user needs admin access, set its action to
`deny`, as the bundle `strict` does. The chart can
[guard the labels](../admin-access.md#guard-the-labels).

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#admin-access
"""

from rules.base.json_values import display
from rules.base.traits import CLAIM_OBJECT
from rules.inventory.inventory import ADMIN_ACCESS_LABELS, Namespace
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

FIELD = "adminAccess"
HELP = (
    f"remove {FIELD}: only agents that watch the devices of a node need it. Kubernetes 1.34 and "
    'newer accepts it only in namespaces with the label resource.kubernetes.io/admin-access: "true"'
)


def check(claim: DeviceClaim, context: Context) -> Findings:
    """Yield each request for admin access."""
    namespace = claim.object.namespace
    if claim.profile.components_in(namespace):
        return
    known = context.inventory.find(Namespace, namespace)
    is_refused = known is not None and not any(
        known.labels.get(label) == "true" for label in ADMIN_ACCESS_LABELS
    )
    consequence = "; and its namespace has no label that allows it" if is_refused else ""
    for request in claim.requests():
        if request.fields.get(FIELD) is True:
            yield Finding(
                path=(*request.path, FIELD),
                key=f"{FIELD}.{request.name}",
                message=(
                    f"the request {display(request.name)} asks for admin access: the claim gets "
                    "devices that are in use by other pods, and nothing counts "
                    f"them{consequence}"
                ),
                help=HELP,
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,))
