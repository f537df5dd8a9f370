"""Write files of a Git tree into a private folder, for programs that read files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from sources.git.command import GitError
from sources.git.trees import GitTree
from sources.sources import MAX_BYTES

MAX_FILES = 20_000
MAX_TOTAL = 256 * 1024 * 1024
_TOO_MANY = (
    f"what is staged there has more than {MAX_FILES} files or {MAX_TOTAL >> 20} MiB, "
    "so gpuward does not write it out to render it; leave --staged out"
)


@contextmanager
def written_out(tree: GitTree, paths: Iterable[str]) -> Iterator[None]:
    """Write the files at `paths` of the tree out, and work in the copy of the working folder.

    So names relative to the working folder mean the same files as in the tree. In the place of a
    link is the file that it leads to. Links to folders or out of the tree, files of more than 10
    MiB and conflicts are left out: what needs them cannot be rendered.

    Raises GitError beyond the bounds, and if a file cannot be written.
    """
    here = os.getcwd()
    with TemporaryDirectory(prefix="gpuward-") as folder:
        inside = os.path.join(folder, os.path.relpath(here, tree.root))
        os.makedirs(inside, exist_ok=True)
        _write(tree, paths, folder)
        os.chdir(inside)
        try:
            yield
        finally:
            os.chdir(here)


def _write(tree: GitTree, paths: Iterable[str], folder: str) -> None:
    left = MAX_TOTAL
    for number, path in enumerate(paths):
        place = os.path.normpath(os.path.join(tree.root, path))
        if tree.entries[path].is_conflict or not tree.is_file(place):
            continue  # so is a path that leads out of the tree
        try:
            content = tree.read(place, MAX_BYTES + 1)
            left -= len(content)
            if number >= MAX_FILES or left < 0:
                raise GitError(_TOO_MANY)
            if len(content) <= MAX_BYTES:
                _write_file(os.path.join(folder, os.path.relpath(place, tree.root)), content)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise GitError(f"{path}: not written out to be rendered: {why}") from error


def _write_file(file: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "xb") as out:  # there are no links in the folder
        out.write(content)
