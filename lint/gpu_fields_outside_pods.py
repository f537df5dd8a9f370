"""Fields about GPUs where the search for pods finds none: in custom resources and charts' values.

Controllers make pods from custom resources, and helm from values, so rules see these pods only at
admission.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

from kubeyaml import YamlError, read, split
from rules.base.json_values import Json, Path, as_object, as_text
from rules.base.text_matching import matches_any
from rules.gpu.images import maker_of_image
from rules.gpu.volumes import (
    INJECTOR_DOMAINS,
    clean_path,
    is_gpu_file,
    is_plain_list,
    names_of_gpus,
)
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of
from rules.placement.gpu_nodes import (
    DRIVER_VARIABLE_PREFIXES,
    DRIVER_VARIABLE_SUFFIX,
    VALUES_HIDING_GPUS,
)
from rules.profile.profile import Profile
from rules.workloads.discovery import flatten_lists
from rules.workloads.kinds import CAPACITY_GROUPS, PATTERN_GROUPS
from rules.workloads.object_kinds import NODE_POOL_KINDS, QUOTA_PATHS
from rules.workloads.pod_search import JsonNode
from sources.sources import has_manifest_texts, has_placeholder, is_manifest_text

# Some kinds have a number of GPUs under this key, and make a resource of it.
_GPU_COUNT_KEY = "gpu"
_AMOUNT_FIELDS = frozenset({"limits", "requests", "resources"})
# Of objects: their own `metadata` has no requests, and `status` is what a controller saw.
_UNREAD_FIELDS = frozenset({"metadata", "status"})
_REQUEST_KIND = "request"
_RUNTIME_CLASS_FIELD = "runtimeClassName"
# It is in the name of every variable that a container runtime reads.
_VISIBLE_DEVICES = "VISIBLE_DEVICES"
# They may be in a text as well: a program, a patch, or the values of a chart.
_VARIABLES_IN = re.compile(r"\b[A-Z][A-Z0-9_]{0,40}VISIBLE_DEVICES\b").findall
# Found wherever it is in a text: letters may stand before it, such as those of `-e` and `\n`.
_NVIDIAS_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
# KubeVirt's machines name the resource of each of their `gpus` in it.
_DEVICE_NAME_FIELD = "deviceName"
_GPUS_FIELD = "gpus"
_TELLING_KEYS = frozenset({_GPU_COUNT_KEY, _RUNTIME_CLASS_FIELD, _DEVICE_NAME_FIELD})
_PRIVILEGED = "privileged"
# Annotations by which containers get devices: of the rules cdi-annotation and nri-cdi-annotation,
# and of device-injector-annotation, whose devices need not be GPUs.
_DEVICE_ANNOTATION = "annotation"
_CDI_PREFIXES = ("cdi.k8s.io/", "nvidia.cdi.k8s.io")
_DEVICE_ANNOTATION_PREFIXES = (*_CDI_PREFIXES, *INJECTOR_DOMAINS)
_DEVICE_FILE = "file"
_DEVICE_FOLDER = "/dev/"
# Of which each one is named, up to a number in an object.
_KINDS_BY_NAME = frozenset({_VISIBLE_DEVICES, _DEVICE_FILE})
_MAX_FIELDS = 20
_MAX_PATH_CHARACTERS = 4096
# A text of Argo's templates, which are pods. The search for pods reads JSON in it, and not YAML.
_PATCH_FIELD = "podSpecPatch"
_SELECTOR_FIELD = "nodeSelector"
# Of the texts of one object: more are in no chart's values.
_MAX_TEXT_CHARACTERS = 1 << 18
_MAX_TEXT_DOCUMENTS = 100
# A text of several lines, or a map or a list in flow style.
_MAY_BE_YAML = re.compile(r"[\n{\[]").search
_TELLS_OF_GPUS = re.compile(r"_VISIBLE_|runtimeClassName|/dev/|cdi|nri\.io|privileged").search


def gpu_fields_outside_pods(
    manifest: Json, profile: Profile, pod_paths: Collection[Path]
) -> Iterator[tuple[Path, str]]:
    """Yield path and name of the fields about GPUs in custom resources outside of pods.

    `pod_paths` are those of all pods in `manifest`. The first of each kind in every object: the
    name of a GPU resource that is a key, a runtime class for GPUs, and an annotation that gives
    devices; also every variable that shows devices, and every device file of a GPU; beside these,
    beside an image or a variable of programs that use devices, and beside a label of GPU nodes, a
    field `privileged: true`. What is in a text of YAML, such as a chart's values, is at the text;
    requests in it are left out.
    """
    pods = _PodPaths(pod_paths)
    for raw, base in flatten_lists(as_object(manifest), ()):
        group = group_of(raw)
        if group in BUILT_IN_GROUPS or matches_any((*PATTERN_GROUPS, *CAPACITY_GROUPS), group):
            continue
        kind = as_text(raw.get("kind"))
        if (group, kind) in NODE_POOL_KINDS or (group, kind) in QUOTA_PATHS:
            continue
        fields, has_pods = _gpu_fields(raw, base, profile, pods, reads_texts=True)
        for path, name, is_request in fields:
            if not (has_pods and is_request):  # such a kind may state sums of what its pods request
                yield path, name


def gpu_fields_in_values(
    values: Json, profile: Profile, read_paths: Collection[Path] = ()
) -> Iterator[tuple[Path, str]]:
    """Return the fields of `gpu_fields_outside_pods` in a chart's values, but no requests.

    Requests in values are as they should be. What is at `read_paths` is evaluated otherwise.
    """
    raw = values if isinstance(values, list) else as_object(values)
    fields, _ = _gpu_fields(raw, (), profile, _PodPaths(read_paths))
    return ((path, name) for path, name, is_request in fields if not is_request)


def gpu_settings(
    document: Json, profile: Profile, read_paths: Collection[Path] = ()
) -> Iterator[tuple[Path, str]]:
    """Yield the fields of `gpu_fields_in_values` but those whose text only mentions a variable.

    Any file may mention one.
    """
    for path, name in gpu_fields_in_values(document, profile, read_paths):
        key = as_text(path[-1])
        if _VISIBLE_DEVICES not in name or key == "name" or _VISIBLE_DEVICES in key:
            yield path, name


class _PodPaths:
    """The paths of all pods of a manifest."""

    def __init__(self, paths: Collection[Path]) -> None:
        self._paths = frozenset(paths)
        self._last_steps = frozenset(path[-1] for path in paths if path)

    def has(self, base: Path, node: JsonNode) -> bool:
        """Return whether `node` of the object at `base` is a pod."""
        # The path of a node is built for few of them.
        may_be_pod = node.parent is None or node.key in self._last_steps
        return may_be_pod and (*base, *node.path) in self._paths

    def has_text(self, base: Path, holder: JsonNode, key: str | int) -> bool:
        """Return whether a pod is in the text of `holder` at `key`."""
        return key == _PATCH_FIELD and (*base, *holder.path, key) in self._paths


def _gpu_fields(
    raw: Mapping[str, Any] | list[Any],
    base: Path,
    profile: Profile,
    pods: _PodPaths,
    *,
    reads_texts: bool = False,
) -> tuple[list[tuple[Path, str, bool]], bool]:
    """The fields that tell of GPUs in the object or list `raw` at `base`, and whether it has pods.

    Of each field the path, the name, and whether it is a request. Nothing inside of pods counts.
    """
    found = _FoundFields()
    has_pods = False
    privileged: Path | None = None
    group = group_of(as_object(raw)) if reads_texts else ""
    has_texts = has_manifest_texts(group)
    texts = _Texts(is_read=reads_texts)
    visited: list[JsonNode] = []
    # The values, and the path of the text that each is in; None if it is in none.
    waiting: list[tuple[JsonNode, Path | None]] = [(JsonNode(raw), None)]
    while waiting:
        node, text_path = waiting.pop()
        held = node.value
        is_pod = text_path is None and pods.has(base, node)
        has_pods = has_pods or is_pod
        for key, name, value in _keys_and_names(held):
            is_patch = key == _PATCH_FIELD
            is_text_of_pod = is_patch and text_path is None and pods.has_text(base, node, key)
            has_pods = has_pods or is_text_of_pod
            if is_text_of_pod or (
                has_texts and is_manifest_text(group, key, held) and texts.is_yaml(held[key])
            ):
                continue  # rules evaluate what is in it
            if not is_pod or is_patch:
                if _may_tell(name, value):
                    told = _kind_and_name(name, value, node, profile)
                    path = text_path or (*base, *node.path, key)
                    found.add(*told, path, is_in_text=bool(text_path))
                if name == _PRIVILEGED and _is_true(value) and privileged is None:
                    privileged = text_path or (*base, *node.path, key)
                if text_path is None and isinstance(held[key], str):
                    read_values = map(JsonNode, texts.values_in(held[key]))
                    waiting += zip(read_values, repeat((*base, *node.path, key)))
        if not is_pod:
            waiting += zip(_read_children(node)[::-1], repeat(text_path))
            visited.append(node)
    if privileged and (found.kinds or any(map(_has_sign_of_gpus, visited, repeat(profile)))):
        found.fields.append((privileged, f"{_PRIVILEGED}: true", False))
    return found.fields, has_pods


def _read_children(node: JsonNode) -> list[JsonNode]:
    if node.parent is not None or "kind" not in node.value:
        return node.children()
    return [child for child in node.children() if child.key not in _UNREAD_FIELDS]


class _FoundFields:
    """The fields of an object that tell of GPUs: each with its path, and whether it is a request.

    `kinds` are those of the fields.
    """

    def __init__(self) -> None:
        self.fields: list[tuple[Path, str, bool]] = []
        self.kinds: set[str] = set()
        self._seen: set[tuple[str, str]] = set()

    def add(self, kind: str, name: str, path: Path, *, is_in_text: bool) -> None:
        """Add a field of a new kind or name; no request that is in a text."""
        by_name = kind in _KINDS_BY_NAME
        is_new = (kind, name) not in self._seen if by_name else kind not in self.kinds
        is_request = kind == _REQUEST_KIND
        if kind and is_new and len(self.fields) < _MAX_FIELDS and not (is_in_text and is_request):
            self.kinds.add(kind)
            self._seen.add((kind, name))
            self.fields.append((path, name, is_request))


class _Texts:
    """Reads the texts of one object, up to a number of characters; none unless `is_read`."""

    def __init__(self, *, is_read: bool) -> None:
        self._characters_left = _MAX_TEXT_CHARACTERS if is_read else 0

    def is_yaml(self, text: str) -> bool:
        """Return whether `text` is YAML, which a template may be; False if too much was read."""
        if not has_placeholder(text):
            return True
        if len(text) > self._characters_left:
            return False
        self._characters_left -= len(text)
        try:
            for chunk in split(text):
                read(chunk)
        except YamlError:
            return False
        return True

    def values_in(self, text: str) -> Iterator[dict[str, Any] | list[Any]]:
        """Yield what the documents in `text` hold, if it is YAML that tells of GPUs."""
        if len(text) > self._characters_left:
            return
        if not _MAY_BE_YAML(text) or not _TELLS_OF_GPUS(text):
            return
        self._characters_left -= len(text)
        try:
            for chunk in islice(split(text), _MAX_TEXT_DOCUMENTS):
                document = read(chunk)
                if document and isinstance(document.value, dict | list):
                    yield document.value
        except YamlError:
            return


def _is_true(value: Any) -> bool:
    return value is True or value == "true"


def _keys_and_names(held: Any) -> Iterator[tuple[str | int, str, Any]]:
    """Yield each key, the name of what it sets, and the value.

    A chart's parameter has the keys `name` and `value`, and its name is a path; so is the key in a
    map of such. Spark's settings have the name at their end too: `spark.executorEnv.NAME`. A JSON
    patch has a path and a value.
    """
    if isinstance(held, list):
        yield from ((index, "", value) for index, value in enumerate(held))
        return
    for key, value in held.items():
        is_annotation = "/" in key or key.startswith(_DEVICE_ANNOTATION_PREFIXES)
        yield key, key if is_annotation else key.rpartition(".")[2], value
    if "name" in held and "value" in held:
        name = as_text(held["name"])
        if "." in name or name in _TELLING_KEYS or name == _PRIVILEGED:
            yield "name", name.rpartition(".")[2], held["value"]
    elif "path" in held and "value" in held:
        yield "path", as_text(held["path"]).rpartition("/")[2], held["value"]


def _has_sign_of_gpus(node: JsonNode, profile: Profile) -> bool:
    """Return whether fields outside of pods show that a program uses devices, or a GPU node."""
    held = node.value
    if not isinstance(held, dict):
        return False
    if any(
        _is_variable_of_driver(*pair) or _is_image_for_devices(*pair, held)
        for pair in _variables_and_fields(held)
    ):
        return True
    selects = node.key == _SELECTOR_FIELD
    labels = ((key, as_text(value)) for key, value in held.items() if selects or "/" in key)
    if any(profile.is_gpu_label(key, value) for key, value in labels):
        return True
    key, values = as_text(held.get("key")), held.get("values")
    return isinstance(values, list) and any(
        profile.is_gpu_label(key, as_text(value)) for value in values
    )


def _variables_and_fields(held: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields, and the variable that is an entry of `env`."""
    yield from ((as_text(key), as_text(value)) for key, value in held.items())
    if "name" in held and "value" in held:
        yield as_text(held["name"]), as_text(held["value"])


