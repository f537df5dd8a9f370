"""The image that a replayed Dockerfile gave: how to start what is in it, and to ask it."""

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

from tests.testkit.admission.server import PATIENT
from tests.testkit.image.dockerfile_replay import Replay

# Stands in for a root file system that is mounted read-only, and then does as `-m` does.
_READ_ONLY = """
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
    """What a container would start, without the container."""

    def __init__(self, replay: Replay, folder: Path) -> None:
        stage = replay.stages[-1]
        root = replay.root(stage.name)
        (entry,) = stage.of("ENTRYPOINT")
        # The interpreter of the tests, with nothing but its standard library and the image's tree.
        _, dash_m, module = entry.words
        assert dash_m == "-m"
        self._command = [os.path.realpath(sys.executable), "-S", "-c", _READ_ONLY, module]
        self._environment = {**stage.environment}
        self._environment["PYTHONPATH"] = f"{root}{stage.environment['PYTHONPATH']}"
        self.tree = Path(self._environment["PYTHONPATH"])
        self.built_in = folder

    @contextmanager
    def running(self, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start it in `folder`, without a home and with nowhere to write to."""
        with subprocess.Popen(
            [*self._command, *arguments],
            cwd=folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            watchdog = threading.Timer(PATIENT, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                process.kill()
                watchdog.cancel()

    def run(self, folder: Path, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of a command that ends by itself."""
        with self.running(folder, *arguments) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def files(self) -> dict[str, Path]:
        """Its files by their paths in the tree."""
        found = (path for path in self.tree.rglob("*") if path.is_file())
        return {str(path.relative_to(self.tree)): path for path in found}


def told(log: IO[str] | None, event: str) -> dict[str, Any]:
    """The first line of a log about `event`."""
    assert log is not None
    seen: list[dict[str, Any]] = []
    for line in log:
        seen.append(json.loads(line))
        if seen[-1]["event"] == event:
            return seen[-1]
    raise AssertionError(f"no line about {event!r} in {seen}")


def asked(url: str, body: bytes | None = None, tls: ssl.SSLContext | None = None) -> bytes:
    """The body of an answer; AssertionError if its status is not 200."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310  our own server
    try:
        with urllib.request.urlopen(request, timeout=PATIENT, context=tls) as answer:  # noqa: S310
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error}") from error
    return content
