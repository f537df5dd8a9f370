"""Write generated files, or say which are stale."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_compare(files: Iterable[tuple[Path, str]], arguments: list[str]) -> int:
    """Write each text into its file, or compare them if `arguments` is `["--check"]`.

    Returns the exit status: 1 if a file is stale.
    """
    stale = [
        (path, text)
        for path, text in files
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is stale: run make docs")
        else:
            path.write_text(text, encoding="utf-8")
    return int(bool(stale) and arguments == ["--check"])
