"""Starts containers by NVIDIA's container runtime and runc, and says which devices they see.

No GPU is needed. The devices of a `Node` are files in a folder of its own, with NVIDIA's device
numbers, behind which there is no driver. Nothing outside of that folder is used but a control
group, and nothing is left behind.

In mode `cdi` the devices are real: the container lists them itself. In mode `legacy` the toolkit
calls libnvidia-container, which needs a driver. Its program is replaced by one that writes its
arguments down, so there the answer is what NVIDIA's own hook asks for.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.testkit.container_runtime import cleanup
from tests.testkit.container_runtime.programs import TOOLKITS, runc, toolkit

GPUS = {
    "0": "GPU-8f2c",
    "1": "GPU-91d3",
    "2": "GPU-c05e",
}
"""The GPUs of a node: their UUIDs by index."""
ALL = frozenset(GPUS)
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
SYS_ADMIN = "CAP_SYS_ADMIN"
DEVICE_MAJOR = 195  # the number of NVIDIA's driver; here also of the other devices
_CONTROL = 255  # the minor number of /dev/nvidiactl, which comes with every GPU
_OTHERS = ("infiniband/uverbs0", "infiniband/rdma_cm", "nvidia-nvswitchctl", "nvidia-fs0", "gdrdrv")
DEVICES = {
    **dict(enumerate((*(f"nvidia{index}" for index in GPUS), *_OTHERS))),
    _CONTROL: "nvidiactl",
}
"""The devices of a node by their minor numbers."""
_LEGACY = {"--mig-config": "MIG config", "--mig-monitor": "MIG monitor", "--imex-channel": "IMEX"}
_ENDS_WITHIN = 60  # seconds; what the container runs takes a few milliseconds
_groups = itertools.count()


class Settings(NamedTuple):
    """The configuration of NVIDIA's container toolkit."""

    version: str = max(TOOLKITS)
    mode: str = "cdi"
    env_when_unprivileged: bool = True
    """Whether the variable counts in a container without SYS_ADMIN: the toolkit's default."""
    volume_mounts: bool = False
    """Whether devices can be requested by mounts; not the toolkit's default."""
    swarm_resource: str = ""
    """Variables that count in place of NVIDIA_VISIBLE_DEVICES where they are set."""


class Container(NamedTuple):
    """A container, as the kubelet and containerd describe it to the runtime."""

    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    """The path on the node and that in the container. Paths below /dev are those of the `Node`."""
    annotations: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()
    is_privileged: bool = False


class Answer(NamedTuple):
    """The devices that a container got."""

    gpus: frozenset[str]
    """The indices of GPUs; in mode legacy also names of devices that the node does not have."""
    others: frozenset[str] = frozenset()
    """Other devices, such as `infiniband` or `IMEX`."""
    has_driver: bool = False
    """Mode legacy: whether libnvidia-container is asked for anything, if only for its libraries."""
    error: str = ""
    """Why the container did not start; empty if it did."""

    def __str__(self) -> str:
        if self.error:
            return "does not start"
        gpus = ["all"] if self.gpus == ALL else sorted(self.gpus)
        return " + ".join([*gpus, *sorted(self.others)]) or (
            "driver" if self.has_driver else "none"
        )


