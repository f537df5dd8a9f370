"""Read which services of a compose file get GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeyaml import YamlError, read, split
from lint.container_files.placed import PlacedSetting, UnreadableError
from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_values import Path
from rules.gpu.images import is_cuda_image
from rules.gpu.scripts import is_gpu_device
from rules.objects.file_settings import ContainerSetting
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile

_RESERVED = ("deploy", "resources", "reservations")


def compose_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[PlacedSetting]:
    """What gives services GPUs. Raises UnreadableError for what is no YAML."""
    try:
        for chunk in split(text):
            document = read(chunk)
            services = as_object(document.value).get("services") if document else None
            for name, raw in as_object(services).items():
                holder = f'service "{name}"'
                for path, key, value in _settings(as_object(raw)):
                    known = profile.visible_variable(key)
                    if known or path[0] != "environment":
                        setting = ContainerSetting(file, holder, key, value, known)
                        place: Path = ("services", name, *path)
                        yield PlacedSetting(setting, document=document, path=place)
    except YamlError as error:
        raise UnreadableError(error.message, error.offset) from error


def _settings(service: Mapping[str, Any]) -> Iterator[tuple[Path, str, str | None]]:
    """The path, the name and the value of each setting that may give a GPU."""
    if gpus := service.get("gpus"):
        yield ("gpus",), "gpus", as_text(gpus)
    if as_text(service.get("runtime")).startswith("nvidia"):
        yield ("runtime",), "runtime", as_text(service.get("runtime"))
    if service.get("privileged") is True and is_cuda_image(as_text(service.get("image"))):
        yield ("privileged",), "privileged", ""
    devices = service.get("devices")
    for index, entry in enumerate(devices if isinstance(devices, list) else ()):
        source = as_text(entry) or as_text(as_object(entry).get("source"))
        if is_gpu_device(source):
            yield ("devices", index), "devices", source
    reserved: Any = service
    for key in _RESERVED:
        reserved = as_object(as_object(reserved).get(key))
    for index, entry in as_objects(reserved.get("devices")):
        if _is_gpu(entry):
            yield (*_RESERVED, "devices", index), "deploy.resources.reservations.devices", ""
    yield from _environment(service.get("environment"))


def _is_gpu(device: Mapping[str, Any]) -> bool:
    capabilities = device.get("capabilities")
    words = capabilities if isinstance(capabilities, list) else []
    driver = as_text(device.get("driver"))
    return "gpu" in words or "nvidia" in driver or any("gpu" in as_text(w) for w in words)


def _environment(raw: Any) -> Iterator[tuple[Path, str, str | None]]:
    if isinstance(raw, list):
        for index, entry in enumerate(raw):
            name, equals, value = as_text(entry).partition("=")
            yield ("environment", index), name, value if equals else None
    for name, value in as_object(raw).items():
        yield ("environment", name), name, None if value is None else str(value)
