"""What goes into a patch of YAML text and what comes out."""

from typing import Any, NamedTuple

from kubeyaml.model import Document

Operation = dict[str, Any]
"""One operation of a JSON Patch (RFC 6902): add, remove or replace."""


class PatchError(Exception):
    """An operation that cannot be made without touching what it must not touch.

    `reason` completes "not fixed: …"; `offset` is the position in the file; `operation` is the one
    that failed, with its path in the document as the operations before it left it. It is None if
    the result as a whole is wrong.
    """

    def __init__(self, reason: str, offset: int, operation: Operation | None = None) -> None:
        super().__init__(reason, offset, operation)
        self.reason = reason
        self.offset = offset
        self.operation = operation

    def __str__(self) -> str:
        return self.reason


class Splice(NamedTuple):
    """Put `text` in the place of what is between two offsets."""

    start: int
    end: int
    text: str = ""


class Patched(NamedTuple):
    """The text of a chunk after a patch, and the document that is read from it."""

    text: str
    document: Document