class Node:
    """A node with three GPUs. `stop` ends and removes everything, and so does the end of Python."""

    def __init__(self, folder: Path) -> None:
        self._runc = runc()
        self.group = f"gpuward-{os.getpid()}-{next(_groups)}"
        self.folder = Path(tempfile.mkdtemp(prefix="node-", dir=folder))
        self._numbers = itertools.count()
        self._answers: dict[tuple[Container, Settings], Answer] = {}
        self._configured: dict[Settings, Path] = {}
        self._cleanup = subprocess.Popen(
            [sys.executable, "-I", "-S", cleanup.__file__, self.group, str(self.folder)],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        self._make_devices()

    def ask(self, container: Container, settings: Settings) -> Answer:
        """Return what a container gets. One that was started before is not started again."""
        if (container, settings) not in self._answers:
            self._answers[container, settings] = self.run(container, settings)
        return self._answers[container, settings]

    def run(self, container: Container, settings: Settings) -> Answer:
        """Start a container, which ends at once, and say what it got."""
        name = f"c{next(self._numbers)}"
        bundle = self.folder / name
        root = bundle / "root"
        root.mkdir(parents=True)
        os.link(self._runc["show-devices"], root / "show-devices")
        spec = oci_spec(container, f"/{self.group}/{name}", self.folder)
        (bundle / "config.json").write_text(json.dumps(spec), encoding="utf-8")
        runtime = toolkit(settings.version)["nvidia-container-runtime"]
        state = f"--root={self.folder / 'state'}"
        process = bundle / "process"
        create = [state, "create", f"--bundle={bundle}", f"--pid-file={process}", name]
        environment = {"XDG_CONFIG_HOME": str(self._config(settings)), "PATH": os.environ["PATH"]}
        try:
            created = self._call([str(runtime), *create], bundle, environment)
            if created:
                return Answer(frozenset(), error=(bundle / "stderr").read_text().strip())
            with _handle(int(process.read_text())) as ended:
                assert not self._call([str(self._runc["runc"]), state, "start", name], bundle)
                assert select.select([ended], [], [], _ENDS_WITHIN)[0], f"{container} does not end"
            return _answer(bundle)
        finally:
            self._call([str(self._runc["runc"]), state, "delete", "--force", name], bundle)
            shutil.rmtree(bundle)

    def stop(self) -> None:
        """End and remove everything."""
        assert self._cleanup.stdin is not None
        self._cleanup.stdin.close()
        assert not self._cleanup.wait(), "not everything could be removed"

    def _call(
        self, command: list[str], bundle: Path, environment: Mapping[str, str] | None = None
    ) -> int:
        """Run a program on the node; its exit status."""
        with (bundle / "stdout").open("ab") as out, (bundle / "stderr").open("ab") as err:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                check=False,
                process_group=self._cleanup.pid,
            ).returncode

    def _make_devices(self) -> None:
        devices = self.folder / "dev"
        (devices / "infiniband").mkdir(parents=True)
        (devices / "char").mkdir()
        for minor, name in DEVICES.items():
            os.mknod(devices / name, stat.S_IFCHR | 0o666, os.makedev(DEVICE_MAJOR, minor))
            (devices / "char" / f"{DEVICE_MAJOR}:{minor}").symlink_to(f"../{name}")
        (self.folder / "cdi").mkdir()
        text = json.dumps(cdi_spec(devices))
        (self.folder / "cdi" / "nvidia.json").write_text(text, encoding="utf-8")

    def _config(self, settings: Settings) -> Path:
        """The folder with the configuration of the toolkit."""
        if settings not in self._configured:
            home = self.folder / f"config{len(self._configured)}"
            (home / "nvidia-container-runtime").mkdir(parents=True)
            cli = home / "nvidia-container-cli"
            os.link(self._runc["show-devices"], cli)
            file = home / "nvidia-container-runtime" / "config.toml"
            # Version 1.17 of the hook reads only /etc and this option.
            hook = home / "nvidia-container-runtime-hook"
            real = toolkit(settings.version)[hook.name]
            hook.write_text(f'#!/bin/sh\nexec {real} --config={file} "$@"\n', encoding="utf-8")
            hook.chmod(0o755)
            text = toolkit_config(settings, self._runc["runc"], cli, hook, self.folder)
            file.write_text(text, encoding="utf-8")
            self._configured[settings] = home
        return self._configured[settings]


def cdi_spec(devices: Path) -> dict[str, Any]:
    """The CDI specification of the GPUs, by index, UUID and as `all`, in the folder `devices`."""
    named = [(name, [i]) for i, uuid in GPUS.items() for name in (i, uuid)]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": _nodes(devices, indices)}}
            for name, indices in [*named, ("all", list(GPUS))]
        ],
        "containerEdits": {"deviceNodes": _nodes(devices, ["ctl"])},
    }


def _nodes(devices: Path, names: list[str]) -> list[dict[str, str]]:
    return [
        {"path": f"/dev/nvidia{name}", "hostPath": str(devices / f"nvidia{name}")} for name in names
    ]


