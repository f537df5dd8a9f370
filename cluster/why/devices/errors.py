"""The ways in which the search for devices ends without an answer about a node."""

from __future__ import annotations


class NotKnownError(Exception):
    """The answer depends on something that is not read here; the text says on what.

    `may_end` says why the allocator may end its search for all nodes; empty if it does not.
    """

    def __init__(self, text: str, may_end: str = "") -> None:
        super().__init__(text)
        self.may_end = may_end


class FatalError(Exception):
    """The allocator ends its search for all nodes; the text says why."""
