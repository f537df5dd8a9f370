"""The facts about other objects, such as the manifests of the same run: a frozen value.

"Inventory" is Gatekeeper's word for the objects to which policies may refer.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from rules.base.caching import BoundedCache
from rules.base.json_values import as_object

A = TypeVar("A")
R = TypeVar("R")

Records: TypeAlias = Mapping[type, Mapping[str, Mapping[str, Any]]]
"""Records by kind (a class of `records`), namespace and name. Cluster-wide ones have no namespace.

A record is None if the object was given with different contents: it is not known which one counts.
"""
MAX_OBJECTS_IN_NAMESPACE = 50
"""Objects of a kind in a namespace, of which a rule reads all for every pod."""
_NO_RECORDS: Mapping[str, Any] = MappingProxyType({})


class Inventory:
    """Records of objects by kind, namespace and name. It is false if it has none.

    `unnamed` stands for the namespace of objects that name none, and whose namespace is therefore
    not known: the folder that they are in, for example.
    """

    __slots__ = ("_derived", "_records", "_unnamed")

    def __init__(self, records: Records = MappingProxyType({}), unnamed: str = "") -> None:
        self._records = records
        self._unnamed = unnamed
        self._derived: BoundedCache[tuple[Any, Any], Any] = BoundedCache()

    @property
    def records(self) -> Records:
        """Everything that is known."""
        return self._records

    def __bool__(self) -> bool:
        return bool(self._records)

    def __len__(self) -> int:
        return sum(len(names) for homes in self._records.values() for names in homes.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Inventory):
            return NotImplemented
        return (self._records, self._unnamed) == (other._records, other._unnamed)

    __hash__ = None  # type: ignore[assignment]  # its records cannot be hashed

    def for_unnamed_namespace(self, unnamed: str) -> "Inventory":
        """Return this inventory, with `unnamed` for the namespace that is not named."""
        seen = Inventory(self._records, unnamed)
        seen._derived = self._derived
        return seen

    def compute_once(self, derive: Callable[["Inventory", A], R], argument: A) -> R:
        """`derive(self, argument)`, computed once for all evaluations that share the records.

        `derive` reads objects of the cluster alone, so that all of them see the same.
        """
        key = derive, argument
        found: R
        try:
            found = self._derived[key]
        except KeyError:
            found = self._derived.store(key, derive(self, argument))
        return found

    def names_in_order(self, kind: type) -> tuple[str, ...]:
        """The names of all objects of a kind of the cluster, sorted once for all evaluations."""
        return self.compute_once(_sorted_names, kind)

    def find(self, kind: type[R], name: str, namespace: str | None = None) -> R | None:
        """The record of an object, such as `find(ConfigMap, "gpus", "team")`; None if unknown.

        An object of the cluster has the namespace None; an object that names none has an empty one.
        """
        found: R | None = self._records_in(kind, namespace).get(name)
        return found

    def all_in(self, kind: type[R], namespace: str | None) -> Mapping[str, R]:
        """The records of all objects of a kind in `namespace`, or of the cluster if None, by name.

        None at all if the inventory `lacks_some`.
        """
        return (
            _NO_RECORDS if self.lacks_some(kind, namespace) else self._records_in(kind, namespace)
        )

    def lacks_some(self, kind: type, namespace: str | None) -> bool:
        """Return whether an object's content is not known, or there are more than a rule reads.

        Tenants choose how many there are in a namespace, and not how many the cluster has.
        """
        found = self._records_in(kind, namespace)
        too_many = namespace is not None and len(found) > MAX_OBJECTS_IN_NAMESPACE
        return too_many or None in found.values()

    def _records_in(self, kind: type, namespace: str | None) -> Mapping[str, Any]:
        home = "" if namespace is None else namespace or self._unnamed
        found: Mapping[str, Any] = self._records.get(kind, _NO_RECORDS).get(home, _NO_RECORDS)
        return found


EMPTY_INVENTORY = Inventory()


def _sorted_names(inventory: Inventory, kind: type) -> tuple[str, ...]:
    return tuple(sorted(inventory.all_in(kind, None)))


# One class for each kind of object in an inventory, named as the kind. Nodes are known by groups,
# and those with GPUs also by their names.


class ClusterQueue(NamedTuple):
    """Kueue's ClusterQueue: the resources of which it has quotas.

    `flavors` has for each of them the names of the ResourceFlavors of which workloads can get it,
    and `most` how much of it the pods of a workload can get that are alike, if that is limited.
    With `has_checks`, others decide too whether it admits a workload, and may make nodes for it.
    `empty_flavors` are those beside `flavors` of which workloads can get nothing of a resource.
    """

    resources: frozenset[str]
    flavors: Mapping[str, tuple[str, ...]] = _NO_RECORDS
    most: Mapping[str, int] = _NO_RECORDS
    has_checks: bool = False
    empty_flavors: Mapping[str, tuple[str, ...]] = _NO_RECORDS


class ConfigMap(NamedTuple):
    """The keys that container runtimes read as variables, with their values.

    `mig_configs` are the names in it by which NVIDIA's MIG manager divides the cards of a node.
    """

    variables: Mapping[str, str]
    mig_configs: frozenset[str] = frozenset()


class DeviceClass(NamedTuple):
    """The parts of a class that show which devices it has, whatever its name.

    `extended_resource` is the name by which pods can ask for the class without a claim; it may be
    empty. `vendor_classes` are the classes of vendors that have the same devices, by the selectors.
    """

    extended_resource: str
    vendor_classes: frozenset[str] = frozenset()


class GpuPatch(NamedTuple):
    """A patch of a kustomization by which containers ask for `resource`.

    Its name in the inventory is the kind and the name of the object that it changes:
    `Deployment/films`.
    """

    resource: str


class KaiQueue(NamedTuple):
    """KAI's Queue: the one above it, which may be empty, and the most GPUs that it may have.

    `gpu_limit` is in units of 1e-9; None if there is no limit, or if it is not known.
    """

    parent: str
    gpu_limit: int | None


class LimitRange(NamedTuple):
    """The limits of the type Container: their `max`, and what containers get by default.

    `limits` and `requests` are the resources of which a container gets a default.
    """

    max: Mapping[str, Any]
    limits: frozenset[str]
    requests: frozenset[str]


class LocalQueue(NamedTuple):
    """Kueue's LocalQueue: the name of the ClusterQueue whose quotas its workloads use."""

    cluster_queue: str