@contextmanager
def _handle(process: int) -> Iterator[int]:
    """A file descriptor of a process, which can be read once it has ended."""
    handle = os.pidfd_open(process)
    try:
        yield handle
    finally:
        os.close(handle)


def toolkit_config(settings: Settings, low_level: Path, cli: Path, hook: Path, folder: Path) -> str:
    """The toolkit's config.toml. The folder `cdi` below `folder` has the CDI specification."""
    env = str(settings.env_when_unprivileged).lower()
    mounts = str(settings.volume_mounts).lower()
    swarm = f'swarm-resource = "{settings.swarm_resource}"\n' if settings.swarm_resource else ""
    return f"""{swarm}accept-nvidia-visible-devices-envvar-when-unprivileged = {env}
accept-nvidia-visible-devices-as-volume-mounts = {mounts}
[nvidia-container-cli]
path = "{cli}"
root = "{folder}"
ldconfig = "@/sbin/ldconfig"
[nvidia-container-runtime]
mode = "{settings.mode}"
runtimes = ["{low_level}"]
[nvidia-container-runtime.modes.cdi]
spec-dirs = ["{folder}/cdi"]
default-kind = "nvidia.com/gpu"
annotation-prefixes = ["cdi.k8s.io/"]
[nvidia-container-runtime-hook]
path = "{hook}"
"""


def oci_spec(container: Container, group: str, folder: Path) -> dict[str, Any]:
    """Return the container as containerd describes it to the runtime, as far as it matters."""
    capabilities = [SYS_ADMIN] if container.is_privileged else list(container.capabilities)
    sets = ("bounding", "effective", "permitted")
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": [
                "/show-devices",
                "/dev",
                *(destination for _, destination in container.mounts),
            ],
            "env": [f"{name}={value}" for name, value in container.env],
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "capabilities": dict.fromkeys(sets, capabilities),
            "noNewPrivileges": True,
        },
        "root": {"path": "root"},
        "hostname": "node",
        "annotations": dict(container.annotations),
        "mounts": [*mounts, *(_bind(mount, folder) for mount in container.mounts)],
        "linux": {
            "cgroupsPath": group,
            "namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount")],
            "resources": {"devices": [{"allow": container.is_privileged, "access": "rwm"}]},
        },
    }


def _bind(mount: tuple[str, str], folder: Path) -> dict[str, Any]:
    source, destination = mount
    # containerd resolves links in the paths of the node.
    own = Path(os.path.realpath(folder / source.lstrip("/")))
    if source.startswith("/dev") and own.exists():
        source = str(own)
    return {"destination": destination, "source": source, "type": "bind", "options": ["rbind"]}


def shown(output: str) -> Answer:
    """Return what a container got that ran show-devices."""
    seen = json.loads(output)
    names = {
        name
        for minor, name in DEVICES.items()
        if minor != _CONTROL and seen.get(f"{DEVICE_MAJOR}:{minor}", "denied") != "denied"
    }
    gpus = frozenset(index for index in GPUS if f"nvidia{index}" in names)
    others = names - {f"nvidia{index}" for index in gpus}
    return Answer(gpus, frozenset(name.partition("/")[0] for name in others))


def _answer(bundle: Path) -> Answer:
    found = shown((bundle / "stdout").read_text(encoding="utf-8"))
    asked = bundle / "asked"
    if not asked.exists():
        return found
    gpus, others = set(found.gpus), set(found.others)
    options = dict(
        argument.split("=", 1)
        for argument in json.loads(asked.read_text(encoding="utf-8"))
        if argument.startswith("--") and "=" in argument
    )
    others |= {name for option, name in _LEGACY.items() if options.get(option)}
    gpus |= gpus_named(options.get("--device", "").split(","))
    return Answer(frozenset(gpus), frozenset(others), has_driver=True)


def gpus_named(names: Iterable[str]) -> set[str]:
    """Return the indices of GPUs by what libnvidia-container is asked for; unknown names stay."""
    by_name = {name: {i} for i, uuid in GPUS.items() for name in (i, uuid)} | {"all": set(GPUS)}
    return {index for name in names if name for index in by_name.get(name, {name})}