def _is_variable_of_driver(name: str, value: str) -> bool:
    is_read = name.startswith(DRIVER_VARIABLE_PREFIXES) or name.endswith(DRIVER_VARIABLE_SUFFIX)
    return is_read and value not in VALUES_HIDING_GPUS


def _is_image_for_devices(key: str, value: str, holder: Mapping[str, Any]) -> bool:
    if key not in ("image", "repository"):
        return False
    return (
        maker_of_image(f"{value}:{tag}" if (tag := as_text(holder.get("tag"))) else value)
        is not None
    )


def _may_tell(key: str, value: Any) -> bool:
    """Return whether `_kind_and_name`, which takes longer, may find something."""
    if isinstance(value, str) and (_VISIBLE_DEVICES in value or value.startswith(_DEVICE_FOLDER)):
        return True
    is_annotation = "/" in key or key.startswith(_DEVICE_ANNOTATION_PREFIXES)
    return is_annotation or key in _TELLING_KEYS or _VISIBLE_DEVICES in key


def _kind_and_name(name: str, value: Any, holder: JsonNode, profile: Profile) -> tuple[str, str]:
    """Return the kind and the name of what `name` with its `value` says about GPUs.

    Both texts are empty if it says nothing about them.
    """
    text = as_text(value)
    if _is_request(name, holder, profile):
        return _REQUEST_KIND, name
    if name == _DEVICE_NAME_FIELD and holder.parent and holder.parent.key == _GPUS_FIELD:
        return _REQUEST_KIND, text
    if name == _RUNTIME_CLASS_FIELD and text in profile.runtime_classes:
        return _RUNTIME_CLASS_FIELD, f"{_RUNTIME_CLASS_FIELD}: {text}"
    for variable in (name, text if name == "name" else ""):
        if _VISIBLE_DEVICES in variable and profile.visible_variable(variable):
            return _VISIBLE_DEVICES, variable
    for mentioned in _mentioned_variables(text):
        if profile.visible_variable(mentioned):
            return _VISIBLE_DEVICES, mentioned
    return _kind_and_name_of_device(name, text, profile)


