"""What tells of GPUs where the search for pods finds none: in custom resources and charts' values.

Its controller makes the pods, or helm does, so rules see them only at admission.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rules.base.json_values import Json, Path, as_object, as_text
from rules.base.text_matching import matches_any
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects, flatten_lists
from rules.workloads.kinds import CAPACITY_GROUPS, PATTERN_GROUPS
from rules.workloads.object_kinds import NODE_POOL_KINDS
from rules.workloads.pod_search import JsonNode

# Some kinds have a number of GPUs under this key, and make a resource of it.
_GPU_COUNT_KEY = "gpu"
_AMOUNT_FIELDS = frozenset({"limits", "requests", "resources"})
# `metadata` has no requests; `status` is what a controller saw.
_UNREAD_FIELDS = frozenset({"metadata", "status"})
_REQUEST_KIND = "request"
_RUNTIME_CLASS_FIELD = "runtimeClassName"
# It is in the name of every variable that a container runtime reads.
_VISIBLE_DEVICES = "VISIBLE_DEVICES"
# It may be in a text as well: a program, a patch, or the values of a chart.
_NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_TELLING_KEYS = frozenset({_GPU_COUNT_KEY, _RUNTIME_CLASS_FIELD})
_PRIVILEGED = "privileged"
# A text of Argo's templates, which are pods. The search for pods reads JSON in it, and not YAML.
_PATCH_FIELD = "podSpecPatch"


def gpu_fields_outside_pods(manifest: Json, profile: Profile) -> Iterator[tuple[Path, str]]:
    """What tells of GPUs in custom resources outside of pods: its path, and what to call it.

    The first of each kind in every object: the name of a GPU resource that is a key, a variable
    that shows devices, a runtime class for GPUs; beside these, a field `privileged: true`.
    """
    for raw, base in flatten_lists(as_object(manifest), ()):
        group = group_of(raw)
        if group in BUILT_IN_GROUPS or matches_any((*PATTERN_GROUPS, *CAPACITY_GROUPS), group):
            continue
        if (group, as_text(raw.get("kind"))) in NODE_POOL_KINDS:
            continue
        found = list(_gpu_fields(raw, profile, ()))
        if not found:
            continue
        subjects = find_subjects({**raw}, profile)
        pods = frozenset(
            _path_of_whole_pod(subject) for subject in subjects if isinstance(subject, Pod)
        )
        for path, name, is_request in _gpu_fields(raw, profile, pods) if pods else found:
            if not (pods and is_request):  # such a kind may state sums of what its pods request
                yield (*base, *path), name


def _path_of_whole_pod(pod: Pod) -> Path:
    """Where all that the pod is made of stands."""
    return pod.path[:-1] if pod.layout.is_service else pod.path


def gpu_fields_in_values(values: Json, profile: Profile) -> Iterator[tuple[Path, str]]:
    """The same in the values of a chart, but for requests, which are as they should be."""
    for path, name, is_request in _gpu_fields(as_object(values), profile, ()):
        if not is_request:
            yield path, name


def _gpu_fields(
    raw: Mapping[str, Any], profile: Profile, pods: Collection[Path]
) -> Iterator[tuple[Path, str, bool]]:
    """The path and the name of each, and whether it is a request; nothing inside of `pods`."""
    seen: set[str] = set()
    privileged: Path | None = None
    waiting = [JsonNode(raw)]
    while waiting:
        node = waiting.pop()
        held = node.value
        pairs = list(held.items() if isinstance(held, dict) else enumerate(held))
        is_pod = bool(pods) and node.path in pods
        if is_pod:
            pairs = [(k, v) for k, v in pairs if k == _PATCH_FIELD and (*node.path, k) not in pods]
        for key, value in pairs:
            may_tell = _may_tell(key, value)
            kind, name = _kind_and_name(key, value, node, profile) if may_tell else ("", "")
            if kind and kind not in seen:
                seen.add(kind)
                yield (*node.path, key), name, kind == _REQUEST_KIND
            if key == _PRIVILEGED and value is True and privileged is None:
                privileged = (*node.path, key)
        if is_pod:
            continue
        skipped = _UNREAD_FIELDS if node.parent is None else frozenset[str]()
        waiting += [child for child in node.children() if child.key not in skipped][::-1]
    if privileged and seen:
        yield privileged, f"{_PRIVILEGED}: true", False


def _may_tell(key: str | int, value: Any) -> bool:
    """Whether `_kind_and_name`, which takes longer, may find something."""
    if isinstance(value, str) and _VISIBLE_DEVICES in value:
        return True
    if not isinstance(key, str):
        return False
    return "/" in key or key in _TELLING_KEYS or _VISIBLE_DEVICES in key


def _kind_and_name(
    key: str | int, value: Any, holder: JsonNode, profile: Profile
) -> tuple[str, str]:
    """What `key` with its `value` tells of, and what to call it; two empty texts for nothing."""
    text, name = as_text(value), as_text(key)
    if _is_request(name, holder, profile):
        return _REQUEST_KIND, name
    if key == _RUNTIME_CLASS_FIELD and text in profile.runtime_classes:
        return _RUNTIME_CLASS_FIELD, f"{_RUNTIME_CLASS_FIELD}: {text}"
    # Spark's settings have the name at their end: spark.executorEnv.NVIDIA_VISIBLE_DEVICES.
    for variable in (name.rpartition(".")[2], text if name == "name" else ""):
        if _VISIBLE_DEVICES in variable and profile.visible_variable(variable):
            return _VISIBLE_DEVICES, variable
    return (
        (_VISIBLE_DEVICES, _NVIDIA_VISIBLE_DEVICES) if _NVIDIA_VISIBLE_DEVICES in text else ("", "")
    )


def _is_request(key: str, holder: JsonNode, profile: Profile) -> bool:
    if key == _GPU_COUNT_KEY:
        return holder.key in _AMOUNT_FIELDS
    return "/" in key and profile.resource(key) is not None
