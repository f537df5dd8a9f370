"""Programs in namespaces of their own leave nothing behind, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.testkit.control_plane.processes import PATIENCE, eventually
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.paths import ROOT
from tests.testkit.real_node.isolation import COMMAND, is_isolated, obstacle
from tests.testkit.real_node.node import SHOW_DEVICES
from tests.testkit.real_node.programs import programs
from tests.testkit.skipping import skip_missing

pytestmark = pytest.mark.slow  # one after the other: each compares the whole machine

# It changes what a node changes, and starts a process that is not waited for.
CHANGES = """
mkdir -p /var/lib/kubelet /run/containerd /sys/fs/cgroup/memory/pod
mount -t tmpfs tmpfs /mnt
mknod /dev/nvidia9 c 195 9
setsid sleep 4242 &
echo started
"""

SHELL = f"""\
#!/bin/sh -e
kubectl run waits --image={SHOW_DEVICES} --image-pull-policy=Never --command -- /pause
kubectl wait pod/waits --for=condition=Ready --timeout={100 * PATIENCE:g}s
echo started
sleep 4242
"""


class Machine(NamedTuple):
    """The traces that a node could leave behind on this machine."""

    mounts: str
    control_groups: tuple[str, ...]
    files: tuple[str, ...]
    network: str
    processes: tuple[str, ...]


def machine() -> Machine:
    groups = Path("/sys/fs/cgroup")
    files = [*Path("/run").iterdir(), *Path("/var/lib").iterdir(), *Path("/dev").glob("nvidia*")]
    commands = map(_command, Path("/proc").glob("[0-9]*/cmdline"))
    return Machine(
        Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
        tuple(sorted(_folders_of_nodes(groups))),
        tuple(sorted(map(str, files))),
        Path("/proc/net/fib_trie").read_text(encoding="utf-8"),
        tuple(command.decode() for command in commands if b"sleep\x004242" in command),
    )


def _folders_of_nodes(groups: Path) -> Iterator[str]:
    """The control groups of nodes. Unlike a glob, a walk goes on if one of them disappears."""
    for folder, names, _ in os.walk(groups):
        yield from (f"{folder}/{name}" for name in names if name.startswith("gpuward-node-"))


def _command(path: Path) -> bytes:
    """The command of a process; empty if it has ended meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.fixture(autouse=True)
def _needs_root() -> None:
    if is_isolated():
        pytest.skip("this is about the namespaces from outside")
    if why := obstacle():
        skip_missing(why)


def test_it_ends_with_the_status_of_the_command() -> None:
    before = machine()
    done = subprocess.run(
        [*COMMAND, "sh", "-c", f"{CHANGES} exit 3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "started\n"), done.stderr
    assert machine() == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_leaves_nothing_if_it_is_interrupted(number: signal.Signals) -> None:
    before = machine()
    with subprocess.Popen(
        [*COMMAND, "sh", "-c", f"{CHANGES} sleep 4242"], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert machine() != before
        process.send_signal(number)
    eventually(lambda: machine() == before, what="nothing is left")


@pytest.mark.usefixtures("control_plane_programs")
def test_a_node_that_is_killed_while_a_pod_runs_leaves_nothing(tmp_path: Path) -> None:
    try:
        programs()
    except BuildError as error:
        skip_missing(str(error))
    shell = tmp_path / "shell"
    shell.write_text(SHELL, encoding="utf-8")
    shell.chmod(0o755)
    before = machine()
    with subprocess.Popen(
        [*COMMAND, sys.executable, "-m", "tests.testkit.real_node.by_hand"],
        cwd=ROOT,
        env={**os.environ, "SHELL": str(shell)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "started\n" in process.stdout
        assert machine() != before
        process.kill()
    eventually(lambda: machine() == before, what="nothing is left")
