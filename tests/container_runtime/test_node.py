"""A node leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.testkit.container_runtime.cleanup import control_groups
from tests.testkit.container_runtime.node import NVIDIA, Container, Node, Settings
from tests.testkit.paths import ROOT

# Folders in which container runtimes and CDI keep files.
SYSTEM = (
    "/dev",
    "/etc",
    "/etc/cdi",
    "/run",
    "/run/runc",
    "/run/cdi",
    "/var/run",
    "/var/lib",
    "/var/log",
)
OF_RUNTIMES = ("cdi", "gpuward", "nvidia", "runc")
# A node in whose container nothing runs yet: runc waits for `start`. A background job of a shell
# ignores SIGINT. A signal just before a sleep does not end it, so the sleeps are short.
INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from tests.testkit.container_runtime import node
signal.signal(signal.SIGINT, signal.default_int_handler)
created = node.Node(Path(sys.argv[1]))
def wait(process):
    print(created.group, process, flush=True)
    while True:
        time.sleep(0.1)
node._handle = wait
created.run(node.Container(), node.Settings())
"""


def files() -> set[str]:
    """The files of container runtimes on this machine."""
    folders = [folder for name in SYSTEM if (folder := Path(name)).is_dir()]
    names = (entry.path for folder in folders for entry in os.scandir(folder))
    return {name for name in names if any(word in name.rpartition("/")[2] for word in OF_RUNTIMES)}


def mounts(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(folder) in line]


def processes(folder: Path) -> list[str]:
    """The commands on this machine that name a folder."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [command for command in commands if str(folder) in command]


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """Check that whatever happens inside leaves nothing."""
    before = files()
    yield
    assert files() == before
    assert mounts(folder) == []
    assert processes(folder) == []
    assert list(folder.iterdir()) == []


def is_running(process: str) -> bool:
    """Return whether a process has not ended.

    Its parent, the first of the machine, may reap it later.
    """
    try:
        status = Path("/proc", process, "stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(") ")[2][0] not in "ZX"


@pytest.mark.usefixtures("container_programs")
def test_a_node_leaves_nothing_behind(tmp_path: Path) -> None:
    with nothing_left(tmp_path):
        node = Node(tmp_path)
        for mode in ("cdi", "legacy"):
            answer = node.run(Container(env=((NVIDIA, "all"),)), Settings(mode=mode))
            assert str(answer) == "all"
        assert control_groups(node.group)
        node.stop()
        assert control_groups(node.group) == []


@pytest.mark.usefixtures("container_programs")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_node_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    with nothing_left(tmp_path):
        command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
            try:
                assert running.stdout is not None
                group, contained = running.stdout.readline().split()
                assert is_running(contained)
                assert control_groups(group)
                running.send_signal(how)
                # The cleanup has the same standard output: it ends with the cleanup.
                running.stdout.read()
            finally:
                running.kill()
        assert control_groups(group) == []
        assert not is_running(contained)


def test_the_answer_is_that_of_the_container_itself(node: Node) -> None:
    """Its device rules count: a file that it may not open is no device."""
    mounts = (("/dev/nvidia0", "/dev/nvidia0"),)
    assert str(node.ask(Container(mounts=mounts), Settings())) == "none"
    assert str(node.ask(Container(mounts=mounts, is_privileged=True), Settings())) == "0"


def test_a_container_that_does_not_start_says_why(node: Node) -> None:
    answer = node.ask(Container(env=((NVIDIA, "none"),)), Settings())
    assert "unresolvable CDI devices nvidia.com/gpu=none" in answer.error
    assert str(answer) == "does not start"
