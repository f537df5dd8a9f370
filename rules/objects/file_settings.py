"""Views of what files that are no manifests say about containers and nodes."""

from typing import NamedTuple

from rules.objects.object_ref import ObjectRef
from rules.profile.profile import VisibleDevices


class ContainerSetting(NamedTuple):
    """A setting of a container in a Dockerfile, a compose file or a script.

    - `object`: the file, as a kind and a name.
    - `holder`: what has the setting in messages, such as `service "web"`.
    - `name`, `value`: the variable or the option. The value is None if it cannot be known, and
      empty for an option without one.
    - `variable`: what is known about it, if it is a variable of a container runtime.
    """

    object: ObjectRef
    holder: str
    name: str
    value: str | None
    variable: VisibleDevices | None = None

    @property
    def stable_path(self) -> str:
        """Return the holder of the setting, for the identity of findings."""
        return self.holder


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
        """Return the command of the label, for the identity of findings."""
        return "kubectl label"
