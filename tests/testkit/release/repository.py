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
from tools.check_release import PLACES, UNPUBLISHED

VERSION = __version__
NEXT_VERSION = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), VERSION)
"""The version after it, with the same code: for upgrades."""
_UNPUBLISHED = re.compile(rf"^{re.escape(UNPUBLISHED)}\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.com")


def make_repository(bare: Path) -> None:
    """Make the bare repository: what is committed here, released as `v0.1.0`, and as `v0.1.1`.

    As before a release, the README loses its section about what is not published yet.
    """
    git(ROOT, "clone", "--quiet", "--bare", str(ROOT), str(bare))
    work = bare.with_name("releases")
    git(bare, "clone", "--quiet", f"file://{bare}", str(work))
    readme = work / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(_UNPUBLISHED.sub("", text), encoding="utf-8")
    _release(work, VERSION)
    for name, key in PLACES:
        file = work / name
        pattern = re.compile(rf"^({key} [\"']?){re.escape(VERSION)}", re.MULTILINE)
        text, changes = pattern.subn(rf"\g<1>{NEXT_VERSION}", file.read_text(encoding="utf-8"))
        assert changes == 1, f"{name}: {key}"
        file.write_text(text, encoding="utf-8")
    _release(work, NEXT_VERSION)


def _release(work: Path, version: str) -> None:
    options = ("--quiet", "--all", "--allow-empty", f"--message=Version {version}")
    git(work, *_IDENTITY, "commit", *options)
    git(work, "tag", "--force", f"v{version}")
    git(work, "push", "--quiet", "--force", "origin", f"v{version}")


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
