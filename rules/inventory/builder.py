"""Make an inventory of manifests."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rules.base.claim_requests import alternatives_of
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.limit_ranges import container_limits
from rules.base.quantity import Quantity, parse
from rules.base.text_matching import matches_any
from rules.base.traits import KAI_QUEUE_LABEL
from rules.inventory.collectors import (
    FlavorNodeCollector,
    GpuNodeCollector,
    NodeCollector,
    ShareCollector,
    flavor_taints,
)
from rules.inventory.inventory import (
    ClusterQueue,
    ClusterTrainingRuntime,
    ConfigMap,
    DeviceClass,
    GpuPatch,
    Inventory,
    KaiQueue,
    LimitRange,
    LocalQueue,
    MigConfiguration,
    Namespace,
    NVIDIADriver,
    Queue,
    QuotaScope,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceFlavor,
    ResourceQuota,
    RuntimeClass,
    Secret,
    Topology,
    TrainingRuntime,
)

MAX_VARIABLES = 20
"""Of a ConfigMap, whose tenant may choose any number of names for some patterns."""


class VariableNames:
    """The variables that container runtimes read, as names and patterns of names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._exact = frozenset(name for name in self._patterns if "*" not in name)
        self.beginnings = frozenset(name.partition("*")[0] for name in self._patterns)
        """The beginnings of the variables."""

    def read_among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are read, at most MAX_VARIABLES: first what no pattern stands for.

        What a pattern stands for is read by few nodes only, and a tenant may choose its name.
        """
        found = [name for name in names if matches_any(self._patterns, name)]
        return sorted(found, key=lambda name: name not in self._exact)[:MAX_VARIABLES]


MAX_OBJECTS = 100_000
MAX_GPU_PATCHES = 10_000
MAX_CHARACTERS_IN_NAMESPACE = 2_000_000
"""Characters of the records of a namespace, whose tenants choose their number and size.

Objects of the cluster have no such bound: there is a Namespace for each of many tenants.
"""
MAX_NAMESPACE_LABELS = 1_000  # of one Namespace, whose owner may choose any number
_MAX_LISTED = 5  # namespaces in a message
_CHARACTERS_PER_OBJECT = 100  # characters that count for any object, however little is kept of it
MIG_CONFIGS = "mig-configs"
"""The key in the files for NVIDIA's MIG manager that has the ways to divide the cards of a node."""
MAX_MIG_CONFIGS = 200
_MIG_CONFIG = re.compile(r"""(["']?)([A-Za-z0-9][\w.+-]{0,62})\1:(?:\s|$)""")
MAX_VALUE_CHARACTERS = 100  # characters of the value of a ConfigMap, whose tenant may choose any
MAX_ENCODED_CHARACTERS = 400  # of the value of a Secret: MAX_VALUE_CHARACTERS and more, in base64
MAX_JOBS_OF_RUNTIME = 100
"""Jobs of a training runtime with more are not known: they are merged with every TrainJob."""
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
_TRAINER_GROUP = "trainer.kubeflow.org"
_VOLCANO_GROUP = "scheduling.volcano.sh"
_KAI_GROUP = "scheduling.run.ai"
_UNLIMITED = Quantity("-1", -(10**9))


class _RecordReader(NamedTuple):
    """The function that makes a record of a manifest of one kind."""

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
    most: dict[str, Any] = {}
    limits: set[str] = set()
    requests: set[str] = set()
    for found in container_limits(raw):
        # Of several, the pod must obey all: a rule that reads only one says less.
        most |= found.most
        limits.update(found.limits)
        requests.update(found.requests)
    return LimitRange(most, frozenset(limits), frozenset(requests))


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
    return Namespace(as_object(as_object(raw.get("metadata")).get("labels")))


