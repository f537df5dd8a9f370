"""Write the files, or show how they differ from those that there are."""

from __future__ import annotations

import difflib
import os
import tempfile
from contextlib import suppress
from typing import NamedTuple

from cluster_commands.init.lines import without_evidence

_MAX_BYTES = 1 << 20


class FileError(Exception):
    """A file cannot be read or written; the message says which and why."""


class GeneratedFile(NamedTuple):
    """A file: where it is to be, and its text."""

    path: str
    text: str


class Difference(NamedTuple):
    """What would change, as a unified diff, empty if nothing.

    `is_evidence` says that the lines are the same but for what stands behind them: what was seen.
    """

    text: str
    is_evidence: bool


def difference(file: GeneratedFile) -> Difference | None:
    """What would change in a file; None if there is no such file. Raises FileError."""
    try:
        with open(file.path, "rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{file.path}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise FileError(f"{file.path}: larger than {_MAX_BYTES >> 20} MiB")
    old = content.decode(errors="replace").splitlines(keepends=True)
    new = file.text.splitlines(keepends=True)
    changed = difflib.unified_diff(old, new, file.path, f"{file.path} (now)")
    text = "".join(text if text.endswith("\n") else f"{text}\n" for text in changed)
    return Difference(
        text, is_evidence=[*map(without_evidence, old)] == [*map(without_evidence, new)]
    )


def write(file: GeneratedFile) -> None:
    """Write the file, all or nothing. Raises FileError."""
    try:
        folder = os.path.dirname(file.path)
        os.makedirs(folder or ".", exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".gpuward-", dir=folder or ".")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(file.text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, file.path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise FileError(f"{file.path}: {error.strerror}") from error
