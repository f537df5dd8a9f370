"""A container asks for the same kind of device by a resource claim and by a resource.

What it does
------------
Looks up the device classes of the claims that a container uses, and the resources for which these
classes stand, if the claims, or their templates, and the classes are among the manifests of the
same run. Finds containers that also ask for such a resource in `limits`: the `extendedResourceName`
of the class, or `deviceclass.resource.kubernetes.io/` and its name.

Why it matters
--------------
Kubernetes makes a claim of its own for such a resource. The container then holds twice the devices
that it was meant to have, and others wait for them.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource
"""

from rules.base.json_values import as_text, display
from rules.base.traits import CLAIM_IN_CONTAINER, GPU_RESOURCE, KNOWN_CLAIMS
from rules.gpu.claims import declared_claims, device_classes
from rules.gpu.devices import DEVICE_CLASS_PREFIX, devices
from rules.inventory.inventory import DeviceClass, Inventory
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each resource that stands for the class of a claim of the same container."""
    if pod.layout is not POD_SPEC:
        return
    resources = {
        as_text(entry.get("name")): _resources_of_classes(
            device_classes(entry, context.inventory, pod.object.namespace), context.inventory
        )
        for _, entry in declared_claims(pod)
    }
    for container in pod.containers:
        requested = {name for name, device in devices(container).items() if device.is_requested}
        used = dict.fromkeys(as_text(claim.get("name")) for _, claim in container.claims)
        found = {n: claim for claim in used for n in requested & resources.get(claim, frozenset())}
        for name, claim in found.items():
            yield Finding(
                path=container.amount_path(name),
                key=f"claimed.{name}",
                message=(
                    f"{container} asks for {name}, and uses the resource claim {display(claim)} of "
                    "the same device class: it holds the devices of both"
                ),
                container=container,
                help="remove the resource, or the claim",
            )


def _resources_of_classes(classes: frozenset[str], inventory: Inventory) -> frozenset[str]:
    """The resources that stand for device classes."""
    known = (inventory.find(DeviceClass, name) for name in classes)
    named = {record.extended_resource for record in known if record}
    return frozenset({*named, *(f"{DEVICE_CLASS_PREFIX}{name}" for name in classes)})


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(CLAIM_IN_CONTAINER, GPU_RESOURCE, KNOWN_CLAIMS),
    needs_resources=True,
)
