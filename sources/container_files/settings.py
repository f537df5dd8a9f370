"""Settings that files give containers and nodes, with their places."""

from __future__ import annotations

from typing import NamedTuple

from kubeyaml import Document
from rules.base.json_values import Path
from rules.gpu.commands.container_tools import RunOption, gives_gpu
from rules.objects.file_settings import ContainerSetting, LabelCommand
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile


class LocatedSetting(NamedTuple):
    """A setting, and the offsets of its text.

    `statement_start` is where the instruction or the command begins that it is a part of. In YAML,
    `document` and `path` say where it is instead.
    """

    setting: ContainerSetting | LabelCommand
    start: int = 0
    end: int = 0
    statement_start: int = 0
    document: Document | None = None
    path: Path = ()


class ContainerFileError(Exception):
    """A file that cannot be read; the message is the reason, `offset` where it is."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(reason)
        self.offset = offset


def setting_of_option(
    option: RunOption, holder: str, file: ObjectRef, profile: Profile
) -> ContainerSetting | None:
    """Return the setting of the `holder` that `option` is, None if it gives no GPU."""
    known = profile.visible_variable(option.name) if option.is_variable else None
    if not gives_gpu(option, known):
        return None
    return ContainerSetting(file, holder, option.name, option.value, known)
