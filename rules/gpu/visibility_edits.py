"""Edits of visible-devices variables, and what messages advise users to do instead."""

from rules.base.json_values import Edit, append, as_objects, as_text, put, remove
from rules.finding import Fix
from rules.gpu.devices import requests_gpu, uses_device_plugin
from rules.gpu.visibility import (
    ALTERNATIVE_VARIABLE,
    NVIDIA_VISIBLE_DEVICES,
    display_variable,
    is_for_requested_gpu,
)
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.profile import VisibleDevices


def remove_edits(container: Container, variable: str) -> tuple[Edit, ...]:
    """Edits that remove every entry of `variable`."""
    indices = [index for index, _ in container.env_entries(variable)]
    return tuple(remove(container.env_entry_path(index)) for index in indices)


def hiding_value(container: Container, variable: str) -> str | None:
    """The value of `variable` that hides every device; None if its maker names none."""
    return (container.profile.visible_variable(variable) or ALTERNATIVE_VARIABLE).hiding_value


def hide_edits(container: Container, variable: str = NVIDIA_VISIBLE_DEVICES) -> tuple[Edit, ...]:
    """Edits that leave exactly one entry of `variable`, with a value that hides every device.

    Without such a value they remove the variable. No edits if `env` is not a list.
    """
    if not isinstance(container.raw.get("env"), list | None):
        return ()
    value = hiding_value(container, variable)
    if value is None:
        return remove_edits(container, variable)
    entries = container.env_entries(variable)
    entry = {"name": variable, "value": value}
    if not entries:
        # At the end, so that a later merge by name keeps the order of the user's own entries.
        return (append((*container.path, "env"), entry),)
    first, *rest = [index for index, _ in entries]
    hidden = value if container.is_in_variable_map(first) else entry
    kept = put(container.env_entry_path(first), hidden)
    return (kept, *(remove(container.env_entry_path(index)) for index in rest))


def hide_fix(
    container: Container, variable: str = NVIDIA_VISIBLE_DEVICES, *, safe: bool = False
) -> Fix:
    """The fix that makes `variable` hide every device."""
    value = hiding_value(container, variable)
    name = display_variable(variable)
    title = f"remove {name}" if value is None else f"set {name}={value}"
    return Fix(title, hide_edits(container, variable), safe=safe)


def visibility_fix(pod: Pod, container: Container, variable: str, known: VisibleDevices) -> Fix:
    """The fix for a variable by which a container gets, or may get, devices of its own choice.

    A device plugin writes the variable itself, so it is removed. Beside a resource claim it must
    hide everything: the claim does not need it, and the image may set it to `all`.
    """
    if not requests_gpu(container):
        return hide_fix(container, variable)
    is_requested = is_for_requested_gpu(known, container)
    if not uses_device_plugin(container):
        return hide_fix(container, variable, safe=is_requested and pod.is_final)
    edits = remove_edits(container, variable)
    safe = is_requested and not _is_referred_to(container, variable)
    return Fix(f"remove {display_variable(variable)}", edits, safe=safe)


def _is_referred_to(container: Container, variable: str) -> bool:
    """Whether another variable, the command or an argument refers to `variable`.

    Without the variable the reference stays there as text.
    """
    values = (entry.get("value") for _, entry in as_objects(container.raw.get("env")))
    lists = (container.raw.get(field) for field in ("command", "args"))
    words = (word for words in lists if isinstance(words, list) for word in words)
    return any(f"$({variable})" in as_text(text) for text in (*values, *words))


def advice_beside_request(container: Container, variable: str) -> str:
    """What to do about `variable` in a container that requests a GPU."""
    if uses_device_plugin(container):
        return "remove the variable: the device plugin sets it"
    value = hiding_value(container, variable)
    what = "remove the variable" if value is None else f"set the variable to {value}"
    return f"{what}: the devices of a claim do not depend on it"


REQUEST_IN_LIMITS_ADVICE = "ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)"
"""Advice for messages that first say what to remove."""
IN_EXEC = (
    "an ephemeral container cannot ask for a GPU; use `kubectl exec` in the container that has one"
)
NODE_DEBUGGER_ADVICE = (
    "`kubectl debug node/` shows the whole node: choose an image without CUDA, and use the node's "
    "own programs by `chroot /host`"
)
# What `kubectl debug node/` writes into its pods (kubernetes/kubectl pkg/cmd/debug/debug.go).
DEBUGGER_LABEL = ("app.kubernetes.io/managed-by", "kubectl-debug")


def remove_and_request_advice(
    container: Container, removal: str, request: str = REQUEST_IN_LIMITS_ADVICE, otherwise: str = ""
) -> str:
    """`removal`, such as `remove the mount`, and how `container` gets a GPU instead.

    `otherwise` is another way to remove the fault, such as `, or set the variable to void`.
    Kubernetes forbids `resources` in ephemeral containers.
    """
    if container.role == "ephemeral":
        return f"{removal}{otherwise}: {IN_EXEC}"
    return f"{removal} and {request}{otherwise}"


def is_node_debugger(pod: Pod) -> bool:
    """Whether the pod says that `kubectl debug node/` made it. Anybody can write that."""
    key, value = DEBUGGER_LABEL
    return pod.labels.get(key) == value
