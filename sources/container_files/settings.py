"""Settings that files give containers and nodes, with their places."""

from __future__ import annotations

from typing import NamedTuple

from kubeyaml import Document
from rules.base.json_values import Path
from rules.objects.file_settings import ContainerSetting, LabelCommand


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