ADMIN_ACCESS_LABELS = ("resource.kubernetes.io/admin-access", "resource.k8s.io/admin-access")
"""Labels that allow admin access to devices: of Kubernetes 1.34 and newer, and of 1.33."""


class MigConfiguration(NamedTuple):
    """The names by which NVIDIA's MIG manager divides cards, in the values of charts."""

    names: frozenset[str]


class Namespace(NamedTuple):
    """The labels of a namespace."""

    labels: Mapping[str, Any]


HOSTNAME_LABEL = "kubernetes.io/hostname"
"""Kubernetes sets it to the name of the machine, which is not everywhere that of the Node."""


class GpuNodes(NamedTuple):
    """The names of the nodes that have GPUs, and the values of their HOSTNAME_LABEL.

    Its name in the inventory is the resource, or the label, that shows it.
    """

    names: frozenset[str]


class NodeGroup(NamedTuple):
    """Nodes with the same values of the labels that rules compare.

    `resources` are the GPU resources that they offer, each with the amount of the node that has
    most of it. Some of them, such as memory, are the sum of a node's cards: `per_card` has the
    amount of a single card. It is empty unless every node says how many cards it has, and all cards
    have the same amount.
    """

    labels: Mapping[str, str]
    resources: Mapping[str, int]
    per_card: Mapping[str, int] = _NO_RECORDS


class NodeSurvey(NamedTuple):
    """That every node which was seen is in a NodeGroup.

    `labels` and `resources` are the patterns of what is kept there. `has_all` says that the cluster
    has no other nodes, and will get none that differ.
    """

    labels: frozenset[str]
    resources: frozenset[str]
    has_all: bool = True


SURVEY_NAME = "nodes"
"""The name of the one NodeSurvey of an inventory."""


class NVIDIADriver(NamedTuple):
    """The labels of the nodes for which it is the driver.

    `is_default` says that it is only for nodes that no other one selects.
    """

    node_selector: Mapping[str, Any]
    is_default: bool = False


class Queue(NamedTuple):
    """Volcano's Queue: the most that its jobs together may have of each resource."""

    capability: Mapping[str, Any]


class ResourceClaim(NamedTuple):
    """The device classes of its requests, and their names.

    `is_shared` says that the parameters for the driver share the devices. `kai_queue` is the queue
    of KAI that its label names.
    """

    classes: frozenset[str]
    requests: frozenset[str]
    is_shared: bool
    kai_queue: str = ""


class ResourceClaimTemplate(NamedTuple):
    """The devices of the claims that are made from a template."""

    classes: frozenset[str]
    requests: frozenset[str]
    is_shared: bool


class QuotaScope(NamedTuple):
    """A condition on the pods that a quota counts, such as `PriorityClass` `In` `values`."""

    name: str
    operator: str
    values: frozenset[str]


class ResourceQuota(NamedTuple):
    """The hard limits, and the scopes: a quota counts only pods that meet all of them."""

    hard: Mapping[str, Any]
    scopes: tuple[QuotaScope, ...]


class FlavorTaint(NamedTuple):
    """A taint of the nodes for which a ResourceFlavor stands."""

    key: str
    value: str
    effect: str


class ResourceFlavor(NamedTuple):
    """Kueue's ResourceFlavor: its taints, and the tolerations that it gives to its workloads.

    `topology` is the name of its Topology; it may be empty. `labels` are those of its nodes.
    """

    taints: tuple[FlavorTaint, ...]
    tolerations: tuple[Mapping[str, Any], ...]
    topology: str = ""
    labels: Mapping[str, str] = _NO_RECORDS


