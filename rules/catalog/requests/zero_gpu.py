"""A container asks for zero of a GPU resource.

What it does
------------
Finds GPU resources whose limit, or request if there is no limit, is zero. A zero that belongs to
another requested resource, such as `nvidia.com/gpucores: 0` beside `nvidia.com/gpu: 1`, is fine:
it only says that this part is not limited. So is a zero beside another device of the same maker,
such as `nvidia.com/mig-1g.10gb: 1`: it replaces a default of one. A zero in a container that hides
the cards of its maker by a variable, such as `NVIDIA_VISIBLE_DEVICES=void`, is fine too: nothing is
left to chance.

Whatever the policy says, a zero that was written is only a note (`audit`), unless the image of
the container is known to set the variable: people write it on purpose, for example so that their
cloud adds the toleration for GPU nodes. The rule warns about a key without a value, and about a
zero beside a request or a part of a card that is more than zero.

Why it matters
--------------
A container that requests zero GPUs gets none, but the zero does not hide any either: in an image
that sets `NVIDIA_VISIBLE_DEVICES=all`, as NVIDIA's CUDA images do, the container may still see
every GPU of its node. Some tools also treat a pod that merely names the resource as a GPU pod, so
GKE adds the toleration for its GPU nodes.

Fix safety
----------
The fix removes the line only if the policy says `fix: true`: a user may keep a zero on purpose
and patch another number in.

References
----------
- https://github.com/canonical/microk8s/issues/2160
- https://github.com/mlrun/mlrun/pull/7307
- https://github.com/nuclio/nuclio/pull/3525
"""

from rules.base.json_values import display, remove
from rules.base.quantity import Quantity
from rules.base.text_matching import matches_any
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.components import image_grants_gpus
from rules.gpu.devices import Device, devices
from rules.gpu.visibility import Visibility, visibility, visible_variables
from rules.placement.gpu_nodes import ACCELERATOR_WORD, GPU_WORD
from rules.profile.platforms.makers import makes_gpus
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

MAY_STAY = "the zero may stay, as where a cloud adds the toleration because of it"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource of which a container requests zero."""
    for container in pod.containers:
        if container.role == "ephemeral":
            continue  # `misplaced-gpu` reports any resources of an ephemeral container
        hidden = _hidden_vendors(container)
        requested = [device for device in devices(container).values() if device.is_requested]
        # Of as many resources as a tenant likes there are few sets of companions, and few vendors.
        companions_by_vendor: dict[str, set[tuple[str, ...]]] = {}
        for other in requested:
            of_vendor = companions_by_vendor.setdefault(other.resource.vendor, set())
            of_vendor.add(other.resource.companions)
        tunes = dict[tuple[str, ...], bool]()
        for device in devices(container).values():
            vendor, companions = device.resource.vendor, device.resource.companions
            if not _is_zero(device.amount) or vendor in hidden:
                continue
            if companions not in tunes:
                tunes[companions] = any(matches_any(companions, other.name) for other in requested)
            of_maker = companions_by_vendor.get(vendor)
            incomplete = any(matches_any(each, device.name) for each in of_maker or ())
            if tunes[companions] or (of_maker and not device.is_requested and not incomplete):
                continue
            raw = container.limits.get(device.name, container.requests.get(device.name))
            may_stay = raw is not None and not of_maker
            finding = _finding(pod, container, device, context, may_stay=may_stay)
            yield finding if raw is not None else _without_value(finding, container, device)


def _is_zero(amount: object) -> bool:
    return isinstance(amount, Quantity) and amount.nano == 0


def _hidden_vendors(container: Container) -> set[str]:
    """The vendors whose cards a variable hides from the container."""
    variables = visible_variables(container).items()
    hiding = (k for name, k in variables if visibility(container, name) is Visibility.HIDDEN)
    return {vendor for known in hiding for vendor in known.vendors}


def _finding(
    pod: Pod, container: Container, device: Device, context: Context, *, may_stay: bool
) -> Finding:
    name = device.name
    fields = [f for f, a in (("limits", device.limit), ("requests", device.request)) if a]
    root, fix = container.resources_path, None
    # Else a request without a limit would remain.
    if device.request is None or _is_zero(device.request):
        fix = Fix(f"remove {name}", tuple(remove((*root, each, name)) for each in fields))
    shows_gpus = image_grants_gpus(container, pod, context)
    return Finding(
        path=container.amount_path(name),
        key=f"zero.{name}",
        message=f"{container} asks for zero of {display(name)}, "
        f"which does not hide any {_word(device)} from it",
        container=container,
        help=_advice(container, device, may_stay=may_stay),
        fix=fix,
        action=Action.AUDIT if may_stay and not shows_gpus else Action.WARN,
    )


def _without_value(finding: Finding, container: Container, device: Device) -> Finding:
    """Return `finding` about a key whose value the author has most likely forgotten."""
    word = _word(device)
    return finding._replace(
        message=f"{container} gives {display(device.name)} no value, which Kubernetes reads as "
        f"zero: no {word} is reserved for it",
        help=f"write how many it needs, such as {device.name}: 1, or remove the key",
    )


def _word(device: Device) -> str:
    return GPU_WORD if makes_gpus(device.resource.vendor) else ACCELERATOR_WORD


def _advice(container: Container, device: Device, *, may_stay: bool) -> str:
    """Return how to hide the GPUs of the maker, and what becomes of the zero."""
    known = container.profile.visible_devices.values()
    of_maker = (k for k in known if device.resource.vendor in k.vendors and k.hiding_value)
    hiding = next((f"set {k.name.strip('*')}={k.hiding_value}" for k in of_maker), "")
    hiding += f" where no {_word(device)} should be seen" if hiding else ""
    parts = (hiding, MAY_STAY) if may_stay else (f"remove {device.name}", hiding)
    return ("; " if may_stay else ", and ").join(filter(None, parts))


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(UNUSUAL_AMOUNT,), needs_resources=True
)
