"""Run helm and kustomize on files that a stranger may have written.

A program gets no network where the system can take it away (`unshare`), no configuration, plugins,
credentials or cluster of the user, no other program, and bounds of time, memory and output.
"""

from __future__ import annotations

import functools
import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sources.sources import MAX_BYTES
from terminal import reason_of

MAX_SECONDS = 60
MAX_SECONDS_OF_RUN = 600
TOO_LONG_MESSAGE = (
    f"not rendered: all renderings may take {MAX_SECONDS_OF_RUN // 60} minutes; name fewer paths"
)
_MAX_MEMORY_KIB = 4 * 1024 * 1024
_MAX_ERROR_BYTES = 16 * 1024
# Every system's sh has these limits but for -v, which macOS lacks. Core dumps would hold the files.
_LIMITING_SCRIPT = f'ulimit -c 0; ulimit -v {_MAX_MEMORY_KIB} 2>/dev/null; exec "$@"'
# How programs in Go end without memory, before the stacks of all that ran in them.
_OUT_OF_MEMORY_TEXTS = (
    "runtime: out of memory",
    "cannot allocate memory",
    "runtime: cannot reserve",
)
# Port 9 discards what it gets, if anything listens there at all.
_UNREACHABLE_PROXY = "http://127.0.0.1:9"


class ProgramError(Exception):
    """A program that is missing, failed, or was stopped at a bound; the message says why."""


class _ProgramOutput(NamedTuple):
    output: bytes
    errors: bytes
    stop_reason: str
    """why the program was stopped; empty if it ended by itself"""


def find_program(*names: str) -> str:
    """The path of the first program of `names` that is in PATH. Raises ProgramError.

    Relative folders in PATH are left out: they may lead into the repository.
    """
    folders = os.environ.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if os.path.isabs(folder))
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise ProgramError(f"{' or '.join(names)} is not in PATH")


def is_late(deadline: float) -> bool:
    """Return whether `deadline`, a time of `time.monotonic()` in seconds, is over."""
    return time.monotonic() > deadline


def run_program(
    command: list[str], *, max_seconds: float = MAX_SECONDS, deadline: float = math.inf
) -> str:
    """Return what `command` writes to standard output. Raises ProgramError.

    It may take `max_seconds`, and in any case not last longer than to `deadline`, by the monotonic
    clock.
    """
    max_seconds = min(max_seconds, max(0.1, deadline - time.monotonic()))
    with tempfile.TemporaryDirectory(prefix="gpuward-") as home:
        wrapped = ["/bin/sh", "-c", _LIMITING_SCRIPT, "sh", *_without_network(), *command]
        try:
            process = subprocess.Popen(  # noqa: S603  # a program of the user, with a list
                wrapped,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(home),
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramError(f"{command[0]}: {reason_of(error)}") from error
        with process:
            output = _ProgramOutput(b"", b"", "interrupted")
            _running_processes.add(process)
            try:
                output = _read_output(process, max_seconds)
            finally:
                _running_processes.discard(process)
                if output.stop_reason:
                    _kill(process)
        if output.stop_reason:
            raise ProgramError(f"{os.path.basename(command[0])} was stopped: {output.stop_reason}")
        if process.returncode:
            why = output.errors.decode(errors="replace").strip()
            if any(words in why for words in _OUT_OF_MEMORY_TEXTS):
                program = os.path.basename(command[0])
                size = _MAX_MEMORY_KIB >> 20
                raise ProgramError(
                    f"{program} was stopped: it needs more than {size} GiB of memory"
                )
            raise ProgramError(why or f"{command[0]} failed with status {process.returncode}")
        try:
            return output.output.decode()
        except UnicodeDecodeError as error:
            raise ProgramError(f"what it renders is not UTF-8 (byte {error.start})") from error


_running_processes: set[subprocess.Popen[bytes]] = set()


def stop_all() -> None:
    """Stop every program that runs in any thread; a thread that waits for one gets ProgramError."""
    for process in list(_running_processes):
        if process.returncode is None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Stop a program with whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read_output(process: subprocess.Popen[bytes], max_seconds: float) -> _ProgramOutput:
    """Return what `process` writes until both of its streams end, within the bounds."""
    deadline = time.monotonic() + max_seconds
    text, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((process.stdout, text), (process.stderr, errors)):
            assert stream is not None  # noqa: S101  # for the type checker: both are pipes
            selector.register(stream, selectors.EVENT_READ, kept)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return _ProgramOutput(
                    b"", bytes(errors), f"it took more than {max_seconds:g} seconds"
                )
            for key, _ in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fileobj)
                elif key.data is text or len(errors) < _MAX_ERROR_BYTES:
                    key.data.extend(part)
            if len(text) > MAX_BYTES:
                size = MAX_BYTES // 1024 // 1024
                return _ProgramOutput(b"", bytes(errors), f"it writes more than {size} MiB")
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return _ProgramOutput(b"", bytes(errors), "it does not end")
    return _ProgramOutput(bytes(text), bytes(errors), "")


def _environment(home: str) -> Mapping[str, str]:
    """The whole environment of a program; `home` is an empty folder."""
    return {
        "HOME": home,
        "TMPDIR": home,
        "PATH": home,
        "LC_ALL": "C.UTF-8",
        "KUBECONFIG": os.devnull,
        "HELM_CACHE_HOME": home,
        "HELM_CONFIG_HOME": home,
        "HELM_DATA_HOME": home,
        "HELM_PLUGINS": home,
        "HELM_NO_PLUGINS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "http_proxy": _UNREACHABLE_PROXY,
        "https_proxy": _UNREACHABLE_PROXY,
        "HTTP_PROXY": _UNREACHABLE_PROXY,
        "HTTPS_PROXY": _UNREACHABLE_PROXY,
    }


@functools.cache
def _without_network() -> tuple[str, ...]:
    """The command in front of a program that leaves it no network; empty if there is none.

    It needs Linux, util-linux and user namespaces, which some containers forbid.
    """
    try:
        unshare = find_program("unshare")
        command = (unshare, "--map-root-user", "--net", "--")
        subprocess.run(  # noqa: S603  # a program of the system, with a list
            [*command, unshare, "--version"], check=True, capture_output=True, timeout=5
        )
    except (ProgramError, OSError, subprocess.SubprocessError):
        return ()
    return command
