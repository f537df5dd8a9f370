"""The features of a kubelet that a pod needs, and that nodes declare.

Source: Kubernetes, `pkg/scheduler/framework/plugins/nodedeclaredfeatures` and
`staging/src/k8s.io/component-helpers/nodedeclaredfeatures/features` of 1.37.2. An API server drops
or refuses the fields that need them where it does not have them on, and so where kube-scheduler
does not ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cluster.why.filters import Obstacle
from cluster.why.nodes import Node
from rules.base.json_values import as_objects

_MESSAGE = "node(s) didn't match Pod's required features"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


class NeededFeatures:
    """The features that a pod with `spec` needs, and which of them nodes declare.

    Where no node declares any feature, a pod that does not exist yet may lose the field.
    """

    def __init__(self, spec: Mapping[str, Any], nodes: Iterable[Node], *, exists: bool) -> None:
        self._fields = needed_features(spec)
        self._is_known = exists or any(node.declared_features for node in nodes)

    @property
    def unknown(self) -> Iterator[str]:
        """Yield the fields of which it is not known whether the cluster has their feature."""
        for feature, field in self._fields.items() if not self._is_known else ():
            yield f"whether the cluster has the feature {feature}, which {field} needs"

    def obstacles(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Return the features that `node` does not declare, if it lacks one."""
        missing = self._fields.keys() - node.declared_features
        if missing and self._is_known:
            yield tuple(self._obstacle(feature) for feature in sorted(missing))

    def _obstacle(self, feature: str) -> Obstacle:
        field = self._fields[feature]
        return Obstacle(
            "NodeDeclaredFeatures",
            _MESSAGE,
            feature,
            words=(f"the kubelet does not declare the feature {feature}, which {field} needs",),
            remedy=f"use a kubelet that has the feature {feature}, or leave {field} out",
        )


def needed_features(spec: Mapping[str, Any]) -> dict[str, str]:
    """The features that a pod with `spec` needs, each with the field that needs it."""
    return dict(_needed(spec))


def _needed(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    containers = [one for field in _CONTAINERS for _, one in as_objects(spec.get(field))]
    if any(map(_restarts_all_containers, containers)):
        yield "RestartAllContainersOnContainerExits", "the action RestartAllContainers"
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        yield "UserNamespacesHostNetworkSupport", "hostUsers: false beside hostNetwork"
    mounts = (mount for one in containers for _, mount in as_objects(one.get("volumeMounts")))
    if any(mount.get("bindMountOptions") for mount in mounts):
        yield "VolumeBindMountOptions", "bindMountOptions"


def _restarts_all_containers(container: Mapping[str, Any]) -> bool:
    rules = as_objects(container.get("restartPolicyRules"))
    return any(rule.get("action") == "RestartAllContainers" for _, rule in rules)
