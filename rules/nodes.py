"""Places in an object that is being searched. They cost next to nothing until one is wanted."""

from __future__ import annotations

from typing import Any, NamedTuple

from rules.document import Path
from rules.reading import mapping, text


class Node(NamedTuple):
    """A value inside the object; its path is put together only for the few that are pods."""

    value: Any
    key: str | int = ""
    above: Node | None = None

    @property
    def steps(self) -> list[Node]:
        """The nodes from the root, which is not among them, down to this one."""
        found: list[Node] = []
        node = self
        while node.above is not None:
            found.append(node)
            node = node.above
        return found[::-1]

    @property
    def path(self) -> Path:
        """The keys and indices that lead here."""
        return tuple(node.key for node in self.steps)

    @property
    def place(self) -> str:
        """The path with names instead of indices: these stay when elements change places."""
        return ".".join(node.name for node in self.steps)

    @property
    def name(self) -> str:
        """The key, or what an element of a list calls itself."""
        if isinstance(self.key, str):
            return self.key
        own = mapping(self.value)
        return text(own.get("name")) or text(own.get("groupName")) or "*"

    def child(self, key: str | int) -> Node:
        """The member or element at `key`, which must exist."""
        return Node(self.value[key], key, self)

    def children(self) -> list[Node]:
        """The members or elements that are themselves objects or lists."""
        pairs = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
        return [Node(v, key, self) for key, v in pairs if isinstance(v, (dict, list))]


def fits(path: Path, pattern: Path) -> bool:
    """Whether `path` fits `pattern`, in which `*` stands for any one step."""
    pairs = zip(path, pattern, strict=False)
    return len(path) == len(pattern) and all(p in ("*", step) for step, p in pairs)
