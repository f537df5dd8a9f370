"""Keep this process from reading elsewhere, from writing, from running programs and from networks.

The code that runs here is gpuward's own; what others wrote are paths in policies, links, and names.
An audit hook of Python sees every path before it is opened, and cannot be removed. It is a barrier
behind the checks of the linter itself, and it counts what is read.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from sources.containment import is_inside
from sources.git.command import GIT_OPTIONS

MAX_FILES = 2_000
MAX_BYTES = 64 << 20
_OUTSIDE = "outside of the folder of the server"
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MODULE_ENDINGS = (".py", ".pyc", ".so", ".pyd", ".dylib")
# Packages with data that are no modules: schemas of the validator.
_PACKAGES_WITH_DATA = ("jsonschema_specifications",)
_REFUSED_PREFIXES = ("socket.", "os.exec", "os.spawn", "os.posix_spawn", "shutil.", "ctypes.")
_REFUSED = frozenset(
    {
        *("os.system", "os.startfile", "os.fork", "os.forkpty", "pty.spawn"),
        *("os.mkdir", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate"),
        *("os.chmod", "os.chown", "os.chflags", "os.utime", "os.setxattr", "os.removexattr"),
        *("os.killpg", "sqlite3.connect", "urllib.Request"),
    }
)
# Names that sockets have also where nothing is connected.
_ALLOWED = frozenset({"socket.gethostname"})


class LimitError(BaseException):
    """More is to be read than one call may; no code that handles errors of files holds it up."""


class Allowed(NamedTuple):
    """What the process may read, beside the modules of Python, and where it may write.

    `folder` and `temporary` are absolute and without links, and so are `files`.
    """

    folder: str
    temporary: str
    files: tuple[str, ...] = ()


def confine(allowed: Allowed) -> None:
    """Refuse from now on what is not `allowed`, as an error that files raise: PermissionError.

    Reading more than `MAX_FILES` files or `MAX_BYTES` bytes in the folder raises LimitError.
    """
    guard = _Guard(allowed)
    checks: dict[str, Callable[..., None]] = {
        "open": guard.check_open,
        "os.listdir": guard.check_listing,
        "os.scandir": guard.check_listing,
        "os.remove": guard.check_removal,
        "subprocess.Popen": guard.check_program,
        "os.kill": guard.check_signal,
    }

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if (check := checks.get(event)) is not None:
            check(*arguments)
        elif (event in _REFUSED or event.startswith(_REFUSED_PREFIXES)) and event not in _ALLOWED:
            raise PermissionError(errno.EPERM, f"{event} is refused in this server")

    sys.addaudithook(hook)


class _Guard:
    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._import_path = [os.path.realpath(place) for place in sys.path if place]
        self._data = [*_own_folders(), *_folders_of(_PACKAGES_WITH_DATA)]
        self._read: dict[str, int] = {}
        self._bytes = 0

    def check_open(self, path: Any, _mode: str | None, flags: int) -> None:
        """Refuse to open another file than those allowed. A descriptor is open already."""
        if isinstance(path, int) or path == os.devnull:
            return
        place = _real_path(path)
        if flags & _WRITING_FLAGS:
            if not is_inside(place, self._allowed.temporary):
                raise _refusal(path)
        elif is_inside(place, self._allowed.folder):
            self._count(place)
        elif not (
            place in self._allowed.files
            or is_inside(place, self._allowed.temporary)
            or _is_in_any(place, self._data)
            or (place.endswith(_MODULE_ENDINGS) and _is_in_any(place, self._import_path))
        ):
            raise _refusal(path)

    def check_listing(self, path: Any) -> None:
        """Refuse to list a folder that is elsewhere."""
        if isinstance(path, int):
            return
        place = _real_path("." if path is None else path)
        if not is_inside(place, self._allowed.folder) and not _is_in_any(place, self._import_path):
            raise _refusal(path)

    def check_removal(self, path: Any, _folder: int = -1) -> None:
        """Refuse to remove what this process has not made."""
        if not is_inside(_real_path(path), self._allowed.temporary):
            raise _refusal(path)

    def check_program(self, _program: Any, command: Sequence[Any], *_: Any) -> None:
        """Refuse every program but Git, which says what it ignores and runs nothing for that."""
        expected = ("git", *GIT_OPTIONS, "ls-files")
        if tuple(command[: len(expected)]) != expected:
            raise PermissionError(errno.EPERM, "programs are not run in this server")

    def check_signal(self, process: int, _signal: int) -> None:
        """Refuse signals to all but what this process has started, such as a Git that waits."""
        if process <= 0 or os.getpgid(process) != os.getpgrp():
            raise PermissionError(errno.EPERM, "signals are not sent in this server")

    def _count(self, place: str) -> None:
        if place in self._read:
            return
        try:
            status = os.stat(place)
        except OSError:
            return  # opening it says why
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EINVAL, "not a regular file", place)
        self._read[place] = status.st_size
        self._bytes += status.st_size
        if len(self._read) > MAX_FILES or self._bytes > MAX_BYTES:
            raise LimitError(
                f"a call reads at most {MAX_FILES:,} files and {MAX_BYTES >> 20} MiB: name fewer "
                "files, or folders with less in them"
            )


def _real_path(path: Any) -> str:
    return os.path.realpath(os.fsdecode(path))


def _is_in_any(place: str, folders: Iterable[str]) -> bool:
    return any(is_inside(place, folder) for folder in folders)


def _own_folders() -> list[str]:
    """The folders of gpuward's own packages, which have data beside their modules."""
    names = ("gpuward", "rules", "policies", "kubeyaml", "sources", "reports", "lint", "cluster")
    return _folders_of(names)


def _folders_of(names: Iterable[str]) -> list[str]:
    """The folders of packages. Those that are not installed have none."""
    found = (find_spec(name) for name in names)
    return [
        os.path.realpath(place)
        for spec in found
        if spec and spec.submodule_search_locations
        for place in spec.submodule_search_locations
    ]


def _refusal(path: Any) -> PermissionError:
    return PermissionError(errno.EACCES, _OUTSIDE, os.fsdecode(path) if path else ".")
