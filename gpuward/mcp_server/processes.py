"""Answer calls by processes of workers: each call has its own, which ends with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio
from anyio.abc import ByteReceiveStream, Process

from gpuward.mcp_server.folder import Folder
from gpuward.mcp_server.tools import Call, ToolError
from gpuward.mcp_server.worker import GIT_SECONDS, MAX_SECONDS, Answer, FixedFile, Request
from sources.containment import is_inside
from terminal import printable

MAX_ANSWER_CHARACTERS = 400_000
_MAX_WORKER_BYTES = 256 << 20  # of which the texts of fixed files are the most
_MAX_CALLS_AT_ONCE = 2
_WRONG_USAGE = 2
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gpuward.mcp_server.worker import main; main()"
)


class ServerSettings(NamedTuple):
    """What the server may read and write, as it was started.

    `write` is the folder in which fixes are written, None for none. `policy_arguments` are options
    of the linter, and `policy_files` what they name. `cluster_arguments` are options of commands
    that ask a cluster; None if no tool may ask one. Git may take `git_seconds`.
    """

    folder: Folder
    write: str | None = None
    policy_arguments: tuple[str, ...] = ()
    policy_files: tuple[str, ...] = ()
    cluster_arguments: tuple[str, ...] | None = None
    git_seconds: float = GIT_SECONDS


class Answerer:
    """Answers calls of tools, few at once."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._limiter = anyio.CapacityLimiter(_MAX_CALLS_AT_ONCE)

    async def answer(self, call: Call) -> list[str]:
        """Return the texts that answer a call: JSON, or an explanation; then notes, if any.

        Raises ToolError.
        """
        self._refuse_what_is_not_allowed(call)
        async with self._limiter:
            with TemporaryDirectory(prefix="gpuward-") as temporary:
                done = await _run(self._request(call, temporary))
        if done.status == _WRONG_USAGE or not done.output:
            raise ToolError(printable_lines(done.errors) or "the command has ended without a word")
        output = done.output
        if call.command == "fix":
            output = self._written(done, writes=call.writes)
        if len(output) > MAX_ANSWER_CHARACTERS:
            raise ToolError(
                f"the answer has {len(output):,} characters, and at most "
                f"{MAX_ANSWER_CHARACTERS:,} are sent: name fewer files, or select rules"
            )
        return [output, printable_lines(done.errors)] if done.errors else [output]

    def _refuse_what_is_not_allowed(self, call: Call) -> None:
        if call.writes and self._settings.write is None:
            raise ToolError(
                "this server writes nothing: apply the diff, or start it with --write FOLDER"
            )
        if call.asks_cluster and self._settings.cluster_arguments is None:
            raise ToolError("this server asks no cluster: name files, or start it with --cluster")

    def _request(self, call: Call, temporary: str) -> Request:
        """Return what the worker is to do. Raises ToolError for a path that leads elsewhere."""
        settings, folder = self._settings, self._settings.folder
        paths = [folder.relative(path) for path in call.paths]
        arguments = [*call.arguments]
        text = call.text or ""
        if call.command in {"lint", "fix"}:
            arguments += settings.policy_arguments
        if call.asks_cluster:
            arguments += settings.cluster_arguments or ()
        if call.new_file:
            arguments.append(f"--stdin-filename={folder.relative(call.new_file, may_be_new=True)}")
        if call.stdin_path:
            text = _decoded(folder, folder.relative(call.stdin_path))
            arguments.append("--manifest=-")
        if call.path_option:
            arguments += (f"{call.path_option}={path}" for path in paths)
            paths = []
        rest = ["-"] if call.text is not None else paths
        rest += [call.positional] if call.positional else []
        return Request(
            command=call.command,
            arguments=[*arguments, "--", *rest] if rest else arguments,
            text=text,
            folder=folder.path,
            temporary=os.path.realpath(temporary),
            files=[*settings.policy_files],
            is_confined=not call.asks_cluster,
            git_seconds=settings.git_seconds,
        )

    def _written(self, done: Answer, *, writes: bool) -> str:
        """Return the answer of the tool fix, with the files that have been written, if any."""
        answer = json.loads(done.output)
        if writes:
            answer["written"], answer["not_written"] = [], []
            for file in done.fixed:
                try:
                    self._write(file)
                except ToolError as error:
                    answer["not_written"].append({"file": file.name, "why": str(error)})
                else:
                    answer["written"].append(file.name)
        return json.dumps(answer, indent=2) + "\n"

    def _write(self, file: FixedFile) -> None:
        folder, name = self._settings.folder, os.path.normpath(file.name)
        place = os.path.join(folder.path, name)
        if not is_inside(place, self._settings.write or ""):
            raise ToolError("outside of the folder in which this server writes")
        folder.replace(name, file.old.encode(), file.new.encode())


def _decoded(folder: Folder, name: str) -> str:
    try:
        return folder.read(name).decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{name}: no UTF-8") from error


async def _run(request: Request) -> Answer:
    """Run a worker, and end it and what it has started when its time is over."""
    process = await anyio.open_process(
        [sys.executable, "-I", "-X", "utf8", "-c", _PROGRAM, json.dumps(_import_path())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # What the kubeconfig of the user names begins at the working folder of the server.
        cwd=request.folder if request.is_confined else None,
        env=_environment(request),
        start_new_session=True,
    )
    try:
        with anyio.fail_after(MAX_SECONDS):
            output = await _communicate(process, json.dumps(request._asdict()).encode())
    except TimeoutError:
        raise ToolError(f"more than {MAX_SECONDS} seconds: name fewer files") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started is in its group
        with anyio.CancelScope(shield=True):
            await process.aclose()
    try:
        answer = Answer(**json.loads(output))
    except ValueError:
        raise ToolError("the command has ended unexpectedly, perhaps for want of memory") from None
    return answer._replace(fixed=[FixedFile(*file) for file in answer.fixed])


async def _communicate(process: Process, request: bytes) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise ValueError("a worker has pipes")
    with suppress(anyio.BrokenResourceError):  # its end says why
        await stdin.send(request)
    await stdin.aclose()
    return await _read_all(stdout)


async def _read_all(stream: ByteReceiveStream) -> bytes:
    pieces, size = [], 0
    async for piece in stream:
        size += len(piece)
        if size > _MAX_WORKER_BYTES:
            raise ToolError(f"an answer of more than {_MAX_WORKER_BYTES >> 20} MiB: name less")
        pieces.append(piece)
    return b"".join(pieces)


def _import_path() -> list[str]:
    """The import path of this process, without what depends on the working folder."""
    return [place for place in sys.path if os.path.isabs(place)]


def _environment(request: Request) -> dict[str, str]:
    """The environment of a worker, in which the folder of the server has no programs."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    safe = (
        place
        for place in places
        if os.path.isabs(place) and not is_inside(os.path.realpath(place), request.folder)
    )
    return {**os.environ, "PATH": os.pathsep.join(safe), "TMPDIR": request.temporary}


def printable_lines(text: str) -> str:
    """`text` with control characters escaped, but for the ends of its lines."""
    return "\n".join(map(printable, text.strip().split("\n")))