def _mentioned_variables(text: str) -> Iterator[str]:
    yield from _VARIABLES_IN(text[:_MAX_TEXT_CHARACTERS])
    if _NVIDIAS_VARIABLE in text:
        yield _NVIDIAS_VARIABLE


def _kind_and_name_of_device(key: str, text: str, profile: Profile) -> tuple[str, str]:
    if (text and key.startswith(_CDI_PREFIXES)) or (
        key.startswith(INJECTOR_DOMAINS) and _may_name_gpu(text, profile)
    ):
        return _DEVICE_ANNOTATION, f"{key}: {text}"
    return (_DEVICE_FILE, text) if _is_gpu_device_file(text) else ("", "")


def _may_name_gpu(devices: str, profile: Profile) -> bool:
    return not is_plain_list(devices) or any(names_of_gpus(devices, profile, with_helpers=True))


def _is_request(key: str, holder: JsonNode, profile: Profile) -> bool:
    if key == _GPU_COUNT_KEY:
        return holder.key in _AMOUNT_FIELDS
    return "/" in key and profile.resource(key) is not None


def _is_gpu_device_file(text: str) -> bool:
    """Return whether `text` is the path of a device file of a GPU.

    A path in the container may follow it.
    """
    if not text.startswith(_DEVICE_FOLDER) or len(text) > _MAX_PATH_CHARACTERS:
        return False
    return is_gpu_file(clean_path(text.partition(":")[0]))