def _claim(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaim:
    """Return the claim, whatever made it: a pod may name a claim that was made for another pod."""
    labels = as_object(as_object(raw.get("metadata")).get("labels"))
    classes, requests, is_shared = _classes_names_and_sharing(as_object(raw.get("spec")))
    queue = as_text(labels.get(KAI_QUEUE_LABEL))
    return ResourceClaim(classes, requests, is_shared, kai_queue=queue)


def _claim_template(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaimTemplate:
    spec = as_object(as_object(raw.get("spec")).get("spec"))
    classes, requests, is_shared = _classes_names_and_sharing(spec)
    return ResourceClaimTemplate(classes, requests, is_shared)


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
    wanted = (each for request in requests for each in alternatives_of(request))
    return frozenset(filter(None, (as_text(each.get("deviceClassName")) for each in wanted)))


def _runtime_class(raw: Mapping[str, Any], _variables: VariableNames) -> RuntimeClass:
    return RuntimeClass(as_text(raw.get("handler")))


def _cluster_queue(raw: Mapping[str, Any], _variables: VariableNames) -> ClusterQueue:
    spec = as_object(raw.get("spec"))
    may_borrow = bool(spec.get("cohortName") or spec.get("cohort"))
    flavors: dict[str, tuple[str, ...]] = {}
    empty: dict[str, tuple[str, ...]] = {}
    most: dict[str, int] = {}
    for _, group in as_objects(spec.get("resourceGroups")):
        listed = group.get("coveredResources")
        covered = [as_text(name) for name in (listed if isinstance(listed, list) else ())]
        limits = {
            as_text(flavor.get("name")): _limits_of_flavor(flavor, may_borrow=may_borrow)
            for _, flavor in as_objects(group.get("flavors"))
        }
        for name in covered:
            flavors[name] = tuple(f for f, known in limits.items() if known.get(name) != 0)
            if others := tuple(f for f in limits if f not in flavors[name]):
                empty[name] = others
            amounts = [known.get(name) for known in limits.values()]
            known_amounts = [amount for amount in amounts if amount is not None]
            if amounts and len(known_amounts) == len(amounts):
                most[name] = max(known_amounts)
    checks = spec.get("admissionChecks") or spec.get("admissionChecksStrategy")
    return ClusterQueue(frozenset(flavors), flavors, most, bool(checks), empty)


def _limits_of_flavor(flavor: Mapping[str, Any], *, may_borrow: bool) -> Mapping[str, int]:
    """The most that a workload can get of each resource in the flavor, if that is limited.

    In whole devices, as Kueue rounds up. Without a limit a queue of a cohort may borrow what the
    others do not use.
    """
    found: dict[str, int] = {}
    for _, quota in as_objects(flavor.get("resources")):
        limit = quota.get("borrowingLimit")  # null is no limit, and no 0
        borrowed = ("any" if limit is None else limit) if may_borrow else 0
        amounts = [quota.get("nominalQuota", "unknown"), borrowed]
        known = [amount for each in amounts if isinstance(amount := parse(each), Quantity)]
        if len(known) == len(amounts):
            found[as_text(quota.get("name"))] = sum(amount.value for amount in known)
    return found


def _local_queue(raw: Mapping[str, Any], _variables: VariableNames) -> LocalQueue:
    return LocalQueue(as_text(as_object(raw.get("spec")).get("clusterQueue")))


def _nvidia_driver(raw: Mapping[str, Any], _variables: VariableNames) -> NVIDIADriver:
    spec = as_object(raw.get("spec"))
    return NVIDIADriver(as_object(spec.get("nodeSelector")), spec.get("default") is True)


def _volcano_queue(raw: Mapping[str, Any], _variables: VariableNames) -> Queue:
    return Queue(as_object(as_object(raw.get("spec")).get("capability")))


def _kai_queue(raw: Mapping[str, Any], _variables: VariableNames) -> KaiQueue:
    """A limit that is not written is 0, and one below 0 other than -1 allows nothing either."""
    spec = as_object(raw.get("spec"))
    of_gpus = as_object(as_object(spec.get("resources")).get("gpu"))
    limit = parse(of_gpus.get("limit"))
    most = max(0, limit.nano) if isinstance(limit, Quantity) and limit != _UNLIMITED else None
    return KaiQueue(as_text(spec.get("parentQueue")), most)


def _resource_flavor(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceFlavor:
    spec = as_object(raw.get("spec"))
    return ResourceFlavor(
        flavor_taints(spec.get("nodeTaints")),
        tuple(toleration for _, toleration in as_objects(spec.get("tolerations"))),
        as_text(spec.get("topologyName")),
        {key: as_text(value) for key, value in as_object(spec.get("nodeLabels")).items()},
    )


def _topology(raw: Mapping[str, Any], _variables: VariableNames) -> Topology:
    levels = as_objects(as_object(raw.get("spec")).get("levels"))
    return Topology(tuple(as_text(level.get("nodeLabel")) for _, level in levels))


def _training_runtime(raw: Mapping[str, Any], _variables: VariableNames) -> TrainingRuntime:
    spec = as_object(raw.get("spec"))
    made = as_object(as_object(spec.get("template")).get("spec"))
    jobs = tuple(job for _, job in as_objects(made.get("replicatedJobs")))
    if len(jobs) > MAX_JOBS_OF_RUNTIME:
        jobs = ()
    return TrainingRuntime(as_object(spec.get("mlPolicy")), jobs)


def _cluster_training_runtime(
    raw: Mapping[str, Any], variables: VariableNames
) -> ClusterTrainingRuntime:
    return ClusterTrainingRuntime(*_training_runtime(raw, variables))


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
    (_KUEUE_GROUP, "ResourceFlavor"): _RecordReader(
        ResourceFlavor, _resource_flavor, is_namespaced=False
    ),
    (_KUEUE_GROUP, "Topology"): _RecordReader(Topology, _topology, is_namespaced=False),
    ("nvidia.com", "NVIDIADriver"): _RecordReader(
        NVIDIADriver, _nvidia_driver, is_namespaced=False
    ),
    (_TRAINER_GROUP, "TrainingRuntime"): _RecordReader(TrainingRuntime, _training_runtime),
    (_TRAINER_GROUP, "ClusterTrainingRuntime"): _RecordReader(
        ClusterTrainingRuntime, _cluster_training_runtime, is_namespaced=False
    ),
    (_KAI_GROUP, "Queue"): _RecordReader(KaiQueue, _kai_queue, is_namespaced=False),
    (_VOLCANO_GROUP, "Queue"): _RecordReader(Queue, _volcano_queue, is_namespaced=False),
}

_KINDS_WITH_KEYS = (ConfigMap, Namespace, Secret)


class InventoryBuilder:
    """Collects the records of objects, up to MAX_OBJECTS and MAX_CHARACTERS_IN_NAMESPACE.

    `variables` are those that it keeps of ConfigMaps; `nodes` and `gpu_nodes` collect what it keeps
    of nodes, and `namespace_labels` the keys of the labels of Namespaces; None keeps all of these.
    """

    def __init__(
        self,
        variables: VariableNames,
        nodes: NodeCollector | None = None,
        gpu_nodes: GpuNodeCollector | None = None,
        namespace_labels: frozenset[str] | None = None,
    ) -> None:
        self._variables = variables
        self._namespace_labels = namespace_labels
        self.nodes = nodes or NodeCollector()
        self.gpu_nodes = gpu_nodes or GpuNodeCollector()
        self.shares = ShareCollector()
        self._flavor_nodes = FlavorNodeCollector()
        self._records: dict[type, dict[str, dict[str, Any]]] = {}
        self._mig_configs: set[str] = set()
        self._gpu_patches: dict[str, GpuPatch] = {}
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
            self.gpu_nodes.add(raw)
            self.add_node_of_flavors(raw)
            return
        reader = _READER_BY_KIND.get((group, kind))
        if reader is None or not name:
            return
        record = reader.read(raw, self._variables)
        if isinstance(record, Namespace):
            record = self._with_kept_labels(record)
        if isinstance(record, ResourceFlavor) and record.topology:
            self._flavor_nodes.add_flavor(name, as_object(raw.get("spec")))
        self._keep(reader, namespace, name, record)

    def add_patched(self, kind: str, group: str, namespace: str, name: str) -> None:
        """Make an object unknown that a patch changes, as of kustomize.

        Not those of which a patch adds a key to others, which mostly stay as they are.
        """
        reader = _READER_BY_KIND.get((group, kind))
        if reader is not None and name and reader.kind not in _KINDS_WITH_KEYS:
            self._keep(reader, namespace, name, None)

    def _keep(self, reader: _RecordReader, namespace: str, name: str, record: Any) -> None:
        """Keep `record`; if others of the object differ from it, it is unknown, which is None."""
        home = namespace if reader.is_namespaced else ""
        records = self._records.setdefault(reader.kind, {}).setdefault(home, {})
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

    def _with_kept_labels(self, namespace: Namespace) -> Namespace:
        wanted = self._namespace_labels
        kept = {k: v for k, v in namespace.labels.items() if wanted is None or k in wanted}
        return Namespace(dict(islice(kept.items(), MAX_NAMESPACE_LABELS)))

    def add_node_of_flavors(self, node: Mapping[str, Any]) -> None:
        """Keep of a Node only what it says about the flavors with a topology."""
        if self.gpu_nodes.sign(node):
            self._flavor_nodes.add(node)

    def add_mig_configuration(self, text: str) -> None:
        """Add the names in a file for NVIDIA's MIG manager that is in the values of a chart."""
        self._mig_configs.update(islice(_mig_configs(text), MAX_MIG_CONFIGS))

    def add_gpu_patch(self, changed: str, resource: str) -> None:
        """Add a patch that gives the object `changed` GPUs, as of kustomize."""
        if len(self._gpu_patches) < MAX_GPU_PATCHES:
            self._gpu_patches.setdefault(changed, GpuPatch(resource))

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
        """Return the inventory of what has been added so far."""
        of_nodes = self.nodes.records() | self.gpu_nodes.records()
        records = self._records | of_nodes | self.shares.records() | self._flavor_nodes.records()
        if self._mig_configs:
            names = MigConfiguration(frozenset(self._mig_configs))
            records |= {MigConfiguration: {"": {MIG_CONFIGS: names}}}
        if self._gpu_patches:
            records |= {GpuPatch: {"": self._gpu_patches}}
        return Inventory(records)


def _where_words(home: str) -> str:
    """Return in words where the objects are that `InventoryBuilder.add` got with this namespace."""
    if not home:
        return "in the cluster"
    return f"in {home}" if " " in home else f"in namespace {home}"
