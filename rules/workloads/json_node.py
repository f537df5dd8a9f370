"""A node of a JSON tree that knows its parent, for searches through objects."""

from __future__ import annotations

from typing import Any

from rules.base.json_access import as_object, as_text
from rules.base.json_values import Path


class JsonNode:
    """A value inside an object.

    The path is built only on demand, because a search visits many nodes and few are pods.
    """

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Any, key: str | int = "", parent: JsonNode | None = None) -> None:
        self.value = value
        self.key = key
        self.parent = parent

    @property
    def lineage(self) -> list[JsonNode]:
        """The nodes from below the root down to this one."""
        found: list[JsonNode] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def path(self) -> Path:
        """The keys and indices that lead here."""
        return tuple(node.key for node in self.lineage)

    @property
    def stable_path(self) -> str:
        """The path with names in place of indices: it stays when elements change places."""
        return ".".join(node.name for node in self.lineage)

    @property
    def name(self) -> str:
        """The key; for an element of a list, its own name or `*`."""
        if isinstance(self.key, str):
            return self.key
        own = as_object(self.value)
        return as_text(own.get("name")) or as_text(own.get("groupName")) or "*"

    def child(self, key: str | int) -> JsonNode:
        """The member or element at `key`, which must exist."""
        return JsonNode(self.value[key], key, self)

    def children(self) -> list[JsonNode]:
        """The members or elements that are themselves objects or lists."""
        pairs = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
        return [JsonNode(v, key, self) for key, v in pairs if isinstance(v, (dict, list))]


def matches_path(path: Path, pattern: Path) -> bool:
    """Whether `path` matches `pattern`, in which `*` stands for any one step."""
    pairs = zip(path, pattern, strict=False)
    return len(path) == len(pattern) and all(p in ("*", step) for step, p in pairs)
