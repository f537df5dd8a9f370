"""The facts in objects about nodes: their labels, resources and GPU modes."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rules.base.caching import MAX_ENTRIES, MAX_KEY_CHARACTERS
from rules.base.json_values import (
    Path,
    as_object,
    as_objects,
    as_text,
    find_value,
    values_at,
)
from rules.base.quantity import Quantity, parse
from rules.base.taints import is_temporary_taint
from rules.base.text_matching import has_few_typos, has_placeholder, matches, nearest_word
from rules.base.traits import NODE_CHOOSING_OBJECT
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.pod import Pod
from rules.objects.view import once_per_view
from rules.placement.node_affinity import (
    expression_values,
    expressions,
    is_empty_term,
    required_terms,
)
from rules.profile.profile import Profile
from rules.workloads.object_kinds import OBJECT_KINDS, NodeFields

# AWS writes NO_SCHEDULE.
_SEPARATORS = str.maketrans("", "", "-_ ")
_REPELLING_EFFECTS = frozenset({"noschedule", "noexecute"})
_LABELS_ARGUMENT, _CPU_POLICY_ARGUMENT = "node-labels", "cpu-manager-policy"


NO_NODE = "a value that no node has"


class NodeLabel(NamedTuple):
    """A label of a node, or of the nodes of a pool.

    `pool` is the name of the pool in a manifest that lists several, else empty. `field` is the name
    of the field that has the value; empty if the manifest names the label.
    """

    path: Path
    name: str
    value: str
    pool: str = ""
    field: str = ""

    @property
    def key(self) -> str:
        """Return which label of a manifest this is, for the key of a finding."""
        return f"nodes.{self.pool}.{self.name}" if self.pool else f"nodes.{self.name}"


class NodeTaint(NamedTuple):
    """A taint of a node, or of the nodes of a pool; `effect` is as it is spelt there."""

    path: Path
    key: str
    effect: str

    @property
    def repels_pods(self) -> bool:
        """Return whether it keeps pods off that do not tolerate it, as long as the node is there.

        Its effect is NoSchedule or NoExecute, however it is spelt, and no controller removes it.
        """
        spelt = self.effect.translate(_SEPARATORS).lower()
        return spelt in _REPELLING_EFFECTS and not is_temporary_taint(self.key)


class NodeSettings(NamedTuple):
    """The settings of a manifest for a node, or for nodes that are made alike.

    - `pool`: the name of their pool in a manifest that lists several, else empty.
    - `cpu_policies`: the CPU policies of their kubelets, each with its path.
    - `taints`: their taints; `taints_path` is where they are, or belong; empty if that is unknown.
    """

    pool: str
    labels: list[NodeLabel]
    cpu_policies: list[tuple[Path, str]]
    taints: list[NodeTaint]
    taints_path: Path

    @property
    def repels_pods(self) -> bool:
        """Return whether a taint keeps pods off that do not tolerate it."""
        return any(taint.repels_pods for taint in self.taints)


@once_per_view
def node_settings(subject: KubernetesObject) -> tuple[NodeSettings, ...]:
    """Return the settings of each node that `subject` describes, in the manifest's order."""
    return tuple(_node_settings(subject))


def _node_settings(subject: KubernetesObject) -> Iterator[NodeSettings]:
    for fields in OBJECT_KINDS[subject.object.group, subject.object.kind].nodes:
        for place, raw in values_at(subject.raw, fields.base_path):
            path = (*subject.path, *place)
            arguments = list(_kubelet_arguments(raw, fields, path))
            pool = as_text(as_object(raw).get("name")) if "*" in fields.base_path else ""
            labels = [
                label._replace(pool=pool)
                for label in (*_labels(raw, fields, path), *_labels_in_arguments(arguments))
            ]
            policies = [
                ((*path, *rest), as_text(value))
                for pattern in fields.cpu_policies
                for rest, value in values_at(raw, pattern)
            ]
            policies += [(p, value) for p, name, value in arguments if name == _CPU_POLICY_ARGUMENT]
            taints_path = (*path, *fields.taints) if fields.taints else ()
            taints = [*_taints(find_value(raw, fields.taints), taints_path)] if taints_path else []
            yield NodeSettings(pool, labels, policies, taints, taints_path)


def node_labels(subject: KubernetesObject) -> Iterator[NodeLabel]:
    """Every label that `subject` gives to nodes, in the order of the manifest."""
    for settings in node_settings(subject):
        yield from settings.labels


