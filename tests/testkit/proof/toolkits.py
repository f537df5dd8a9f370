"""Asks NVIDIA's container toolkits about many containers, without starting them.

For each configuration of a toolkit one process answers for all containers. It is the toolkit's own
runtime, up to the start of runc, and in mode legacy its own hook, up to the start of
libnvidia-container: see `toolkit-answers`. `Node` starts containers, and gives the same answers.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.testkit.container_runtime.node import (
    Answer,
    Container,
    Node,
    Settings,
    gpus_named,
    oci_spec,
    toolkit_config,
)
from tests.testkit.container_runtime.programs import TOOLKITS, toolkit_answers

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - what is written for each container needs no disk
_CONTROL = "nvidiactl"
_SWARM = "DOCKER_RESOURCE_GPU"
_OTHER_VARIABLES = frozenset({"CUDA_VERSION", _SWARM})
SETTINGS = tuple(
    itertools.starmap(
        Settings,
        itertools.product(
            sorted(TOOLKITS),
            ("cdi", "legacy"),
            (True, False),
            (False, True),
            ("", _SWARM),
        ),
    )
)
"""Every configuration of the model: version, mode, and what the toolkit accepts."""


def reduced(container: Container) -> Container:
    """Return the container with the variables that a toolkit may read, in an order of their own.

    Containers that are alike then are asked about once.
    """
    return container._replace(
        env=tuple(sorted(each for each in container.env if _is_read(each[0])))
    )


def _is_read(variable: str) -> bool:
    return variable.startswith("NVIDIA_") or variable in _OTHER_VARIABLES


def equivalent(container: Container, settings: Settings) -> Settings:
    """Return the settings in which the container gets the same, and which are asked once.

    Whether the toolkit accepts mounts matters only to containers with such mounts, and what it
    reads in place of NVIDIA_VISIBLE_DEVICES only to containers with that variable.
    """
    if not any(source for source, _ in container.mounts):
        settings = settings._replace(volume_mounts=False)
    if settings.swarm_resource not in dict(container.env):
        settings = settings._replace(swarm_resource="")
    return settings


class Toolkits:
    """The toolkits of a node, in every configuration."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._folders: dict[Settings, Path] = {}

    def ask(self, containers: Sequence[Container], settings: Settings) -> list[Answer]:
        """Return what each container gets, in their order."""
        folder = self._configured(settings)
        lines = (json.dumps(oci_spec(each, "/group", self._node.folder)) for each in containers)
        done = subprocess.run(
            [
                str(toolkit_answers(settings.version)),
                f"-config={folder / 'nvidia-container-runtime' / 'config.toml'}",
                f"-bundle={folder}",
            ],
            input="".join(f"{line}\n" for line in lines),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"XDG_CONFIG_HOME": str(folder), "GOMAXPROCS": "1"},
            text=True,
            check=True,
        )
        return [_answer(json.loads(line)) for line in done.stdout.splitlines()]

    def _configured(self, settings: Settings) -> Path:
        if settings not in self._folders:
            folder = self._node.folder / f"toolkit{len(self._folders)}"
            (folder / "nvidia-container-runtime").mkdir(parents=True)
            nothing = folder / "nothing"  # in place of runc, libnvidia-container and the hook
            nothing.touch(0o755)
            text = toolkit_config(settings, nothing, nothing, nothing, self._node.folder)
            (folder / "nvidia-container-runtime" / "config.toml").write_text(text, "utf-8")
            self._folders[settings] = folder
        return self._folders[settings]


@contextmanager
def toolkits(folder: Path) -> Iterator[Toolkits]:
    """The toolkits of a node in memory, if the machine has a file system there, or in `folder`."""
    node = Node(_IN_MEMORY if _IN_MEMORY.is_dir() else folder)
    try:
        yield Toolkits(node)
    finally:
        node.stop()


def _answer(found: Mapping[str, Any]) -> Answer:
    """The answer of the program toolkit-answers as that of a `Node`."""
    if found["error"]:
        return Answer(frozenset(), error=found["error"])
    names = {Path(path).relative_to("/dev").parts[0] for path in found["devices"] or ()}
    names.discard(_CONTROL)
    gpus = {name for name in names if name.removeprefix("nvidia").isdigit()}
    others = names - gpus
    indices = {name.removeprefix("nvidia") for name in gpus}
    asked = found["asked"]
    if asked:
        indices |= gpus_named(asked["Devices"] or ())
        kinds = {
            "MIG config": asked["MigConfigDevices"],
            "MIG monitor": asked["MigMonitorDevices"],
            "IMEX": asked["ImexChannels"],
        }
        others |= {kind for kind, value in kinds.items() if value}
    return Answer(frozenset(indices), frozenset(others), has_driver=bool(asked))
