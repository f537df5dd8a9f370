"""Starts processes that never outlive the process that started them, and finds free ports."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Kills its process group when its standard input is closed. The kernel closes it when the parent
# ends, for whatever reason, so the parent needs no cleanup at exit.
_WATCHDOG = "import os, signal, sys; sys.stdin.read(); os.killpg(0, signal.SIGKILL)"
LINES_SHOWN = 20
# What a wrong result raises, and the lack of a field or an item, of an object (None), and of items
# to unpack.
_NOT_YET = (AssertionError, LookupError, TypeError, ValueError)
PATIENCE = float(os.environ.get("GPUWARD_PATIENCE", "1"))
"""How many times longer than usual tests wait, on a machine that is so much slower."""
TIMEOUT = f"--timeout={100 * PATIENCE:g}s"
"""The option by which kubectl and helm wait no longer than that."""


class ProcessError(Exception):
    """A process ended unexpectedly; the text has the end of its log."""


class Processes:
    """Starts programs whose output goes to files in `folder`; `stop` ends all of them.

    They have a process group of their own, so that an interrupt from the terminal reaches only
    this process, which can then stop them in order.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG], stdin=subprocess.PIPE, process_group=0
        )

    @property
    def ids(self) -> dict[str, int]:
        """The process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    def log(self, name: str) -> Path:
        """The file with the output of the program called `name`."""
        return self._folder / f"{name}.log"

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        """Start a program under a unique name, with `environment` and no other variables.

        A program that is started again under its name keeps its place in the order of stopping.
        """
        with self.log(name).open("ab") as output:
            self._running[name] = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=self._watchdog.pid,
            )

    def check(self, *names: str) -> None:
        """Raise ProcessError if a program, or one of `names`, has ended."""
        for name in names or self._running:
            process = self._running[name]
            if process.poll() is not None:
                lines = self.log(name).read_text(errors="replace").splitlines()
                end = "\n".join(lines[-LINES_SHOWN:])
                raise ProcessError(f"{name} ended with {process.returncode}:\n{end}")

    def exit_status(self, name: str) -> int | None:
        """The exit status of a program; None while it runs."""
        return self._running[name].poll()

    def end(self, name: str, seconds: float = 10) -> None:
        """Terminate a program, kill it after `seconds`, and wait until it has ended."""
        process = self._running[name]
        process.terminate()
        try:
            process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all programs, the last started first, and their child processes."""
        for name in reversed(self._running):
            self.end(name)
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._watchdog.wait()
        self._running.clear()


def free_port() -> int:
    """A free port of the loopback interface.

    It is below the range for outgoing connections, so that no such connection takes it before
    the caller listens on it.
    """
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311  not a secret
        if is_free("127.0.0.1", port):
            return port


def is_free(address: str, port: int) -> bool:
    """Return whether a server can listen on the address and port."""
    with socket.socket() as probe:
        # Servers set this option too: it ignores connections that are being closed.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def eventually(ask: Callable[[], T], *, seconds: float = 60, what: str = "the condition") -> T:
    """Call `ask` repeatedly, and return its first true result.

    An AssertionError counts as false, and so does the lack of an object, a field or an item: they
    may come later. Raises TimeoutError with the last result after `seconds`, or longer with
    PATIENCE.
    """
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        last: object
        try:
            last = answer = ask()
            if answer:
                return answer
        except _NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}; last result: {last!r}")
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Return whether the process exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
