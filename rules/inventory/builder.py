"""Make an inventory of manifests."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.quantity import Quantity, parse
from rules.base.text_matching import matches_any
from rules.inventory.inventory import (
    ADMIN_ACCESS_LABELS,
    KAI_QUEUE_LABEL,
    SURVEY_NAME,
    ClusterQueue,
    ConfigMap,
    DeviceClass,
    GpuNodes,
    Inventory,
    LimitRange,
    LocalQueue,
    MigConfiguration,
    Namespace,
    NodeGroup,
    NodeSurvey,
    QuotaScope,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    RuntimeClass,
    Secret,
    SharePool,
)

MAX_NODE_GROUPS = 200
MAX_LABEL_CHARACTERS = 200_000
"""Of the labels of all groups: a file of an inventory holds a megabyte, and has each twice."""
MAX_RESOURCES_PER_GROUP = 200
"""Of the nodes of one group."""
MAX_CHARACTERS_OF_NAMES = 300_000
"""Of the names of all GPU nodes: those of some 6,000 nodes of a cloud."""


class _CollectedGroup(NamedTuple):
    """What is collected of nodes with the same labels: see NodeGroup."""

    labels: dict[str, str]
    resources: dict[str, int]
    per_card: dict[str, int]


class NodeCollector:
    """Groups nodes by the labels and GPU resources whose names match the patterns.

    A cluster has thousands of nodes of few kinds, so their number does not matter. `is_full` says
    that there are more groups, or more resources in one of them, than an inventory holds.
    `card_counts` has for a resource that is the sum of a node's cards the one that counts these.
    `is_gpu_label` says of the key and the value of a label whether only GPU nodes have it.
    """

    def __init__(
        self,
        labels: Iterable[str] = (),
        resources: Iterable[str] = (),
        card_counts: Mapping[str, str] = MappingProxyType({}),
        is_gpu_label: Callable[[str, str], bool] = lambda _key, _value: False,
    ) -> None:
        self._labels, self._resources = tuple(labels), tuple(resources)
        self._card_counts = card_counts
        self._groups: dict[str, _CollectedGroup] = {}
        self._characters = 0
        self._is_gpu_label = is_gpu_label
        self._gpu_nodes: dict[str, set[str]] = {}
        self._characters_of_names = 0
        self.is_full = False
        self.lacks_names = False
        """Whether there are more GPU nodes than MAX_CHARACTERS_OF_NAMES allows for."""
        self.has_all = False
        """Whether every node of the cluster has been added. Who knows that sets it."""

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a Node."""
        every = as_object(as_object(node.get("metadata")).get("labels"))
        labels = {k: as_text(v) for k, v in sorted(every.items()) if matches_any(self._labels, k)}
        self._add_name(node, labels)
        name = ",".join(f"{key}={value}" for key, value in labels.items())
        if name not in self._groups:
            self._characters += len(name)
            if len(self._groups) >= MAX_NODE_GROUPS or self._characters > MAX_LABEL_CHARACTERS:
                self.is_full = True
                return
            self._groups[name] = _CollectedGroup(labels, {}, {})
        _, resources, per_card = self._groups[name]
        status = as_object(node.get("status"))
        for resource, count in self._card_counts.items():
            if total := _amount(status, resource):
                each = _amount_per_card(total, _amount(status, count))
                before = per_card.get(resource, each)
                per_card[resource] = max(each, before) if each and before else 0
        for resource, amount in self._offered(status):
            if resource in resources or len(resources) < MAX_RESOURCES_PER_GROUP:
                resources[resource] = max(amount, resources.get(resource, 0))
            else:
                self.is_full = True

    def _add_name(self, node: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        """Keep the names of a node that offers a GPU resource or has a label of GPU nodes."""
        offered = (resource for resource, _ in self._offered(as_object(node.get("status"))))
        shown_by = next(offered, "") or next(
            (key for key, value in labels.items() if self._is_gpu_label(key, value)), ""
        )
        if not shown_by:
            return
        metadata = as_object(node.get("metadata"))
        host = as_object(metadata.get("labels")).get("kubernetes.io/hostname")
        names = {as_text(metadata.get("name")), as_text(host)} - {""}
        size = sum(map(len, names))
        if self._characters_of_names + size > MAX_CHARACTERS_OF_NAMES:
            self.lacks_names = True
            return
        self._characters_of_names += size
        self._gpu_nodes.setdefault(shown_by, set()).update(names)

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
                name: NodeGroup(
                    group.labels,
                    dict(sorted(group.resources.items())),
                    {resource: amount for resource, amount in group.per_card.items() if amount},
                )
                for name, group in self._groups.items()
            }
            found[NodeGroup] = {"": groups}
        if (self._groups or self.has_all) and not self.is_full:
            kept = frozenset(self._labels), frozenset(self._resources)
            found[NodeSurvey] = {"": {SURVEY_NAME: NodeSurvey(*kept, self.has_all)}}
        if self._gpu_nodes:
            signs = self._gpu_nodes.items()
            found[GpuNodes] = {"": {sign: GpuNodes(frozenset(names)) for sign, names in signs}}
        return found


