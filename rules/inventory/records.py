"""What an inventory knows of an object of each kind. The classes have the names of the kinds.

Nodes are known by groups.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ClusterQueue(NamedTuple):
    """Kueue's ClusterQueue: the resources of which it has quotas."""

    resources: frozenset[str]


class ConfigMap(NamedTuple):
    """The keys that container runtimes read as variables, with their values."""

    variables: Mapping[str, str]


class DeviceClass(NamedTuple):
    """The extended resource by which pods can ask for the class without a claim; may be empty."""

    extended_resource: str


class LimitRange(NamedTuple):
    """What the limits of the type Container say: their `max`, and what containers get unasked.

    `limits` and `requests` are the resources of which a container gets a default.
    """

    max: Mapping[str, Any]
    limits: frozenset[str]
    requests: frozenset[str]


class LocalQueue(NamedTuple):
    """Kueue's LocalQueue: the name of the ClusterQueue whose quotas its workloads use."""

    cluster_queue: str


ADMIN_ACCESS = ("resource.kubernetes.io/admin-access", "resource.k8s.io/admin-access")
"""Labels that allow admin access to devices: of Kubernetes 1.34 and newer, and of 1.33."""


class Namespace(NamedTuple):
    """The labels of ADMIN_ACCESS that it has."""

    labels: Mapping[str, Any]


class NodeGroup(NamedTuple):
    """Nodes with the same values of the labels that rules compare.

    `resources` are the GPU resources that they offer, each with the amount of the node that has
    most of it.
    """

    labels: Mapping[str, str]
    resources: Mapping[str, int]


class NodeSurvey(NamedTuple):
    """That every node is in a NodeGroup, and the patterns of the labels and resources kept there.

    Without it, there may be nodes that nobody knows of.
    """

    labels: frozenset[str]
    resources: frozenset[str]


SURVEY = "nodes"
"""The name of the one NodeSurvey of an inventory."""


class ResourceClaim(NamedTuple):
    """The device classes of its requests."""

    classes: frozenset[str]


class ResourceClaimTemplate(NamedTuple):
    """The device classes of the requests of its claims."""

    classes: frozenset[str]


class ResourceQuota(NamedTuple):
    """The hard limits. With scopes they count only some of the pods of the namespace."""

    hard: Mapping[str, Any]
    has_scopes: bool


class RuntimeClass(NamedTuple):
    """The name by which the container runtime on the node knows the class."""

    handler: str


class SharePool(NamedTuple):
    """An object whose pods ask for computing power of shared cards, in a pool of nodes.

    Its name in the inventory is the labels of the nodes.
    """

    object: str


_OBJECTS: tuple[type, ...] = (
    *(ClusterQueue, ConfigMap, DeviceClass, LimitRange, LocalQueue, Namespace, ResourceClaim),
    *(ResourceClaimTemplate, ResourceQuota, RuntimeClass),
)
RECORDS = (*_OBJECTS, NodeGroup, NodeSurvey, SharePool)
KINDS = (*(kind.__name__ for kind in _OBJECTS), "Node")
"""The kinds of objects of which an inventory knows something."""
