"""Replace the content of a file, all or nothing.

At every moment, the file has its old content or its new one, also if the process is killed. A
killed process may leave its temporary file, whose name begins with `.gpuward-`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress

from lint.fix.fixer import FixedText, WriteError


def write_file(text: FixedText) -> bool:
    """Write the text into its file if it has changed, and return True.

    The file keeps its mode, owner and extended attributes. Raises WriteError, and changes nothing,
    if that is impossible, if the file is read-only, if it has changed since it was read, and if it
    is a link that leads out of the tree.
    """
    if not text.is_changed:
        return True
    try:
        target = _target(text.source.name)
        status = os.stat(target)
        if not stat.S_ISREG(status.st_mode):
            raise WriteError("not a regular file")
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise WriteError("the file is read-only")
        _replace(target, text, status)
    except OSError as error:
        raise WriteError((error.strerror or str(error)).lower()) from error
    return True


def _target(name: str) -> str:
    """The file to write: `name` itself, or what it links to.

    A link must not lead out of the working folder or, if it is elsewhere, out of its own folder.
    """
    if not os.path.islink(name):
        return name
    target, here = os.path.realpath(name), os.path.realpath(os.path.dirname(name))
    working = os.path.realpath(".")
    tree = working if _is_inside(here, working) else here
    if not _is_inside(target, tree):
        raise WriteError(f"a link that leads out of {tree}; name its target to fix it")
    return target


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def _replace(target: str, text: FixedText, status: os.stat_result) -> None:
    folder = os.path.dirname(target) or "."
    descriptor, temporary = tempfile.mkstemp(prefix=".gpuward-", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.new.encode())
            file.flush()
            _copy_attributes(target, file.fileno(), status)
            os.fsync(file.fileno())
        # The shorter the time between this look and the renaming, the better.
        _refuse_changed(target, text.source.text)
        os.replace(temporary, target)
    except BaseException:
        # After an interrupt, the file may have its new name already.
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    # The file has its new content, also where folders cannot be opened or synchronised.
    with suppress(OSError):
        _sync_folder(folder)


def _copy_attributes(target: str, descriptor: int, status: os.stat_result) -> None:
    """Give the new file the owner, the access lists and the mode of the old one."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    if hasattr(os, "listxattr"):  # Linux
        known = {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
        for name in os.listxattr(target):
            if (value := os.getxattr(target, name)) != known.get(name):
                os.setxattr(descriptor, name, value)
    if hasattr(os, "fchmod"):  # not on Windows
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def _refuse_changed(target: str, known: str) -> None:
    with open(target, "rb") as file:
        if file.read() != known.encode():
            raise WriteError("the file has changed meanwhile; run the command again")


def _sync_folder(folder: str) -> None:
    """Make the renaming last through a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