def _amount(status: Mapping[str, Any], resource: str) -> int:
    """How much of `resource` the node with this status has; 0 if it does not say so."""
    found = [as_object(status.get(field)).get(resource) for field in ("capacity", "allocatable")]
    return max([0, *(a.value for a in map(parse, found) if isinstance(a, Quantity))])


def _amount_per_card(total: int, cards: int) -> int:
    """What each card has of `total`; 0 if nobody knows, because the cards may differ."""
    return total // cards if cards and total % cards == 0 else 0


MAX_SHARING_OBJECTS = 1_000
"""Objects of all pools together. What comes later is not known."""


class ShareCollector:
    """Collects objects whose pods share cards, by the pool of nodes that the pods require.

    An object that is there in two forms, as in a repository with several environments, does not
    count: nobody knows which one runs beside the others.
    """

    def __init__(self) -> None:
        self._with_power: dict[str, set[str]] = {}
        self._without: dict[str, set[str]] = {}
        self._count = 0

    def add(self, pool: str, owner: str, *, has_power: bool) -> None:
        """Add an object, by its kind and name, whose pods require the nodes of `pool`."""
        self._count += 1
        if self._count <= MAX_SHARING_OBJECTS:
            by_pool = self._with_power if has_power else self._without
            by_pool.setdefault(pool, set()).add(owner)

    def records(self) -> dict[type, dict[str, dict[str, SharePool]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        certain = {
            pool: SharePool(min(owners - self._without.get(pool, set())))
            for pool, owners in self._with_power.items()
            if owners - self._without.get(pool, set())
        }
        return {SharePool: {"": certain}} if certain else {}


MAX_VARIABLES = 20
"""Of a ConfigMap, whose tenant may choose any number of names for some patterns."""


class VariableNames:
    """The variables that container runtimes read, as names and patterns of names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._exact = frozenset(name for name in self._patterns if "*" not in name)
        self.beginnings = frozenset(name.partition("*")[0] for name in self._patterns)
        """How each of the variables begins."""

    def read_among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are read, at most MAX_VARIABLES: first what no pattern stands for.

        What a pattern stands for is read by few nodes only, and a tenant may choose its name.
        """
        found = [name for name in names if matches_any(self._patterns, name)]
        return sorted(found, key=lambda name: name not in self._exact)[:MAX_VARIABLES]


MAX_OBJECTS = 100_000
MAX_CHARACTERS_IN_NAMESPACE = 2_000_000
"""Characters of the records of a namespace, whose tenants choose their number and size.

Objects of the cluster have no such bound: there is a Namespace for each of many tenants.
"""
_MAX_LISTED = 5  # namespaces in a message
_CHARACTERS_PER_OBJECT = 100  # characters that count for any object, however little is kept of it
MIG_CONFIGS = "mig-configs"
"""The key in the files for NVIDIA's MIG manager that has the ways to divide the cards of a node."""
MAX_MIG_CONFIGS = 200
_MIG_CONFIG = re.compile(r"""(["']?)([A-Za-z0-9][\w.+-]{0,62})\1:(?:\s|$)""")
MAX_VALUE_CHARACTERS = 100  # characters of the value of a ConfigMap, whose tenant may choose any
MAX_ENCODED_CHARACTERS = 400  # of the value of a Secret: MAX_VALUE_CHARACTERS and more, in base64
_DRA_GROUP = "resource.k8s.io"
# The API server allows 32 selectors of 10 KiB each.
MAX_SELECTORS = 32
MAX_EXPRESSION_CHARACTERS = 10 << 10
# The domain of an attribute is the driver, too.
_DRIVER_PATTERN = re.compile(
    r"\bdevice\.(?:driver\s{0,9}==\s{0,9}|attributes\[)['\"]([a-z0-9.-]{1,63})['\"]"
)
_MIG_PATTERN = re.compile(r"\.type\s{0,9}==\s{0,9}['\"]mig['\"]")
_NVIDIA_CLASS, _MIG_CLASS = "gpu.nvidia.com", "mig.nvidia.com"
_KUEUE_GROUP = "kueue.x-k8s.io"


class _RecordReader(NamedTuple):
    """How a kind is read: the record of a manifest."""

    kind: type
    read: Callable[[Mapping[str, Any], VariableNames], Any]
    is_namespaced: bool = True


def _config_map(raw: Mapping[str, Any], variables: VariableNames) -> ConfigMap:
    data = as_object(raw.get("data"))
    found = {name: _cut_value(as_text(data[name])) for name in variables.read_among(data)}
    names = (name for value in data.values() for name in _mig_configs(as_text(value)))
    return ConfigMap(found, frozenset(islice(names, MAX_MIG_CONFIGS)))


def _secret(raw: Mapping[str, Any], variables: VariableNames) -> Secret:
    data, texts = as_object(raw.get("data")), as_object(raw.get("stringData"))
    found = {name: _decoded(as_text(data[name])) for name in variables.read_among(data)}
    # The API server lays these over `data`.
    found |= {name: _cut_value(as_text(texts[name])) for name in variables.read_among(texts)}
    return Secret(found)


def _decoded(encoded: str) -> str:
    """The start of a text in base64; empty if it is none, which the API server refuses."""
    try:
        content = base64.b64decode(encoded[:MAX_ENCODED_CHARACTERS], validate=True)
    except ValueError:
        return ""
    return _cut_value(content.decode(errors="replace"))


def _mig_configs(text: str) -> Iterator[str]:
    """The names in a file for NVIDIA's MIG manager: the first keys below `mig-configs`."""
    _, head, below = f"\n{text}".partition(f"\n{MIG_CONFIGS}:\n")
    indent = 0
    for line in below.split("\n") if head else ():
        content = line.lstrip(" ")
        depth = len(line) - len(content)
        if not content or content.startswith("#"):
            continue
        if not depth:
            break
        indent = indent or depth
        found = _MIG_CONFIG.match(content) if depth == indent else None
        if found:
            yield found[2]


def _cut_value(value: str) -> str:
    """`value` cut to MAX_VALUE_CHARACTERS; the mark keeps its last word from becoming another."""
    return value if len(value) <= MAX_VALUE_CHARACTERS else f"{value[:MAX_VALUE_CHARACTERS]}…"


def _limit_range(raw: Mapping[str, Any], _variables: VariableNames) -> LimitRange:
    """The defaults are those that the API server fills in: `SetDefaults_LimitRangeItem`."""
    most: dict[str, Any] = {}
    limits: set[str] = set()
    requests: set[str] = set()
    for _, item in as_objects(as_object(raw.get("spec")).get("limits")):
        if item.get("type") == "Container":
            # Of several, the pod must obey all: a rule that reads only one says less.
            most |= as_object(item.get("max"))
            limits |= {*as_object(item.get("default")), *as_object(item.get("max"))}
            requests |= {*as_object(item.get("defaultRequest")), *as_object(item.get("min"))}
    return LimitRange(most, frozenset(limits), frozenset(requests | limits))


def _resource_quota(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceQuota:
    spec = as_object(raw.get("spec"))
    return ResourceQuota(as_object(spec.get("hard")), tuple(_quota_scopes(spec)))


def _quota_scopes(spec: Mapping[str, Any]) -> Iterator[QuotaScope]:
    """The scopes of both fields, as the API server joins them."""
    listed = spec.get("scopes")
    for name in listed if isinstance(listed, list) else ():
        yield QuotaScope(as_text(name), "Exists", frozenset())
    for _, each in as_objects(as_object(spec.get("scopeSelector")).get("matchExpressions")):
        values = each.get("values")
        texts = map(as_text, values if isinstance(values, list) else ())
        yield QuotaScope(
            as_text(each.get("scopeName")), as_text(each.get("operator")), frozenset(texts)
        )


def _device_class(raw: Mapping[str, Any], _variables: VariableNames) -> DeviceClass:
    spec = as_object(raw.get("spec"))
    cel = (as_object(each.get("cel")) for _, each in as_objects(spec.get("selectors")))
    texts = (
        as_text(each.get("expression"))[:MAX_EXPRESSION_CHARACTERS]
        for each in islice(cel, MAX_SELECTORS)
    )
    found = frozenset(
        name for text in texts for name in islice(_vendor_classes(text), MAX_SELECTORS)
    )
    return DeviceClass(as_text(spec.get("extendedResourceName")), found)


def _vendor_classes(expression: str) -> Iterator[str]:
    """The classes of vendors whose devices `expression` selects.

    The class of whole cards has the name of the driver.
    """
    for match in _DRIVER_PATTERN.finditer(expression):
        is_mig = match[1] == _NVIDIA_CLASS and _MIG_PATTERN.search(expression)
        yield _MIG_CLASS if is_mig else match[1]


def _namespace(raw: Mapping[str, Any], _variables: VariableNames) -> Namespace:
    labels = as_object(as_object(raw.get("metadata")).get("labels"))
    return Namespace({key: labels[key] for key in ADMIN_ACCESS_LABELS if key in labels})


def _claim(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaim:
    """Whoever made it: a pod may also name a claim that was made for another pod."""
    labels = as_object(as_object(raw.get("metadata")).get("labels"))
    return ResourceClaim(
        *_classes_names_and_sharing(as_object(raw.get("spec"))),
        kai_queue=as_text(labels.get(KAI_QUEUE_LABEL)),
    )


def _claim_template(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(
        *_classes_names_and_sharing(as_object(as_object(raw.get("spec")).get("spec")))
    )


def _classes_names_and_sharing(
    spec: Mapping[str, Any],
) -> tuple[frozenset[str], frozenset[str], bool]:
    """The classes and the names of the requests of a claim, and whether it shares devices."""
    devices = as_object(spec.get("devices"))
    requests = [request for _, request in as_objects(devices.get("requests"))]
    names = frozenset(filter(None, (as_text(request.get("name")) for request in requests)))
    opaque = (as_object(config.get("opaque")) for _, config in as_objects(devices.get("config")))
    is_shared = any(as_object(each.get("parameters")).get("sharing") for each in opaque)
    return _classes_of_requests(requests), names, is_shared


def _classes_of_requests(requests: list[Mapping[str, Any]]) -> frozenset[str]:
    """The classes of all requests, also of those of which only the first that fits counts."""
    alternatives = (a for r in requests for _, a in as_objects(r.get("firstAvailable")))
    exactly = (as_object(request.get("exactly")) for request in requests)
    named = (as_text(r.get("deviceClassName")) for r in (*requests, *exactly, *alternatives))
    return frozenset(filter(None, named))


def _runtime_class(raw: Mapping[str, Any], _variables: VariableNames) -> RuntimeClass:
    return RuntimeClass(as_text(raw.get("handler")))


def _cluster_queue(raw: Mapping[str, Any], _variables: VariableNames) -> ClusterQueue:
    groups = [g for _, g in as_objects(as_object(raw.get("spec")).get("resourceGroups"))]
    covered = [listed for g in groups if isinstance(listed := g.get("coveredResources"), list)]
    return ClusterQueue(frozenset(as_text(name) for listed in covered for name in listed))


def _local_queue(raw: Mapping[str, Any], _variables: VariableNames) -> LocalQueue:
    return LocalQueue(as_text(as_object(raw.get("spec")).get("clusterQueue")))


_READER_BY_KIND: Mapping[tuple[str, str], _RecordReader] = {
    ("", "ConfigMap"): _RecordReader(ConfigMap, _config_map),
    ("", "LimitRange"): _RecordReader(LimitRange, _limit_range),
    ("", "ResourceQuota"): _RecordReader(ResourceQuota, _resource_quota),
    ("", "Namespace"): _RecordReader(Namespace, _namespace, is_namespaced=False),
    ("node.k8s.io", "RuntimeClass"): _RecordReader(
        RuntimeClass, _runtime_class, is_namespaced=False
    ),
    ("", "Secret"): _RecordReader(Secret, _secret),
    (_DRA_GROUP, "DeviceClass"): _RecordReader(DeviceClass, _device_class, is_namespaced=False),
    (_DRA_GROUP, "ResourceClaim"): _RecordReader(ResourceClaim, _claim),
    (_DRA_GROUP, "ResourceClaimTemplate"): _RecordReader(ResourceClaimTemplate, _claim_template),
    (_KUEUE_GROUP, "ClusterQueue"): _RecordReader(
        ClusterQueue, _cluster_queue, is_namespaced=False
    ),
    (_KUEUE_GROUP, "LocalQueue"): _RecordReader(LocalQueue, _local_queue),
}


class InventoryBuilder:
    """Collects the records of objects, up to MAX_OBJECTS and MAX_CHARACTERS_IN_NAMESPACE.

    `variables` are those that it keeps of ConfigMaps; `nodes` collects what it keeps of nodes.
    """

    def __init__(self, variables: VariableNames, nodes: NodeCollector | None = None) -> None:
        self._variables = variables
        self.nodes = nodes or NodeCollector()
        self.shares = ShareCollector()
        self._records: dict[type, dict[str, dict[str, Any]]] = {}
        self._mig_configs: set[str] = set()
        self._count = 0
        self._sizes: Counter[str] = Counter()
        self._incomplete: set[str] = set()

    def add(self, kind: str, group: str, namespace: str, name: str, raw: Mapping[str, Any]) -> None:
        """Add an object, unless its kind is of no interest or it has no name.

        The namespace may be words that stand for the one that the object does not name, such as
        `the folder gpus`.
        """
        if (group, kind) == ("", "Node"):
            self.nodes.add(raw)
            return
        reader = _READER_BY_KIND.get((group, kind))
        if reader is None or not name:
            return
        home = namespace if reader.is_namespaced else ""
        records = self._records.setdefault(reader.kind, {}).setdefault(home, {})
        record = reader.read(raw, self._variables)
        if name in records:
            if records[name] != record:
                records[name] = None
            return
        size = _CHARACTERS_PER_OBJECT + len(name) + len(repr(record)) if reader.is_namespaced else 0
        if self._count < MAX_OBJECTS and self._sizes[home] + size <= MAX_CHARACTERS_IN_NAMESPACE:
            self._count += 1
            self._sizes[home] += size
            records[name] = record
        else:
            self._incomplete.add(home)

    def add_mig_configuration(self, text: str) -> None:
        """Add the names in a file for NVIDIA's MIG manager that is in the values of a chart."""
        self._mig_configs.update(islice(_mig_configs(text), MAX_MIG_CONFIGS))

    def message_about_missing_objects(self) -> str:
        """A message about objects for which there was no room; empty if there were none."""
        if not self._incomplete:
            return ""
        places = [_where_words(home) for home in sorted(self._incomplete)]
        where = ", ".join(places[:_MAX_LISTED]) + (
            ", and others" if len(places) > _MAX_LISTED else ""
        )
        return f"not all objects that pods refer to are known, there are too many: {where}"

    def inventory(self) -> Inventory:
        """What has been added so far."""
        records = self._records | self.nodes.records() | self.shares.records()
        if self._mig_configs:
            names = MigConfiguration(frozenset(self._mig_configs))
            records |= {MigConfiguration: {"": {MIG_CONFIGS: names}}}
        return Inventory(records)


def _where_words(home: str) -> str:
    """Where the objects are that `InventoryBuilder.add` got with this namespace."""
    if not home:
        return "in the cluster"
    return f"in {home}" if " " in home else f"in namespace {home}"