class FlavorNodes(NamedTuple):
    """The taints that all GPU nodes of a ResourceFlavor have, if there are any such nodes.

    Its name in the inventory is that of the flavor. It is known of flavors with a Topology.
    """

    taints: tuple[FlavorTaint, ...]


class Topology(NamedTuple):
    """Kueue's Topology: the labels of nodes that are its levels, from the widest to the nodes."""

    levels: tuple[str, ...]


class RuntimeClass(NamedTuple):
    """The name by which the container runtime on the node knows the class."""

    handler: str


class Secret(NamedTuple):
    """The keys that container runtimes read as variables, with their values.

    Only manifests of files are read. No part of gpuward may read the Secrets of a cluster.
    """

    variables: Mapping[str, str]


class TrainingRuntime(NamedTuple):
    """Kubeflow Trainer's TrainingRuntime: its `mlPolicy`, and the few Jobs of its template."""

    policy: Mapping[str, Any]
    jobs: tuple[Mapping[str, Any], ...]


class ClusterTrainingRuntime(TrainingRuntime):
    """A TrainingRuntime for the TrainJobs of all namespaces."""

    __slots__ = ()


class SharePool(NamedTuple):
    """An object whose pods ask for computing power of shared cards, in a pool of nodes.

    Its name in the inventory is the labels of the nodes.
    """

    object: str


_OBJECT_TYPES: tuple[type, ...] = (
    *(ClusterQueue, ConfigMap, DeviceClass, LimitRange, LocalQueue, Namespace, NVIDIADriver, Queue),
    *(ResourceClaim, ResourceClaimTemplate, ResourceFlavor, ResourceQuota, RuntimeClass, Secret),
    *(Topology, TrainingRuntime, ClusterTrainingRuntime),
)
RECORD_TYPES = (
    *(*_OBJECT_TYPES, FlavorNodes, GpuNodes, GpuPatch, KaiQueue, MigConfiguration),
    *(NodeGroup, NodeSurvey, SharePool),
)
KINDS = (*(kind.__name__ for kind in _OBJECT_TYPES), "Node")
"""The kinds of objects of which an inventory knows something."""


FORMAT_VERSION = 1
"""The version of the format. Who knows another one cannot read it."""


def to_json(inventory: Inventory) -> dict[str, Any]:
    """The inventory as an object of JSON; equal inventories give equal objects."""
    return {
        kind.__name__: {
            home: {name: _encode(record) for name, record in sorted(by_name.items())}
            for home, by_name in sorted(by_home.items())
        }
        for kind, by_home in sorted(inventory.records.items(), key=lambda pair: pair[0].__name__)
    }


def from_json(raw: Any) -> "Inventory":
    """The inventory that `raw` is. Raises ValueError, which says what has the wrong type."""
    known = {kind.__name__: kind for kind in RECORD_TYPES}
    records: dict[type, dict[str, dict[str, Any]]] = {}
    for kind, homes in _items_of_object(raw, "the inventory"):
        if kind not in known:
            raise ValueError(f"it has records of an unknown kind, {kind[:80]!r}")
        by_home = records.setdefault(known[kind], {})
        for home, names in _items_of_object(homes, kind):
            place = by_home.setdefault(home, {})
            for name, record in _items_of_object(names, kind):
                found = None if record is None else _decode(record, known[kind], f"{kind} {name}")
                place[name] = found
    return Inventory(records)


def _items_of_object(raw: Any, what: str) -> Any:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{what[:80]} is no object")  # noqa: TRY004  # of JSON
    return as_object(raw).items()


def _encode(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _encode(each) for key, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {key: _encode(each) for key, each in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        items = [_encode(each) for each in value]
        return sorted(items) if isinstance(value, frozenset | set) else items
    return value


def _decode(raw: Any, hint: Any, what: str) -> Any:  # noqa: PLR0911  # one for each type
    """The value of the type `hint` that `raw` is in JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return raw
    if hint is NoneType and raw is None:
        return None
    if origin is UnionType:
        return None if raw is None else _decode(raw, parts[0], what)
    if hasattr(hint, "_fields") and isinstance(raw, dict):
        hints = get_type_hints(hint)
        keys = (key for key in hint._fields if key in raw or key not in hint._field_defaults)
        given = {key: _decode(raw.get(key), hints[key], what) for key in keys}
        return hint(**given)
    if origin is not None and issubclass(origin, Mapping) and isinstance(raw, dict):
        return {key: _decode(each, parts[1], what) for key, each in raw.items()}
    if origin in {tuple, frozenset} and isinstance(raw, list):
        return origin(_decode(each, parts[0], what) for each in raw)
    if isinstance(hint, type) and type(raw) is hint:
        return raw
    raise ValueError(f"a value of {what[:80]} has the wrong type")
