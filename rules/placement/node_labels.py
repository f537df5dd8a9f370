"""The labels that an object gives to nodes: its own, if it is a Node, or those of new nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_patch import Path
from rules.objects.kubernetes_object import KubernetesObject
from rules.workloads.object_kinds import OBJECT_KINDS

_ARGUMENT = "node-labels"


class NodeLabel(NamedTuple):
    """A label of a node. Labels with the same `group`, the path of their map, are of one node."""

    path: Path
    group: Path
    name: str
    value: str


def node_labels(subject: KubernetesObject) -> Iterator[NodeLabel]:
    """Every label that `subject` gives to nodes, in the order of the manifest."""
    kind = OBJECT_KINDS[subject.object.group, subject.object.kind]
    for pattern in kind.node_labels:
        for place, labels in _values_at(subject.raw, pattern):
            path = (*subject.path, *place)
            for name, value in as_object(labels).items():
                yield NodeLabel((*path, name), path, name, as_text(value))
    for pattern in kind.kubelet_arguments:
        for place, arguments in _values_at(subject.raw, pattern):
            yield from _from_arguments(arguments, (*subject.path, *place))


def labels_by_node(subject: KubernetesObject) -> list[dict[str, NodeLabel]]:
    """The same labels by name, one mapping for each node or group of nodes."""
    groups: dict[Path, dict[str, NodeLabel]] = {}
    for label in node_labels(subject):
        groups.setdefault(label.group, {})[label.name] = label
    return list(groups.values())


def _values_at(raw: Mapping[str, Any], pattern: Path) -> Iterator[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = [((), raw)]
    for step in pattern:
        if step == "*":
            found = [((*path, i), item) for path, value in found for i, item in as_objects(value)]
        else:
            found = [((*path, step), as_object(value).get(str(step))) for path, value in found]
    yield from found


def _from_arguments(arguments: Any, path: Path) -> Iterator[NodeLabel]:
    """The labels in the argument `node-labels`, which are written `name=value,name=value`."""
    if isinstance(arguments, list):
        named = [
            ((*path, index, "value"), argument.get("value"))
            for index, argument in as_objects(arguments)
            if argument.get("name") == _ARGUMENT
        ]
    else:
        named = [((*path, _ARGUMENT), as_object(arguments).get(_ARGUMENT))]
    for place, text in named:
        for part in as_text(text).split(","):
            name, equals, value = part.strip().partition("=")
            if equals:
                yield NodeLabel(place, place, name, value)
