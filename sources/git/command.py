"""Run git such that nothing of the repository executes.

A repository that another user wrote can name programs for git to run: a file monitor, converters
and diff programs, and transports that fetch missing objects. The options and variables here turn
them off. Commands that compare also need `--no-ext-diff --no-textconv`. Hooks run only when
something is written: of the commands here, only `git diff` does, which notes touched files in the
index, and must run without hooks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Timer
from typing import IO

from sources.sources import UsageError
from terminal import reason_of

MAX_LISTING_BYTES = 64 * 1024 * 1024
"""The most bytes of a listing, which is enough for half a million files."""
_READ_BYTES = 1 << 16
_MAX_ERROR_BYTES = 1 << 16
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
)
GIT_OPTIONS = (
    "--no-pager",
    "--no-optional-locks",
    "--no-replace-objects",  # a pushed replacement would hide the object that it replaces
    *("-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit"),  # no repository that is content of another one
    *("-c", "protocol.allow=never"),
    *("-c", "core.bigFileThreshold=16m"),  # git streams larger objects
)
GIT_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",  # wins over `protocol.NAME.allow`, which the repository may set
    "GIT_LITERAL_PATHSPECS": "0",  # some editors set it for hooks
    "GIT_NO_LAZY_FETCH": "1",  # old versions of git ignore it
    "GIT_TERMINAL_PROMPT": "0",
}


class GitBounds:
    """The bounds of git in this process, which narrows them before it runs git.

    `seconds` is how long a command may take. With `reads_only_gitignore`, nothing is ignored but
    what `.gitignore` files name.
    """

    seconds: float = 120
    reads_only_gitignore = False


BOUNDS = GitBounds()


class GitError(UsageError):
    """Git is not installed, or says that it cannot do what was asked; the message says why."""


def git(*arguments: str, stdin: bytes = b"") -> bytes:
    """The output of `git ARGUMENTS` in the working folder. Raises GitError if it fails."""
    with _running_git(arguments) as process:
        output, errors = process.communicate(stdin)
    if process.returncode:
        raise GitError(_failure(arguments, errors, process.returncode))
    return output


def git_line(*arguments: str) -> str:
    """The only line of the output. Raises GitError."""
    return os.fsdecode(git(*arguments).removesuffix(b"\n"))


def repository_root() -> str:
    """The folder of the work tree, without links. Raises GitError outside of a repository."""
    # Git writes slashes, also on Windows.
    return os.path.realpath(git_line("rev-parse", "--show-toplevel"))


def git_records(
    *arguments: str, limit: int = MAX_LISTING_BYTES, folder: str | None = None
) -> Iterator[bytes]:
    """Run git with `arguments`, which include `-z`, and yield its output record by record.

    Git runs in the working folder, or in `folder` and with the repository around that.

    Raises GitError if git fails, or if its output is longer than `limit` bytes.
    """
    # Not a pipe: git waits until its warnings are read, of which there may be one for a file.
    with TemporaryFile() as errors, _running_git(arguments, errors, folder) as process:
        output = opened_pipe(process.stdout)
        rest, size = b"", 0
        while chunk := output.read(_READ_BYTES):
            size += len(chunk)
            if size > limit:
                raise GitError(f"git {arguments[0]} lists more than {limit >> 20} MiB of names")
            *records, rest = (rest + chunk).split(b"\0")
            yield from records
        if process.wait():
            errors.seek(0)
            said = errors.read(_MAX_ERROR_BYTES)
            raise GitError(_failure(arguments, said, process.returncode))


@contextmanager
def _running_git(
    arguments: tuple[str, ...],
    errors: int | IO[bytes] = subprocess.PIPE,
    folder: str | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of git, which ends with the block."""
    process = start_git(*arguments, errors=errors, folder=folder)
    # A named pipe instead of a file that git reads, such as .gitignore, would make it wait.
    timer = Timer(BOUNDS.seconds, process.kill)
    timer.start()
    with process:
        try:
            yield process
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()


def start_git(
    *arguments: str, errors: int | IO[bytes] = subprocess.PIPE, folder: str | None = None
) -> subprocess.Popen[bytes]:
    """A process of git with pipes. The caller ends it. Raises GitError without git.

    `errors` is where its messages go, as `stderr` of `Popen`. `folder` is as in `git_records`.
    """
    environment = {**os.environ, **GIT_ENVIRONMENT}
    if folder is not None:
        for name in (
            _REPOSITORY_VARIABLES
        ):  # Git sets some of these for hooks: they choose another repository.
            environment.pop(name, None)
    try:
        return subprocess.Popen(  # noqa: S603  # the arguments are ours
            ("git", *GIT_OPTIONS, *arguments),  # noqa: S607  # git is where the user has it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=folder,
        )
    except OSError as error:
        raise GitError(f"git cannot be run: {reason_of(error)}") from error


def opened_pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """One of the pipes of a process that `start_git` has started."""
    if stream is None:
        raise ValueError("this process has no such pipe")
    return stream


def _failure(arguments: tuple[str, ...], errors: bytes, status: int) -> str:
    message = errors.decode(errors="replace").strip() or "it failed and does not say why"
    if status < 0:
        message = f"it was ended by signal {-status}, as after {BOUNDS.seconds} seconds"
    return f"git {arguments[0]}: {message.removeprefix('fatal: ')}"
