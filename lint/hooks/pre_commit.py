"""The pre-commit hook: a script in the folder in which git looks for hooks."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from contextlib import suppress

from sources.git.command import git_line, repository_root
from sources.sources import UsageError
from terminal import reason_of

_HOOK_MARK = "# Written by `gpuward hook install`; `gpuward hook uninstall` removes it."
_HOOK_SCRIPT = """\
#!/bin/sh
{mark}
python={python}
test -x "$python" && exec "$python" -P -m gpuward {command}
exec gpuward {command}
"""


class ForeignHookError(Exception):
    """There is a hook that gpuward did not write; the message says what to do."""


def install(command: list[str]) -> str:
    """Write a hook that runs `gpuward COMMAND`, or replace an older one of gpuward; its path.

    Raises UsageError outside of a repository, or if the hook cannot be written, and
    ForeignHookError.
    """
    path = _hook_path()
    line = shlex.join(command)
    if os.path.lexists(path) and not _is_own_hook(path):
        raise ForeignHookError(
            f"{path} is there, and gpuward did not write it; add this line to it:\n"
            f"  gpuward {line} || exit $?"
        )
    script = _HOOK_SCRIPT.format(mark=_HOOK_MARK, python=shlex.quote(sys.executable), command=line)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write_hook(path, script)
    except OSError as error:
        why = reason_of(error)
        raise UsageError(f"{path}: the hook cannot be written: {why}") from error
    return path


def uninstall() -> str | None:
    """Remove the hook that `install` wrote; its path, or None if there is no hook.

    Raises UsageError outside of a repository, or if the hook cannot be removed, and
    ForeignHookError.
    """
    path = _hook_path()
    if not os.path.lexists(path):
        return None
    if not _is_own_hook(path):
        raise ForeignHookError(f"{path} stays: gpuward did not write it")
    try:
        os.unlink(path)
    except OSError as error:
        why = reason_of(error)
        raise UsageError(f"{path}: the hook cannot be removed: {why}") from error
    return path


def _hook_path() -> str:
    """Return where git looks for the hook: as core.hooksPath says, or in the common folder."""
    top = repository_root()
    configured = git_line("config", "--type=path", "--default", "", "--get", "core.hooksPath")
    folder = configured or git_line("rev-parse", "--git-path", "hooks")
    base = top if configured else os.getcwd()
    return os.path.normpath(os.path.join(base, folder, "pre-commit"))


def _is_own_hook(path: str) -> bool:
    """Return whether the file at `path` is a hook of gpuward, and no link to one."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return not os.path.islink(path) and _HOOK_MARK in file.read(1024).splitlines()[:2]
    except OSError:
        return False


def _write_hook(path: str, script: str) -> None:
    """Write the script, all or nothing, and such that git can run it."""
    descriptor, temporary = tempfile.mkstemp(prefix=".gpuward-", dir=os.path.dirname(path))
    try:
        # The line breaks of a shell script are line feeds, also on Windows.
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(script))
        os.chmod(temporary, 0o755)  # noqa: S103  # as git's own sample hooks
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
