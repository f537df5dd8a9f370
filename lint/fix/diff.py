"""The unified diff of the text of a file before and after its fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TextIO

from lint.fix.changes import Change, changes, split_lines
from lint.fix.fixer import FixedText
from terminal import printable

_CONTEXT = 3


def diff_writer(out: TextIO) -> Callable[[FixedText], bool]:
    """A function that writes the diff of each file, which `patch -p0` and `git apply -p0` accept.

    On a terminal, control characters are escaped.
    """
    is_terminal = out.isatty()

    def write(text: FixedText) -> bool:
        lines = unified_diff(text) if text.is_changed else ()
        out.writelines(f"{printable(line) if is_terminal else line}\n" for line in lines)
        return False

    return write


def unified_diff(text: FixedText) -> Iterator[str]:
    """The lines of the diff, without their line breaks."""
    old, new = split_lines(text.source.text), split_lines(text.new)
    yield f"--- {text.source.name}"
    yield f"+++ {text.source.name}"
    for hunk in _hunks(list(changes(text.pieces))):
        before, after = hunk[0].start, hunk[-1].end
        start, stop = max(before - _CONTEXT, 0), min(after + _CONTEXT, len(old))
        new_start = hunk[0].new_start - (before - start)
        new_stop = hunk[-1].new_end + (stop - after)
        yield f"@@ -{_range(start, stop)} +{_range(new_start, new_stop)} @@"
        done = start
        for change in hunk:
            yield from _marked(" ", old[done : change.start])
            yield from _marked("-", old[change.start : change.end])
            yield from _marked("+", new[change.new_start : change.new_end])
            done = change.end
        yield from _marked(" ", old[done:stop])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _range(start: int, stop: int) -> str:
    """The first line and the number of lines; no lines stand behind the line before them."""
    first = start + 1 if stop > start else start
    return f"{first}" if stop == start + 1 else f"{first},{stop - start}"


def _hunks(found: list[Change]) -> Iterator[list[Change]]:
    """Changes that are so near that their context would overlap or touch."""
    hunk: list[Change] = []
    for change in found:
        if hunk and change.start - hunk[-1].end > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk
