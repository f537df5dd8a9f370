"""A container asks for zero of a GPU resource.

What it does
------------
Finds GPU resources whose limit, or request if there is no limit, is zero. A zero that belongs to
another requested resource, such as `nvidia.com/gpucores: 0` beside `nvidia.com/gpu: 1`, is fine:
it only says that this part is not limited. A zero in a container that hides the cards of its maker
by a variable, such as `NVIDIA_VISIBLE_DEVICES=void`, is fine too: nothing is left to chance.

Why it matters
--------------
A container that requests zero GPUs gets none, but the zero does not hide any either: in an image
that sets `NVIDIA_VISIBLE_DEVICES=all`, as NVIDIA's CUDA images do, the container may still see
every GPU of its node. Some tools also treat a pod that merely names the resource as a GPU pod.

Fix safety
----------
The fix removes the line only if the policy says `fix: true`: a user may keep a zero on purpose
and patch another number in.

References
----------
- https://github.com/canonical/microk8s/issues/2160
"""

from rules.base.json_values import display, remove
from rules.base.quantity import Quantity
from rules.base.text_matching import matches_any
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.devices import Device, devices
from rules.gpu.visibility import Visibility, visibility, visible_variables
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

CONSEQUENCE = ", which does not hide any GPU from it"
ADVICE_END = ", and set NVIDIA_VISIBLE_DEVICES=void where no GPU should be seen"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU resource of which a container requests zero."""
    for container in pod.containers:
        if container.role == "ephemeral":
            continue  # `misplaced-gpu` reports any resources of an ephemeral container
        hidden, tunes = _hidden_vendors(container), dict[tuple[str, ...], bool]()
        for device in devices(container).values():
            if not _is_zero(device.amount) or device.resource.vendor in hidden:
                continue
            companions = device.resource.companions
            if companions not in tunes:
                tunes[companions] = _requests_any(companions, container)
            if not tunes[companions]:
                yield _finding(container, device)


def _is_zero(amount: object) -> bool:
    return isinstance(amount, Quantity) and amount.nano == 0


def _requests_any(names: tuple[str, ...], container: Container) -> bool:
    """Whether the container requests a resource of these names, which may be patterns."""
    requested = (device.name for device in devices(container).values() if device.is_requested)
    return any(matches_any(names, name) for name in requested)


def _hidden_vendors(container: Container) -> set[str]:
    """The vendors whose cards a variable hides from the container."""
    variables = visible_variables(container).items()
    hiding = (k for name, k in variables if visibility(container, name) is Visibility.HIDDEN)
    return {vendor for known in hiding for vendor in known.vendors}


def _finding(container: Container, device: Device) -> Finding:
    name = device.name
    fields = [f for f, a in (("limits", device.limit), ("requests", device.request)) if a]
    root, fix = container.resources_path, None
    # Else a request without a limit would remain.
    if device.request is None or _is_zero(device.request):
        fix = Fix(f"remove {name}", tuple(remove((*root, each, name)) for each in fields))
    return Finding(
        path=container.amount_path(name),
        key=f"zero.{name}",
        message=f"{container} asks for zero of {display(name)}{CONSEQUENCE}",
        container=container,
        help=f"remove {name}{ADVICE_END}",
        fix=fix,
    )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(UNUSUAL_AMOUNT,), needs_resources=True
)
