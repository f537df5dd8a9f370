"""Command lines of docker, as its own program reads them, and those of ctr and podman.

The program tests/oracles/docker_run has made the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.gpu.commands.container_tools import RunOption, run_options
from tests.testkit.paths import ROOT

ROWS = [
    tuple(map(json.loads, line.split("\t")))
    for line in (ROOT / "tests" / "data" / "docker_run.tsv").read_text("utf-8").splitlines()
]


def values(options: list[RunOption], *names: str) -> list[str]:
    return [option.value or "" for option in options if option.name in names]


@pytest.mark.parametrize(("words", "answer"), ROWS)
def test_docker_is_asked_for_what_is_found(words: list[str], answer: dict[str, Any]) -> None:
    options = list(run_options(["docker", *words]))
    plain = [option for option in options if not option.is_variable]
    environment = {option.name: option.value for option in options if option.is_variable}
    assert bool(values(plain, "--gpus")) == answer["gpus"]
    assert values(plain, "--runtime")[-1:] == ([answer["runtime"]] if answer["runtime"] else [])
    assert {f"{name}={value}" for name, value in environment.items()} == {*(answer["env"] or ())}
    devices = (value.split(":")[0] for value in values(plain, "--device"))
    assert {*devices} == {*(answer["devices"] or ())}
    binds = {value for value in values(plain, "-v", "--volume") if ":" in value}
    assert binds == {*(answer["binds"] or ())}


@pytest.mark.parametrize(
    "line",
    [
        "ctr run --gpus 0 image name",
        "ctr run -gpus 0 image name",
        "ctr run image --gpus 0 name",
        "ctr run --with-ns network:/run/x --gpus 0 image name",
        "ctr -n k8s.io c create --runc-systemd-cgroup --gpus 0 image name",
        "podman --cgroup-manager cgroupfs run --no-hostname --gpus all image",
        "podman run --read-only-tmpfs --passwd --gpus=all image",
        "nerdctl --data-root /x --insecure-registry run --gpus all image",
        "docker run --an-option-of-tomorrow --gpus all image",
        "docker run -e --gpus all image",
    ],
)
def test_gpus_are_found_behind_other_options(line: str) -> None:
    assert [option.name for option in run_options(line.split()) if option.name == "--gpus"]


@pytest.mark.parametrize(
    "line",
    [
        "docker run image --gpus all",
        "docker run -it -- image --gpus all",
        "docker run --use-api-socket image --gpus all",
        "ctr run image name --gpus 0",
        "ctr run",
        "docker",
    ],
)
def test_words_of_the_container_are_no_options(line: str) -> None:
    assert [*run_options(line.split())] == []
