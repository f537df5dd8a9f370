"""What an audit knows of a cluster besides the objects that it evaluates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cluster_commands.source.objects import Object, ObjectSource, Resource, SourceError
from cluster_commands.source.resources import NAMESPACES, NODES
from registration.configurations import MODE_LABEL
from rules.base.json_access import as_object, as_text
from rules.profile.profile import Profile


class Facts(NamedTuple):
    """Facts about a cluster; each is None if it is not known.

    - `gpu_nodes`: the nodes that have a resource of the profile.
    - `modes`: what the labels of namespaces say that their modes are.
    """

    gpu_nodes: frozenset[str] | None = None
    modes: Mapping[str, str] | None = None

    def lacks_namespace(self, name: str | None) -> bool:
        """Whether the namespaces are known, and this is none of them."""
        return bool(name) and self.modes is not None and name not in self.modes


def read_facts(
    source: ObjectSource, profile: Profile, on_error: Callable[[SourceError], object]
) -> Facts:
    """Read nodes and namespaces; what cannot be read is given to `on_error`."""

    def read(resource: Resource, fact: Callable[[Object], str]) -> dict[str, str] | None:
        try:
            return {_name(item): fact(item) for item in source.list(resource)} or None
        except SourceError as error:
            on_error(error)
            return None

    nodes = read(NODES, lambda node: _gpu_resource(node, profile))
    gpu_nodes = None if nodes is None else frozenset(name for name in nodes if nodes[name])
    return Facts(gpu_nodes, read(NAMESPACES, _mode))


def namespace_of(item: Object) -> str:
    """The namespace that an object names; empty if it names none."""
    return as_text(as_object(item.get("metadata")).get("namespace"))


def _gpu_resource(node: Object, profile: Profile) -> str:
    """A resource of the profile that the node has; empty if it has none."""
    capacity = as_object(as_object(node.get("status")).get("capacity"))
    found = (name for name, count in capacity.items() if count != "0" and profile.resource(name))
    return next(found, "")


def _mode(namespace: Object) -> str:
    labels = as_object(as_object(namespace.get("metadata")).get("labels"))
    return as_text(labels.get(MODE_LABEL))


def _name(item: Object) -> str:
    return as_text(as_object(item.get("metadata")).get("name"))