def chosen_labels(subject: KubernetesObject) -> Iterator[NodeLabel]:
    """Each label, with each value, by which `subject` chooses nodes or the machines of a pool.

    Of requirements, these are the values of the operator `In`. A field may stand for a label.
    """
    kind = OBJECT_KINDS[subject.object.group, subject.object.kind]
    if kind.trait == NODE_CHOOSING_OBJECT:
        yield from node_labels(subject)
    for fields in kind.nodes:
        for label, field in fields.choices:
            for place, value in values_at(subject.raw, (*fields.base_path, *field)):
                if isinstance(value, str):
                    shown = ".".join(str(step) for step in field if step != "*")
                    yield NodeLabel((*subject.path, *place), label, value, field=shown)
        if not fields.requirements:
            continue
        for place, raw in values_at(subject.raw, (*fields.base_path, *fields.requirements, "*")):
            values, label = raw.get("values"), as_text(raw.get("key"))
            if raw.get("operator") != "In" or not isinstance(values, list):
                continue
            for index, value in enumerate(values):
                path = (*subject.path, *place, "values", index)
                yield NodeLabel(path, label, _written(value))


def labels_by_node(subject: KubernetesObject) -> list[dict[str, NodeLabel]]:
    """Return the labels by name, one mapping for each node or group of nodes."""
    return [{label.name: label for label in settings.labels} for settings in node_settings(subject)]


def _taints(listed: Any, path: Path) -> Iterator[NodeTaint]:
    """The taints at `path`: a list of objects or of texts, or a map from keys to texts."""
    if isinstance(listed, dict):
        for key, value in listed.items():
            yield NodeTaint((*path, key), key, as_text(value).rpartition(":")[2])
    for index, taint in enumerate(listed if isinstance(listed, list) else ()):
        text, _, effect = as_text(taint).rpartition(":")
        key = text.partition("=")[0]
        if isinstance(taint, dict):
            key, effect = as_text(taint.get("key")), as_text(taint.get("effect"))
        yield NodeTaint((*path, index), key, effect)


def _labels(raw: Any, fields: NodeFields, path: Path) -> Iterator[NodeLabel]:
    if fields.labels:
        for place, labels in values_at(raw, fields.labels):
            for name, value in as_object(labels).items():
                yield NodeLabel((*path, *place, name), name, as_text(value))
    if fields.label_list:
        for place, label in values_at(raw, (*fields.label_list, "*")):
            name = as_text(label.get("key"))
            yield NodeLabel((*path, *place, "value"), name, as_text(label.get("value")))


def _kubelet_arguments(raw: Any, fields: NodeFields, path: Path) -> Iterator[tuple[Path, str, str]]:
    """The path, the name and the value of each argument of the kubelet."""
    for place, arguments in values_at(raw, fields.arguments) if fields.arguments else ():
        if isinstance(arguments, list):
            for index, argument in as_objects(arguments):
                name, value = as_text(argument.get("name")), as_text(argument.get("value"))
                yield (*path, *place, index, "value"), name, value
        else:
            for name, value in as_object(arguments).items():
                yield (*path, *place, name), name, as_text(value)


def _labels_in_arguments(arguments: list[tuple[Path, str, str]]) -> Iterator[NodeLabel]:
    """The labels in the argument `node-labels`, which are written `name=value,name=value`."""
    for path, argument, text in arguments:
        for part in text.split(",") if argument == _LABELS_ARGUMENT else ():
            name, equals, value = part.strip().partition("=")
            if equals:
                yield NodeLabel(path, name, value)


# The labels of nodes that tell how they offer their GPUs. A profile lists them in `nodeModes`, with
# the resources that nodes offer for each value.


def offered_resources(modes: Mapping[str, tuple[str, ...]], value: str) -> tuple[str, ...] | None:
    """The resources that nodes with `value` offer, by one label's `modes`; None if it is unknown.

    Empty if the profile does not say what they offer. A value of the profile may contain `*`.
    """
    if value in modes:
        return modes[value]
    return next((modes[known] for known in modes if "*" in known and matches(known, value)), None)


def advice_on_unknown_value(modes: Mapping[str, tuple[str, ...]], value: str) -> str | None:
    """Return what to write for `value` of a label; None if it is known, or a placeholder."""
    if offered_resources(modes, value) is not None or has_placeholder(value):
        return None
    known = values_without_wildcard(modes)
    right = nearest_word(value, known)
    return f"write {right}" if right else f"write one of {', '.join(known)}"


MAX_COMPARED_VALUES = 100
"""So many different values of labels, of one object, are compared with those that are known.

No platform has as many, and to compare all that an attacker may list takes long.
"""
FEWER_VALUES_ADVICE = "list no other values than nodes have"
MAX_COMPARED_LABELS = 500
"""So many labels with different names, of one object, are compared with those that are known.

No node has as many.
"""
FEWER_LABELS_ADVICE = "list no other labels than nodes have"


def misspelt_mode_label(profile: Profile, name: str) -> str | None:
    """The label with modes of nodes that `name` differs from by one letter; None if there is none.

    Names with a placeholder are not compared.
    """
    if name in profile.node_modes or has_placeholder(name) or len(name) > MAX_KEY_CHARACTERS:
        return None
    return _label_near(tuple(profile.node_modes), name)


