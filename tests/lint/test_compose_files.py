"""Compose files, as Docker Compose reads them: tests/oracles/compose has made the table."""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from policies.profiles import merged_profile
from rules.container_files.compose_gpu import check
from rules.gpu.commands.container_tools import is_gpu_device
from rules.gpu.visibility import Visibility, parse_visibility
from rules.gpu.volumes import is_device_request
from rules.objects.file_settings import ContainerSetting
from rules.objects.object_ref import ObjectRef
from rules.rule import Context
from sources.container_files.compose_files import compose_settings, interpolated
from tests.testkit.paths import ROOT

TODAY = datetime.date(2026, 1, 1)
PROFILE = merged_profile(["nvidia"])
FILE = ObjectRef("Compose file", "", "", "compose.yaml")
RESERVED = "deploy.resources.reservations.devices"
ROWS = [
    tuple(map(json.loads, line.split("\t")))
    for line in (ROOT / "tests" / "data" / "compose_files.tsv").read_text("utf-8").splitlines()
]


def gpu_settings(service: Mapping[str, Any]) -> Iterator[str]:
    """The names of the settings that give a service a GPU, from what compose makes of it."""
    if service.get("gpus"):
        yield "gpus"
    if service.get("runtime", "").startswith("nvidia"):
        yield "runtime"
    if any(map(is_gpu_device, service.get("devices", ()))):
        yield "devices"
    if any(is_device_request(*volume) for volume in service.get("volumes", ())):
        yield "volumes"
    for device in service.get("reserved", ()):
        is_gpu = any("gpu" in word for word in device.get("capabilities") or ())
        by_id = any(map(is_gpu_device, device.get("ids") or ()))
        if is_gpu or by_id or "nvidia" in device.get("driver", ""):
            yield RESERVED
    for name, value in service.get("environment", {}).items():
        known = PROFILE.visible_variable(name)
        is_granted = known and value and parse_visibility(value, known) is Visibility.GRANTED
        if known and (value is None or is_granted):
            yield name


@pytest.mark.parametrize(("text", "answer"), ROWS)
def test_services_get_gpus_by_what_compose_gives_them(text: str, answer: Mapping[str, Any]) -> None:
    found = defaultdict(set)
    for located in compose_settings(text, FILE, PROFILE):
        setting = located.setting
        assert isinstance(setting, ContainerSetting)
        if any(check(setting, Context(TODAY, profile=PROFILE))):
            found[setting.holder].add(setting.name)
    for name, service in answer.items():
        own = found[f'service "{name}"'] - {"privileged"}
        # A variable of the environment has no value there, and may have one elsewhere.
        own -= {key for key, value in service.get("environment", {}).items() if value == ""}
        wanted = set(gpu_settings(service))
        assert own <= wanted
        if f"  {name}:" in text and "extends" not in text:  # else reported at the other service
            assert own == wanted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("all", "all"),
        ("$$X", "$X"),
        ("${X:-all}", "all"),
        ("${X-${Y:-0}},1", "0,1"),
        ("${X:+all}", ""),
        ("$X", None),
        ("${X}", None),
        ("${X:?needed}", None),
        ("${X:-$Y}", None),
        ("${X", "${X"),
    ],
)
def test_variables_of_the_environment(text: str, value: str | None) -> None:
    assert interpolated(text) == value


def test_hostile_references_end() -> None:
    assert interpolated("${X:-" * 100_000)
    assert interpolated("$" * 100_001)
    assert interpolated("${" + "X" * 1_000_000)
