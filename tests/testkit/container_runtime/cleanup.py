"""Ends what a `Node` started, once its standard input is closed: run as a program.

The kernel closes the input when the process that started it ends, however it ends. So containers,
control groups and files disappear after `kill -9` as well. Only the standard library is used, so
that it starts at once.

    python cleanup.py GROUP FOLDER [CONTROLLER…]

GROUP is the name of the control group above those of the containers, FOLDER has all files. The
CONTROLLERs are those that the topmost group passes on only for it, with version 2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS = 30
"""How long the kernel may take to end what was killed."""


def control_groups(name: str) -> list[Path]:
    """The folders of the control group `name`, in whatever hierarchies are mounted."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    mounts = (line.split() for line in lines)
    roots = {m[4] for m in mounts if m[m.index("-") + 1] in ("cgroup", "cgroup2")}
    return [folder for root in sorted(roots) if (folder := Path(root, name)).is_dir()]


def main(group: str, folder: str, *controllers: str) -> None:
    """Wait for the end of the input, then end and remove everything."""
    sys.stdin.read()
    deadline = time.monotonic() + SECONDS
    while left := [*_programs(), *_contained(group)]:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            sys.exit(f"processes {left} of {group} do not end")
        time.sleep(0.01)
    for top in control_groups(group):
        for path, _, _ in os.walk(top, topdown=False):
            os.rmdir(path)
        for name in controllers:
            with contextlib.suppress(OSError):  # another process uses it by now
                Path(top.parent, "cgroup.subtree_control").write_text(f"-{name}")
    shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Iterator[int]:
    """The programs on the node: they have the process group of this one."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state, _, group = Path(entry, "stat").read_text().rpartition(") ")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(group) == os.getpgrp() and state != "Z":
                yield int(entry.name)


def _contained(group: str) -> Iterator[int]:
    """The processes in the containers of the control group."""
    for top in control_groups(group):
        for path, _, _ in os.walk(top):
            yield from map(int, Path(path, "cgroup.procs").read_text().split())


if __name__ == "__main__":
    main(*sys.argv[1:])
