"""Edits that remove a visible-devices variable, or make it hide all devices."""

from __future__ import annotations

from rules.base.json_patch import Edit, append, put, remove
from rules.gpu.visibility import AMD, ASCEND, HABANA, NVIDIA, VOID
from rules.objects.container import Container

# The values that hide every device. AMD's and Gaudi's runtimes do not know `void`; Gaudi's old hook
# reads it as `all`.
_HIDDEN_VALUES = {NVIDIA: VOID, ASCEND: VOID, HABANA: "none", AMD: "none"}


def remove_edits(container: Container, variable: str) -> tuple[Edit, ...]:
    """Edits that remove every entry of `variable` from `env`, or `env` if no other is left."""
    entries = container.env.get(variable, [])
    if entries and len(entries) == len(container.raw["env"]):
        return (remove((*container.path, "env")),)
    return tuple(remove((*container.path, "env", index)) for index, _ in entries)


def hidden_value(variable: str) -> str:
    """The value of `variable` that hides every device."""
    return _HIDDEN_VALUES.get(variable, VOID)


def hide_edits(container: Container, variable: str = NVIDIA) -> tuple[Edit, ...]:
    """Edits that leave exactly one entry of `variable`, with a value that hides every device.

    No edits if `env` is not a list.
    """
    if not isinstance(container.raw.get("env"), list | None):
        return ()
    entries = container.env.get(variable, [])
    entry = {"name": variable, "value": hidden_value(variable)}
    if not entries:
        # At the end, so that a later merge by name keeps the order of the user's own entries.
        return (append((*container.path, "env"), entry),)
    first, *rest = [index for index, _ in entries]
    env = (*container.path, "env")
    return (put((*env, first), entry), *(remove((*env, index)) for index in rest))
