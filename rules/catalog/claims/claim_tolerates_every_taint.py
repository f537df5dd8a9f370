"""A resource claim tolerates every taint of devices.

What it does
------------
Finds requests of a ResourceClaim or a ResourceClaimTemplate with a toleration that has
`operator: Exists` and no key, outside the namespaces in which the profile lists components of the
GPU platform. A toleration of one effect alone, such as `NoExecute`, counts too.

Why it matters
--------------
Drivers and administrators taint devices that are broken, in maintenance or about to be taken away.
Such a claim gets them all the same: the pod starts on a GPU that fails, or is not moved away from
one.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from rules.base.json_values import as_objects, as_text, display
from rules.base.traits import CLAIM_OBJECT
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

FIELD = "tolerations"


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each toleration without a key."""
    if claim.profile.components_in(claim.object.namespace):
        return
    for request in claim.requests():
        for index, toleration in as_objects(request.fields.get(FIELD)):
            if toleration.get("operator") != "Exists" or toleration.get("key"):
                continue
            effect = as_text(toleration.get("effect"))
            which = f"every device taint with the effect {display(effect)}" if effect else ""
            yield Finding(
                path=(*request.path, FIELD, index),
                key=f"{FIELD}.{request.name}.{effect}",
                message=f"the request {display(request.name)} tolerates "
                f"{which or 'every device taint'}: it also gets devices that are broken or in "
                "maintenance",
                help="write the key of the taint that the pod can live with",
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,))
