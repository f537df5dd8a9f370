"""A configuration of NVIDIA's device plugin shares GPUs in a way that it ignores or refuses.

What it does
------------
Reads the files of a ConfigMap that are configurations of NVIDIA's device plugin, with `version: v1`
and a way to share cards, whatever the ConfigMap is called, and such texts in the values for a
chart: in a HelmRelease of Flux, in an Application of Argo CD (`valuesObject` or `values`), and in
files with `values` in their name, or in a ConfigMap with such a file. Finds `timeSlicing` and `mps`
beside `sharing` in place of below it, `renameByDefault` and `failRequestsGreaterThanOne` anywhere
but in `sharing.timeSlicing` or `sharing.mps`; `rename` and `devices` of a resource; names of
resources that the device plugin does not have, such as `nvidia.com/gpus` or
`nvidia.com/gpu.shared`; and `replicas: 1`. It is an error if `replicas` are missing, no whole
number, or below 1. A file that is more than maps and lists in block style is not read.

Why it matters
--------------
The device plugin ignores what is in the wrong place. With `renameByDefault` under `flags`, the
replicas are called `nvidia.com/gpu`: pods that ask for a whole card get a tenth of one, and pods
that ask for `nvidia.com/gpu.shared` stay Pending. With `replicas` that it cannot read, it does not
start, and the node offers no GPU.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus
- https://github.com/NVIDIA/k8s-device-plugin/issues/1433
- https://github.com/NVIDIA/k8s-device-plugin/issues/353
- NVIDIA/k8s-device-plugin, `api/config/v1/config.go`, `replicas.go`, `resources.go`
"""

import re
from collections.abc import Iterator

from rules.base.block_yaml import KeyPath, PathAndText, read_block_yaml
from rules.base.json_values import display
from rules.base.traits import DEVICE_PLUGIN_CONFIG
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule
from rules.workloads.files_in_objects import is_values, plugin_configurations

_SHARING_WAYS = ("timeSlicing", "mps")
_BOOLEAN_SETTINGS = ("renameByDefault", "failRequestsGreaterThanOne")
_UNSUPPORTED_FIELDS = ("rename", "devices")
_PREFIX = "nvidia.com/"
_RESOURCE_NAME_PATTERN = re.compile(r"gpu|mig-\d{1,2}c?\.?[a-z0-9.+-]{1,40}")
_SHARED_SUFFIX = ".shared"


def check(subject: KubernetesObject, _context: Context) -> Findings:
    """Yield what each configuration in the ConfigMap says that has no effect, or a bad one."""
    for place, keys, text in plugin_configurations(subject.raw):
        values = read_block_yaml(text)
        if values is None or not _is_plugin_configuration(values):
            continue
        name = ".".join(map(str, keys if is_values(subject.raw) else keys[1:]))
        for key, message, advice, action in _faults(values):
            yield Finding(
                path=(*subject.path, *place),
                key=f"{name}.{key}",
                message=f"the configuration {display(str(keys[-1]))} of the device plugin "
                f"{message}",
                help=advice,
                action=action,
            )


def _is_plugin_configuration(values: list[PathAndText]) -> bool:
    has_sharing = any(v.path[0] in ("sharing", *_SHARING_WAYS) for v in values)
    return PathAndText(("version",), "v1") in values and has_sharing


def _faults(values: list[PathAndText]) -> Iterator[tuple[str, str, str, Action]]:
    """The key, the message, the advice and the action of each fault."""
    for value in values:
        key = value.path[-1]
        if len(value.path) == 1 and key in _SHARING_WAYS:
            message = f"has {key} at the top, where the device plugin ignores it: it shares no card"
            yield str(key), message, f"move {key} below sharing", Action.WARN
        if key in _BOOLEAN_SETTINGS and not _is_sharing_way(value.path[:-1]):
            yield (
                ".".join(map(str, value.path)),
                (
                    f"has {key} at {display(_path_text(value.path))}, "
                    "where the device plugin ignores it"
                ),
                f"move {key} to sharing.timeSlicing",
                Action.WARN,
            )
    paths = {value.path: value.text for value in values}
    for entry in dict.fromkeys(path[:4] for path in paths if _is_resource_entry(path[:4])):
        yield from _faults_of_resource(entry, paths)


def _faults_of_resource(
    entry: KeyPath, paths: dict[KeyPath, str]
) -> Iterator[tuple[str, str, str, Action]]:
    place = _path_text(entry)
    name = paths.get((*entry, "name"), "")
    if name and not _is_resource_of_plugin(name):
        base = name.removesuffix(_SHARED_SUFFIX)
        right = base if base != name and _is_resource_of_plugin(base) else f"{_PREFIX}gpu"
        yield (
            f"{place}.name",
            f"names the resource {display(name)}, which it does not have: it makes no replicas",
            f"write {right}",
            Action.WARN,
        )
    for key in _UNSUPPORTED_FIELDS:
        if (*entry, key) in paths:
            yield (
                f"{place}.{key}",
                f"has {key} at {display(place)}, which it does not support: it shares all cards",
                f"remove {key}",
                Action.WARN,
            )
    yield from _faults_of_replicas(place, paths.get((*entry, "replicas")))


def _faults_of_replicas(place: str, replicas: str | None) -> Iterator[tuple[str, str, str, Action]]:
    key, advice = f"{place}.replicas", "write how many pods may share a card, at least 2"
    if replicas == "1":
        message = f"has replicas: 1 at {display(place)}, which shares nothing"
        yield key, message, advice, Action.WARN
    elif replicas is None or not re.fullmatch(r"0*[1-9][0-9]{0,8}", replicas):
        said = "no replicas" if replicas is None else f"replicas: {display(replicas)}"
        message = f"has {said} at {display(place)}: it does not start, and the node offers no GPU"
        yield key, message, advice, Action.DENY


def _is_resource_of_plugin(name: str) -> bool:
    """Return whether the device plugin has a resource of this name, to which it adds its domain."""
    return _RESOURCE_NAME_PATTERN.fullmatch(
        name.removeprefix(_PREFIX)
    ) is not None and not name.endswith(_SHARED_SUFFIX)


def _is_sharing_way(path: KeyPath) -> bool:
    return len(path) == 2 and path[0] == "sharing" and path[1] in _SHARING_WAYS  # noqa: PLR2004  # sharing, the way


def _is_resource_entry(path: KeyPath) -> bool:
    return len(path) == 4 and _is_sharing_way(path[:2]) and path[2] == "resources"  # noqa: PLR2004  # as above, and resources, the index


def _path_text(path: KeyPath) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(DEVICE_PLUGIN_CONFIG,))
