"""A view of a command of a script that labels nodes."""

from typing import NamedTuple

from rules.objects.object_ref import ObjectRef


class LabelCommand(NamedTuple):
    """One label of a command `kubectl label nodes`.

    - `object`: the file, as a kind and a name.
    - `value`: what the label becomes; None if the command removes it.
    - `overwrites`: whether the command may change a label that is there already.
    """

    object: ObjectRef
    label: str
    value: str | None
    overwrites: bool

    @property
    def stable_path(self) -> str:
        """What the label belongs to, for the identity of findings."""
        return "kubectl label"
