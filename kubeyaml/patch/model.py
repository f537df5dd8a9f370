"""What goes into a patch of YAML text and what comes out."""

from typing import Any, NamedTuple

from kubeyaml.model import Document, Path

Operation = dict[str, Any]
"""One operation of a JSON Patch (RFC 6902): add, remove or replace."""


class PatchError(Exception):
    """An operation that cannot be made without touching what it must not touch.

    `reason` completes "not fixed: …". `path` is that of the operation, in the document as the
    operations before it left it; it is empty if the result as a whole is wrong.
    """

    def __init__(self, reason: str, path: Path = ()) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return self.reason


class Splice(NamedTuple):
    """Put `text` in the place of what is between two offsets."""

    start: int
    end: int
    text: str = ""


class Patched(NamedTuple):
    """The text of a document after a patch, and what is read from it."""

    text: str
    document: Document
