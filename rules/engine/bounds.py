"""Bounds on what is evaluated, so that no object takes long.

The time that rules take grows with what they read. A tenant could use an oversized object to occupy
the webhook, so that other requests time out and pass where the failurePolicy is Ignore. What
exceeds a bound is not evaluated, and never passed over in silence.
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, count_values, display
from rules.base.traits import is_named_after_gpus
from rules.finding import Finding
from rules.objects.kubernetes_objects import KubernetesObject, Quota
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of
from rules.objects.pod import Pod
from rules.placement.node_affinity import expressions, required_terms
from rules.workloads.pod_search import Subject

# Built-in objects of fewer bytes, which are nearly all, are not compared with the bounds below: no
# rule takes long with them.
LARGE_OBJECT_BYTES = 64 << 10
# Values in an object, those in `env` not counted. A pod of fifty containers has about 3,000.
MAX_VALUES = 10_000
# Variables whose names have a word about GPUs. To look at a new name takes some microseconds.
MAX_GPU_VARIABLES = 10_000
# Characters. The kernel accepts no longer path, and Kubernetes no longer name.
MAX_TEXT_CHARACTERS = 4096
# Characters of the longest key that Kubernetes accepts: domain, slash, name.
MAX_KEY_CHARACTERS = 253 + 1 + 63
# Levels of a custom resource in which pods are looked for.
MAX_DEPTH = 100
# A rule that looks at a container takes a step, and one more for every few elements of lists in the
# pod. A finding takes more, and each edit of its fix one.
MAX_STEPS = 60_000
_STEPS_OF_A_FINDING = 20
_ELEMENTS_IN_A_STEP = 4
# Lists of containers, and how many of their entries count as one element.
_ENTRIES_PER_ELEMENT = (("volumeMounts", 1), ("envFrom", 1), ("env", 8))
# Finding a pod in a custom resource.
STEPS_OF_A_POD = 10

# Fields of built-in kinds that take little time. The API server drops the `status` of a new object
# after the mutating webhook, so it must not count.
_UNCOUNTED_FIELDS = frozenset({"env", "managedFields", "status"})
# The search for pods skips these fields of a custom resource; all others may hold pods.
_FIELDS_WITHOUT_PODS = frozenset({"metadata", "status"})
_COLLECTION_TYPES = frozenset({dict, list})
# The fields whose text rules read. Others may be long, such as commands, of which a rule reads a
# bounded part.
_FIELDS_THAT_RULES_READ = frozenset(
    {
        *("name", "generateName", "namespace", "image", "prefix", "kind", "apiVersion"),
        *("path", "mountPath", "subPath", "subPathExpr", "fieldPath"),
        *("nodeName", "schedulerName", "runtimeClassName", "serviceAccountName", "serviceAccount"),
        *("priorityClassName", "key", "operator", "effect", "topologyKey", "whenUnsatisfiable"),
    }
)


def oversized_reason(manifest: Any, size: int) -> str:
    """Return why `manifest`, of at most `size` bytes as JSON, is too large; empty if it is not.

    The text continues "because of".
    """
    root = as_object(manifest)
    group = group_of(root)
    if group in BUILT_IN_GROUPS:
        return _exceeded_bound(root, _UNCOUNTED_FIELDS) if size > LARGE_OBJECT_BYTES else ""
    fields = {key: value for key, value in root.items() if key not in _FIELDS_WITHOUT_PODS}
    return _exceeded_bound(fields, frozenset())


def exceeds_bounds(spec: Mapping[str, Any]) -> bool:
    """Return whether a part of a custom resource alone is too large."""
    return bool(_exceeded_bound(spec, frozenset()))


def _exceeded_bound(root: Mapping[str, Any], uncounted: frozenset[str]) -> str:
    waiting: list[tuple[Any, int]] = [(root, 0)]
    count = variables = 0
    while waiting:
        node, depth = waiting.pop()
        count += len(node)
        if isinstance(node, dict):
            has_long_key = max(map(len, node), default=0) > MAX_KEY_CHARACTERS
            for key, value in node.items():
                kind = type(value)
                if (
                    key in uncounted
                    or (kind is str and len(value) > MAX_TEXT_CHARACTERS)
                    or (has_long_key and len(key) > MAX_KEY_CHARACTERS)
                ) and (fault := _exceeded_bound_of_field(key, value)):
                    return fault
                if key in uncounted:
                    count -= 1
                    variables += _count_gpu_variables(value) if key == "env" else 0
                elif kind in _COLLECTION_TYPES:
                    waiting.append((value, depth + 1))
        else:
            waiting += [(item, depth + 1) for item in node if type(item) in _COLLECTION_TYPES]
        if count > MAX_VALUES:
            return f"its more than {MAX_VALUES:,} values"
        if variables > MAX_GPU_VARIABLES:
            return f"its more than {MAX_GPU_VARIABLES:,} variables about GPUs"
        if depth > MAX_DEPTH:
            return f"its more than {MAX_DEPTH} levels"
    return ""


def _count_gpu_variables(env: Any) -> int:
    names = {as_text(entry.get("name")) for _, entry in as_objects(env)}
    return sum(map(is_named_after_gpus, names))


def _exceeded_bound_of_field(key: str, value: Any) -> str:
    """Return what is too long in a field: its key, its text, or a variable's name; else empty."""
    if len(key) > MAX_KEY_CHARACTERS:
        return f"its key {display(key)} of {len(key):,} characters"
    if isinstance(value, str):
        is_read = len(value) > MAX_TEXT_CHARACTERS and key in _FIELDS_THAT_RULES_READ
        return f"its field {key} of {len(value):,} characters" if is_read else ""
    for entry in value if key == "env" and isinstance(value, list) else ():
        name = as_text(entry.get("name")) if isinstance(entry, dict) else ""
        if len(name) > MAX_TEXT_CHARACTERS:
            return f"its variable {display(name)} with a name of {len(name):,} characters"
    return ""