@lru_cache(maxsize=MAX_ENTRIES)
def _label_near(labels: tuple[str, ...], name: str) -> str | None:
    return next((label for label in labels if has_few_typos(1, name, label)), None)


def selected_labels(pod: Pod) -> Iterator[tuple[Path, str]]:
    """The path and the name of each label that a node must have for the pod."""
    for label in pod.node_selector:
        yield (*pod.path, "nodeSelector", label), label
    for path, term in required_terms(pod):
        for index, expression in expressions(term):
            if as_text(expression.get("operator")) in {"In", "Exists", "Gt", "Lt"}:
                yield (*path, "matchExpressions", index, "key"), as_text(expression.get("key"))


def values_without_wildcard(modes: Iterable[str]) -> list[str]:
    """The values of one label that a user can write: those without a `*`."""
    return [value for value in modes if "*" not in value]


def selected_modes(pod: Pod) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, the label and the value of each mode that the pod selects."""
    labels = pod.profile.node_modes
    return selected_values(pod, labels) if labels else iter(())


_TOO_LARGE = 10**63
"""No value of a label has as many digits."""


def selected_values(pod: Pod, labels: Collection[str]) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, the label and the value of each of `labels` that the pod selects.

    `nodeSelector` and the operator `In` of the required node affinity select one. A number, or
    true or false, which no label has, counts as its text.
    """
    for label, value in pod.node_selector.items():
        if label in labels:
            yield (*pod.path, "nodeSelector", label), label, _written(value)
    for path, term in required_terms(pod):
        for index, expression in expressions(term):
            label, values = as_text(expression.get("key")), expression.get("values")
            if label in labels and expression.get("operator") == "In" and isinstance(values, list):
                place = (*path, "matchExpressions", index, "values")
                for position, value in enumerate(values):
                    yield (*place, position), label, _written(value)


def _written(value: Any) -> str:
    is_number = isinstance(value, (int, float)) and -_TOO_LARGE < value < _TOO_LARGE
    return json.dumps(value) if is_number else as_text(value)


def allowed_values(pod: Pod, label: str) -> set[str] | None:
    """The values of `label` on the nodes that the pod may run on; None if they may be any.

    A node must meet `nodeSelector` and one of the terms of the required node affinity. Without a
    value, what the pod demands contradicts itself.
    """
    selected = pod.node_selector.get(label)
    known = isinstance(selected, str) and not has_placeholder(selected)
    by_selector = {as_text(selected)} if known else None
    terms = [term for _, term in required_terms(pod) if not is_empty_term(term)]
    if not terms:
        return by_selector
    allowed: set[str] = set()
    for term in terms:
        values = _values_allowed_in_term(term, label, by_selector)
        if values is None:
            return None
        allowed |= values
    return allowed


def _values_allowed_in_term(
    term: Mapping[str, Any], label: str, by_selector: set[str] | None
) -> set[str] | None:
    allowed, refused = by_selector, set()
    for _, expression in expressions(term):
        values = expression_values(expression)
        if as_text(expression.get("key")) != label or values is None:
            continue
        if expression.get("operator") == "In":
            allowed = values if allowed is None else allowed & values
        elif expression.get("operator") == "NotIn":
            refused |= values
    return None if allowed is None else allowed - refused


def resources_of_node(node: KubernetesObject) -> Mapping[str, Any]:
    """The resources of the status, `allocatable` before `capacity`; empty without a status."""
    status = as_object(node.raw.get("status"))
    return as_object(status.get("allocatable")) or as_object(status.get("capacity"))


def offered_amount(offered: Mapping[str, Any], name: str) -> int | None:
    """Return the amount of the resource: 0 if it is not offered, None if it cannot be read."""
    if name not in offered:
        return 0
    amount = parse(offered[name])
    return amount.value if isinstance(amount, Quantity) else None


# Labels and resources of ACK's nodes that code uses by name.

# https://www.alibabacloud.com/help/doc-detail/191140.html
MODE_LABEL = "ack.node.gpu.schedule"
PLACEMENT_LABEL = "ack.node.gpu.placement"
SHARING_MODES = ("cgpu", "core_mem", "share", "mps")
# The modes that need the kernel module cGPU, which runs on ECS instances only.
CGPU_MODES = ("cgpu", "core_mem")
# What nodes with shared cards offer: the memory of their cards in GiB or MiB, computing power in
# percent of a card, and the number of cards. GPU_COUNT is also a label of pods: over how many cards
# their memory is spread.
GPU_MEM = "aliyun.com/gpu-mem"
GPU_CORE = "aliyun.com/gpu-core.percentage"
GPU_COUNT = "aliyun.com/gpu-count"
# Where a node has its region, the version of NVIDIA's driver and the model of its cards.
REGION_LABELS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "ack.aliyun.com/nvidia-driver-version")
CARD_LABELS = ("aliyun.accelerator/nvidia_name", "nvidia.com/gpu.product")
