"""Processes that never outlive the one that started them, and the ports they listen on."""

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

# Ends with everything in its group as soon as nobody can write to it any more. That happens
# when its parent ends, however it ends, so nothing needs to be done at exit.
_KEEPER = "import os, signal, sys; sys.stdin.read(); os.killpg(0, signal.SIGKILL)"
LINES_SHOWN = 20


class ProcessError(Exception):
    """A process ended that should not have; the text holds the end of its log."""


class Processes:
    """Starts programs whose output goes to files in `folder`; `stop` ends all of them.

    They form one process group beside ours, so that an interrupt from the terminal reaches
    us alone and we can stop them in order.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER], stdin=subprocess.PIPE, process_group=0
        )

    @property
    def ids(self) -> dict[str, int]:
        """The process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    def log(self, name: str) -> Path:
        """Where the program called `name` writes."""
        return self._folder / f"{name}.log"

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        """Start a program under a name of its own; it sees `environment` and nothing else.

        One that is started again under its name keeps its place in the order of stopping.
        """
        with self.log(name).open("ab") as output:
            self._running[name] = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=self._keeper.pid,
            )

    def check(self, *names: str) -> None:
        """ProcessError if one, or one of `names`, has ended."""
        for name in names or self._running:
            process = self._running[name]
            if process.poll() is not None:
                lines = self.log(name).read_text(errors="replace").splitlines()
                end = "\n".join(lines[-LINES_SHOWN:])
                raise ProcessError(f"{name} ended with {process.returncode}:\n{end}")

    def exit_status(self, name: str) -> int | None:
        """What a program ended with; None while it runs."""
        return self._running[name].poll()

    def end(self, name: str, seconds: float = 10) -> None:
        """Ask one program to end, make it end after `seconds`, and wait until it has."""
        process = self._running[name]
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all, the last started first, and whatever they have left behind."""
        for name in reversed(self._running):
            self.end(name)
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        self._running.clear()


def free_port() -> int:
    """A port of the loopback interface that nobody uses.

    It lies below those that systems give to outgoing connections, so that none of these
    takes it before it is listened on.
    """
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311  no secret
        if is_free("127.0.0.1", port):
            return port


def is_free(address: str, port: int) -> bool:
    """Whether one can listen there."""
    with socket.socket() as probe:
        # As servers do it: connections that are just being closed are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def eventually(ask: Callable[[], T], *, seconds: float = 60, what: str = "the condition") -> T:
    """The first true answer of `ask`, which is asked again and again.

    An AssertionError counts as no. TimeoutError, with the last answer, after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        last: object
        try:
            last = answer = ask()
            if answer:
                return answer
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}; last answer: {last!r}")
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