class TooManyStepsError(Exception):
    """The evaluation of an object took more steps than it may."""


class StepLimit:
    """Counts the steps of one evaluation.

    Steps are counted and not timed, so that the same object always has the same result.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def take(self, steps: int) -> None:
        """Count `steps`; TooManyStepsError if they are more than are left."""
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError


def steps_of(subject: Subject) -> int:
    """Return how many steps a rule takes that looks at `subject` and finds nothing."""
    if isinstance(subject, Pod):
        return _steps_of_pod(subject)
    if isinstance(subject, KubernetesObject):
        # Of a workload with pods, rules read little but these.
        of_pods = sum(map(_steps_of_pod, subject.pods))
        values = 0 if of_pods else count_values(subject.raw)
        return 1 + of_pods + values // _ELEMENTS_IN_A_STEP
    if isinstance(subject, Quota):
        return 1 + len(subject.hard) // _ELEMENTS_IN_A_STEP
    return 1 + count_values(subject.spec) // _ELEMENTS_IN_A_STEP


def _steps_of_pod(pod: Pod) -> int:
    terms = sum(1 + len(expressions(term)) for _, term in required_terms(pod))
    elements = terms + len(pod.tolerations) + len(pod.volumes) + len(pod.annotations)
    for container in pod.containers:
        elements += len(container.limits) + len(container.requests) + len(container.claims)
        for field, number in _ENTRIES_PER_ELEMENT:
            listed = container.raw.get(field)
            elements += len(listed) // number if isinstance(listed, list) else 0
    return 1 + len(pod.containers) + elements // _ELEMENTS_IN_A_STEP


def steps_of_finding(finding: Finding) -> int:
    """Return how many steps `finding` takes."""
    return _STEPS_OF_A_FINDING + (len(finding.fix.edits) if finding.fix else 0)
