"""A bare Git repository with the tags of two releases, and a server for it on loopback."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

from gpuward import __version__
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.paths import ROOT
from tools.check_release import PLACES

VERSION = __version__
NEXT_VERSION = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), VERSION)
"""The version after it, with the same code: for upgrades."""
_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com")


def make_repository(bare: Path) -> None:
    """Make the bare repository: what is committed here, tagged `v0.1.0` and, bumped, `v0.1.1`."""
    git(ROOT, "clone", "--quiet", "--bare", str(ROOT), str(bare))
    git(bare, "tag", "--force", f"v{VERSION}", "HEAD")
    work = bare.with_name("next-release")
    checkout(bare, f"v{VERSION}", work)
    for name, key in PLACES:
        file = work / name
        pattern = re.compile(rf"^({key} [\"']?){re.escape(VERSION)}", re.MULTILINE)
        text, changes = pattern.subn(rf"\g<1>{NEXT_VERSION}", file.read_text(encoding="utf-8"))
        assert changes == 1, f"{name}: {key}"
        file.write_text(text, encoding="utf-8")
    git(work, *_IDENTITY, "commit", "--quiet", "--all", f"--message=Version {NEXT_VERSION}")
    git(work, "tag", f"v{NEXT_VERSION}")
    git(work, "push", "--quiet", "origin", f"v{NEXT_VERSION}")


def checkout(repository: Path, tag: str, folder: Path) -> None:
    """Check a tag out into `folder`, as the workflow does."""
    options = ("--quiet", "--depth=1", f"--branch={tag}", "-c", "advice.detachedHead=false")
    git(repository, "clone", *options, f"file://{repository}", str(folder))


def start_git_server(processes: Processes, bare: Path) -> str:
    """Serve the repository; the address of the folder that it is in."""
    port = free_port()
    options = ["--export-all", f"--base-path={bare.parent}", "--reuseaddr", "--listen=127.0.0.1"]
    command = ["git", "daemon", *options, f"--port={port}", str(bare)]
    processes.start("git", command, {"PATH": os.environ["PATH"]})

    def listens() -> bool:
        processes.check("git")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(listens, what="the Git server listens")
    return f"git://127.0.0.1:{port}/"


def git(folder: Path, *arguments: str) -> str:
    """A git command that must succeed; its output."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()
