"""Tests of where paths are, by text alone, on systems with drives and without."""

import os
from types import ModuleType


def is_inside(path: str, folder: str, flavour: ModuleType = os.path) -> bool:
    """Return whether `path` is `folder`, or something in it; both are absolute and have no links.

    `flavour` is the module of paths of the system, `posixpath` or `ntpath`. Windows does not
    distinguish upper and lower case, and what is on another drive is outside.
    """
    try:
        common = flavour.commonpath((path, folder))
    except ValueError:  # another drive
        return False
    same: bool = flavour.normcase(common) == flavour.normcase(flavour.normpath(folder))
    return same


def relative_path_inside(path: str, folder: str, flavour: ModuleType = os.path) -> str | None:
    """`path` from `folder` on, with slashes as Git writes it; None if it is outside.

    It is empty for the folder itself.
    """
    if path.startswith(folder + flavour.sep):  # which is much faster
        return path[len(folder) + 1 :].replace(flavour.sep, "/")
    if not is_inside(path, folder, flavour):
        return None
    relative: str = flavour.relpath(path, folder).replace(flavour.sep, "/")
    return "" if relative == "." else relative


def root_and_parts(path: str, flavour: ModuleType = os.path) -> tuple[str, list[str]]:
    """The root that an absolute `path` begins with, empty if it is relative, and its parts.

    Windows writes where a link leads with a prefix, which is left out.
    """
    path = path.removeprefix("\\\\?\\") if flavour.sep == "\\" else path
    drive, rest = flavour.splitdrive(path)
    rest = rest.replace("/", flavour.sep)
    root = drive + flavour.sep if rest.startswith(flavour.sep) else ""
    return root, [part for part in rest.split(flavour.sep) if part]
