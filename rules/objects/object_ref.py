"""References to Kubernetes objects."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.caching import cached_by_text
from rules.base.json_values import as_text

BUILT_IN_GROUPS = frozenset({"", "apps", "batch", "extensions"})
_NAMESPACE_PATTERN = r"(?s)(?!.{64})[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"


class ObjectRef(NamedTuple):
    """Kind, group, namespace and name of an object, each empty if unknown."""

    kind: str
    group: str
    namespace: str
    name: str

    def __str__(self) -> str:
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.kind} {name}" if name else self.kind


def group_of(raw: Mapping[str, Any]) -> str:
    """The API group that the `apiVersion` of an object names; empty for the core group."""
    return as_text(raw.get("apiVersion")).rpartition("/")[0]


def object_ref(
    kind: str, group: str, metadata: Mapping[str, Any], namespace: str | None
) -> ObjectRef:
    """The reference to an object with `metadata`.

    `namespace` is where the object goes if it names no namespace itself, or one that cannot exist,
    which is the placeholder of a template. Before the API server has named an object, its
    `generateName` serves as its name.
    """
    home = as_text(metadata.get("namespace"))
    if home != namespace and not _can_be_namespace(home):
        home = namespace or ""
    name = as_text(metadata.get("name")) or as_text(metadata.get("generateName"))
    return ObjectRef(kind, group, home, name)


@cached_by_text
def _can_be_namespace(name: str) -> bool:
    return re.fullmatch(_NAMESPACE_PATTERN, name) is not None
