"""Start the programs of an image that `dockerfile_replay` built, and query them."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.testkit.admission.caller import TIMEOUT_SECONDS
from tests.testkit.image.dockerfile_replay import Replay

# Simulates a root file system that is mounted read-only, and then runs a module as `-m` does.
_READ_ONLY_LAUNCHER = """
import errno, os, runpy, sys

CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.truncate")

def refuse(event, values):
    written = event == "open" and values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in CHANGES or (written and values[0] != os.devnull and not isinstance(values[0], int)):
        raise OSError(errno.EROFS, "read-only file system", values[0])

sys.addaudithook(refuse)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Image:
    """A built image; starts its entry point without a container."""

    def __init__(self, replay: Replay, folder: Path) -> None:
        stage = replay.stages[-1]
        root = replay.root(stage.name)
        (entry,) = stage.find_all("ENTRYPOINT")
        # The tests' interpreter, with only its standard library and the packages of the image.
        _, dash_m, module = entry.words
        assert dash_m == "-m"
        self._command = [os.path.realpath(sys.executable), "-S", "-c", _READ_ONLY_LAUNCHER, module]
        self._environment = {**stage.environment}
        self._environment["PYTHONPATH"] = f"{root}{stage.environment['PYTHONPATH']}"
        self.tree = Path(self._environment["PYTHONPATH"])
        self.build_folder = folder

    @contextmanager
    def start(self, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start the entry point in `folder`, without a home folder and without write access."""
        with subprocess.Popen(
            [*self._command, *arguments],
            cwd=folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                process.kill()
                watchdog.cancel()

    def run(self, folder: Path, *arguments: str) -> tuple[int, str, str]:
        """Run a command until it ends; returns exit status, output and errors."""
        with self.start(folder, *arguments) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def files(self) -> dict[str, Path]:
        """The files of the image by their paths in the tree."""
        paths = (path for path in self.tree.rglob("*") if path.is_file())
        return {str(path.relative_to(self.tree)): path for path in paths}


def read_event(log: IO[str] | None, event: str) -> dict[str, Any]:
    """Read the log up to the first entry about `event`, and return that entry."""
    assert log is not None
    entries: list[dict[str, Any]] = []
    for line in log:
        entries.append(json.loads(line))
        if entries[-1]["event"] == event:
            return entries[-1]
    raise AssertionError(f"no entry about {event!r} in {entries}")


def fetch(url: str, body: bytes | None = None, tls: ssl.SSLContext | None = None) -> bytes:
    """Fetch a URL and return the body; AssertionError if the status is not 200."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310  our own server
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=tls) as answer:  # noqa: S310
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error}") from error
    return content
