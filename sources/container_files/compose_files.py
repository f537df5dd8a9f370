"""The settings of a compose file that give its services GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubeyaml import YamlError, read, split
from rules.base.json_values import Path, as_object, as_objects, as_text
from rules.gpu.commands.container_tools import is_gpu_device, is_gpu_volume
from rules.gpu.images import is_cuda_image
from rules.gpu.volumes import is_device_request
from rules.objects.file_settings import ContainerSetting
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile
from sources.container_files.settings import ContainerFileError, LocatedSetting
from sources.sources import has_placeholder

_TEMPLATE_REASON = "a template that is no YAML: lint what it renders to"
_DEVICES_PATH = ("deploy", "resources", "reservations")


def compose_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """Yield the settings that give services GPUs. Raises ContainerFileError for what is no YAML."""
    try:
        for chunk in split(text):
            document = read(chunk)
            services = as_object(document.value).get("services") if document else None
            for name, raw in as_object(services).items():
                holder = f'service "{name}"'
                for path, key, value in _settings_of_service(as_object(raw)):
                    known = profile.visible_variable(key)
                    if known or path[0] != "environment":
                        setting = ContainerSetting(file, holder, key, value, known)
                        place: Path = ("services", name, *path)
                        yield LocatedSetting(setting, document=document, path=place)
    except YamlError as error:
        why = _TEMPLATE_REASON if has_placeholder(text) else error.message
        raise ContainerFileError(why, error.offset) from error


def _settings_of_service(service: Mapping[str, Any]) -> Iterator[tuple[Path, str, str | None]]:
    """The path, the name and the value of each setting that may give a GPU."""
    if gpus := service.get("gpus"):
        yield ("gpus",), "gpus", _text(gpus)
    runtime = _text(service.get("runtime"))
    if runtime.startswith("nvidia"):
        yield ("runtime",), "runtime", runtime
    if _is_true(service.get("privileged")) and is_cuda_image(_text(service.get("image"))):
        yield ("privileged",), "privileged", ""
    yield from _devices_and_volumes(service)
    yield from _environment_entries(service.get("environment"))


def _devices_and_volumes(service: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    for index, entry in _entries(service.get("devices")):
        source = _text(entry) or _text(as_object(entry).get("source"))
        if is_gpu_device(source):
            yield ("devices", index), "devices", source
    for index, entry in _entries(service.get("volumes")):
        written = _text(entry)
        source, target = (_text(as_object(entry).get(key)) for key in ("source", "target"))
        if is_gpu_volume(written) or is_device_request(source, target):
            yield ("volumes", index), "volumes", written or f"{source}:{target}"
    reserved: Any = service
    for key in _DEVICES_PATH:
        reserved = as_object(as_object(reserved).get(key))
    for index, entry in as_objects(reserved.get("devices")):
        if _is_gpu_reservation(entry):
            yield (*_DEVICES_PATH, "devices", index), "deploy.resources.reservations.devices", ""


def _entries(raw: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(raw if isinstance(raw, list) else ())


def _is_gpu_reservation(device: Mapping[str, Any]) -> bool:
    capabilities = [_text(word) for _, word in _entries(device.get("capabilities"))]
    if "nvidia" in _text(device.get("driver")) or any("gpu" in word for word in capabilities):
        return True
    return any(is_gpu_device(_text(one)) for _, one in _entries(device.get("device_ids")))


def _environment_entries(raw: Any) -> Iterator[tuple[Path, str, str | None]]:
    for index, entry in _entries(raw):
        name, equals, value = as_text(entry).partition("=")
        yield ("environment", index), name, interpolated(value) if equals else None
    for name, value in as_object(raw).items():
        text = None if value is None else interpolated(_scalar(value))
        yield ("environment", name), name, text


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_true(value: Any) -> bool:
    return value is True or _text(value) == "true"


def _text(value: Any) -> str:
    """`value` as compose reads it; as it is written if that depends on the environment."""
    written = as_text(value)
    read_as = interpolated(written)
    return written if read_as is None else read_as


# `$$`, `$NAME`, and `${NAME}` with an operator and a text, which may have such references itself.
_REFERENCE_PATTERN = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<name>\w++)"
    r"|\{(?P<braced>\w++)(?P<operator>:?[-+?])?(?P<other>(?:[^{}]++|\{[^{}]*+\})*+)\})"
)
_MAX_DEPTH = 3


def interpolated(text: str, depth: int = 0) -> str | None:
    """Return `text` with what stands in place of variables that the environment does not have.

    None if it has a variable without another value. Source:
    https://docs.docker.com/reference/compose-file/interpolation/
    """
    parts, end = [], 0
    for match in _REFERENCE_PATTERN.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match["dollar"]:
            parts.append("$")
        elif (match["operator"] or "").endswith("-") and depth < _MAX_DEPTH:
            other = interpolated(match["other"], depth + 1)
            if other is None:
                return None
            parts.append(other)
        elif not (match["operator"] or "").endswith("+"):
            return None
    return "".join((*parts, text[end:]))
