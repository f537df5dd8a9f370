"""Two device classes stand for the same extended resource.

What it does
------------
Finds a DeviceClass whose `extendedResourceName` another DeviceClass of the same run has as well.

Why it matters
--------------
A pod that asks for the resource gets a device of one of the classes: of the one that was created
last, or of the first by name if both were created in the same second. The order in which somebody
applies files thus decides which GPUs pods get, and it changes when a class is created anew.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource
- Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache`
"""

from rules.base.json_values import as_text, display
from rules.base.traits import DEVICE_CLASS
from rules.inventory.inventory import DeviceClass
from rules.rule import Action, Context, DeviceSpec, Finding, Findings, define_rule

FIELD = "extendedResourceName"


def check(device_class: DeviceSpec, context: Context) -> Findings:
    """Yield the class if another one has the same resource."""
    resource = as_text(device_class.spec.get(FIELD))
    if not resource:
        return
    known = context.inventory.all_in(DeviceClass, None)
    others = (name for name, record in known.items() if record.extended_resource == resource)
    other = next((name for name in others if name != device_class.object.name), None)
    if other is not None:
        yield Finding(
            path=(*device_class.path, FIELD),
            key=FIELD,
            message=(
                f"the class {display(other)} has the {FIELD} {display(resource)} as well: pods "
                "that ask for it get a device of the class that was created last"
            ),
            help=f"keep {FIELD} in one of them",
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(DEVICE_CLASS,))
