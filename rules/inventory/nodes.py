"""Collect what rules compare with nodes: groups of nodes that look alike to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rules.base.json_access import as_object, as_text
from rules.base.quantity import Quantity, parse
from rules.base.words import matches_any
from rules.inventory.records import SURVEY, NodeGroup, NodeSurvey

MOST_GROUPS = 200
MOST_CHARACTERS = 200_000
"""Of the labels of all groups: a file of an inventory holds a megabyte, and has each twice."""
MOST_RESOURCES = 200
"""Of the nodes of one group."""


class NodeCollector:
    """Groups nodes by the labels and GPU resources whose names match the patterns.

    A cluster has thousands of nodes of few kinds, so their number does not matter. `is_full` says
    that there are more groups, or more resources in one of them, than an inventory holds.
    """

    def __init__(self, labels: Iterable[str] = (), resources: Iterable[str] = ()) -> None:
        self._labels, self._resources = tuple(labels), tuple(resources)
        self._groups: dict[str, tuple[dict[str, str], dict[str, int]]] = {}
        self._characters = 0
        self.is_full = False
        self.has_all = False
        """Whether every node of the cluster has been added. Who knows that sets it."""

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a Node."""
        every = as_object(as_object(node.get("metadata")).get("labels"))
        labels = {k: as_text(v) for k, v in sorted(every.items()) if matches_any(self._labels, k)}
        name = ",".join(f"{key}={value}" for key, value in labels.items())
        if name not in self._groups:
            self._characters += len(name)
            if len(self._groups) >= MOST_GROUPS or self._characters > MOST_CHARACTERS:
                self.is_full = True
                return
            self._groups[name] = labels, {}
        _, resources = self._groups[name]
        for resource, amount in self._offered(as_object(node.get("status"))):
            if resource in resources or len(resources) < MOST_RESOURCES:
                resources[resource] = max(amount, resources.get(resource, 0))
            else:
                self.is_full = True

    def _offered(self, status: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
        """The GPU resources of a node. Its capacity stays when its device plugin restarts."""
        for field in ("capacity", "allocatable"):
            for name, value in as_object(status.get(field)).items():
                amount = parse(value) if matches_any(self._resources, name) else None
                if isinstance(amount, Quantity) and amount.value > 0:
                    yield name, amount.value

    def records(self) -> dict[type, dict[str, dict[str, Any]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        found: dict[type, dict[str, dict[str, Any]]] = {}
        if self._groups:
            groups = {
                name: NodeGroup(labels, dict(sorted(resources.items())))
                for name, (labels, resources) in self._groups.items()
            }
            found[NodeGroup] = {"": groups}
        if self.has_all and not self.is_full:
            survey = NodeSurvey(frozenset(self._labels), frozenset(self._resources))
            found[NodeSurvey] = {"": {SURVEY: survey}}
        return found
