"""Write a generated file, or say that it is stale."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_compare(file: Path, text: str, arguments: list[str]) -> int:
    """Write `text` into `file`, or compare them if `arguments` is `["--check"]`.

    Returns the exit status: 1 if the file is stale.
    """
    if arguments == ["--check"]:
        is_stale = not file.exists() or file.read_text(encoding="utf-8") != text
        if is_stale:
            print(f"{file.relative_to(ROOT)} is stale: run make docs")
        return int(is_stale)
    file.write_text(text, encoding="utf-8")
    return 0
