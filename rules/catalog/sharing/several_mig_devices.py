"""A container asks for several MIG devices, of which a CUDA program uses one.

What it does
------------
Finds containers that request more than one MIG device in all, as `nvidia.com/mig-1g.10gb: 2`. In a
pod that selects nodes whose cards are divided, by `cloud.google.com/gke-gpu-partition-size` or by a
value of `nvidia.com/gpu.product` with `-MIG-`, more than one `nvidia.com/gpu` counts as well.

Nothing is reported if the container says how it divides the devices among processes: if it sets the
variable `CUDA_VISIBLE_DEVICES` to more than one device, or its command or its arguments mention
that or a device `MIG-…`.

Why it matters
--------------
CUDA shows a process one MIG device, however many the container holds. The program runs on a part of
what was asked for, and nobody else gets the rest. A larger profile, such as `3g.40gb`, gives one
process more.

References
----------
- https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html#cuda-visible-devices
- https://github.com/NVIDIA/k8s-device-plugin/issues/1078
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity
from rules.base.text_matching import has_placeholder
from rules.base.traits import SEVERAL_GPUS
from rules.gpu.commands.of_containers import Command, commands_of
from rules.gpu.devices import devices
from rules.placement.selected_cards import selects_mig_cards
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_WHOLE_GPU, _MIG_PREFIX, _SHARED_SUFFIX = "nvidia.com/gpu", "nvidia.com/mig-", ".shared"
_MASK_VARIABLE, _MIG_DEVICE_PREFIX = "CUDA_VISIBLE_DEVICES", "MIG-"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that requests several MIG devices and does not divide them."""
    amounts = [(container, _requested_devices(container)) for container in pod.containers]
    names = {name for _, found in amounts for name in found}
    if _WHOLE_GPU in names and not selects_mig_cards(pod):
        for _, found in amounts:
            found.pop(_WHOLE_GPU, None)
    several = {c.path: found for c, found in amounts if sum(found.values()) > 1}
    for container, command in commands_of(c for c, _ in amounts if c.path in several):
        if not _divides_devices_among_processes(container, command):
            yield _finding(container, several[container.path])


def _requested_devices(container: Container) -> dict[str, int]:
    """Return how many MIG devices, or whole GPUs, `container` requests by each name."""
    found = {}
    for name, device in devices(container).items():
        amount = device.limit if device.is_plain_count else None
        is_mig = name.startswith(_MIG_PREFIX) and not name.endswith(_SHARED_SUFFIX)
        if isinstance(amount, Quantity) and (is_mig or name == _WHOLE_GPU):
            found[name] = amount.value
    return found


def _finding(container: Container, amounts: dict[str, int]) -> Finding:
    name = min(amounts)
    names = ", ".join(map(display, sorted(amounts)))
    where = ", on nodes with MIG" if name == _WHOLE_GPU else ""
    return Finding(
        path=(*container.resources_path, "limits", name),
        key="mig",
        message=f"{container} asks for {sum(amounts.values())} MIG devices "
        f"({names}{where}), and a CUDA program uses one of them",
        container=container,
        help="ask for one device of a larger profile, or divide the devices among processes by "
        f"{_MASK_VARIABLE}",
    )


def _divides_devices_among_processes(container: Container, command: Command) -> bool:
    if _MASK_VARIABLE in container.env:
        value = container.env_value(_MASK_VARIABLE)
        # A variable of the container is that of all its processes.
        if not value or "," in value or has_placeholder(value):
            return True
    return any(_MASK_VARIABLE in text or _MIG_DEVICE_PREFIX in text for text in command.texts)


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(SEVERAL_GPUS,), needs_resources=True
)
