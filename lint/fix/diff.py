"""The unified diff of the text of a file before and after its fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple, TextIO

from lint.fix.fixer import FixedText
from lint.report import printable

_CONTEXT = 3
# Comparing lines takes time that is quadratic in their number.
_MAX_LINES = 1_000


class _Change(NamedTuple):
    """Lines `start` to `end` of the old text become lines `new_start` to `new_end` of the new."""

    start: int
    end: int
    new_start: int
    new_end: int


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
    old, new = _lines(text.source.text), _lines(text.new)
    yield f"--- {text.source.name}"
    yield f"+++ {text.source.name}"
    for hunk in _hunks(list(_changes(text.pieces))):
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


def _lines(text: str) -> list[str]:
    r"""The lines of a text with their line breaks. Only "\n" ends a line."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [text[text.rfind("\n") + 1 :]] * (
        not text.endswith("\n") and bool(text)
    )


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _range(start: int, stop: int) -> str:
    """The first line and the number of lines; no lines stand behind the line before them."""
    first = start + 1 if stop > start else start
    return f"{first}" if stop == start + 1 else f"{first},{stop - start}"


def _changes(pieces: list[tuple[str, str]]) -> Iterator[_Change]:
    """What changes from line to line; lines that documents have in common need no comparison."""
    if any(text and not text.endswith("\n") for piece in pieces[:-1] for text in piece):
        # One line is in two pieces, as in JSON without line breaks.
        pieces = [("".join(old for old, _ in pieces), "".join(new for _, new in pieces))]
    line = new_line = 0
    for old_text, new_text in pieces:
        old, new = _lines(old_text), _lines(new_text)
        if old_text != new_text:
            for change in _compared(old, new):
                yield _Change(
                    change.start + line,
                    change.end + line,
                    change.new_start + new_line,
                    change.new_end + new_line,
                )
        line, new_line = line + len(old), new_line + len(new)


def _compared(old: list[str], new: list[str]) -> Iterator[_Change]:
    shortest = min(len(old), len(new))
    start = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    rest = shortest - start
    tail = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    whole = _Change(start, len(old) - tail, start, len(new) - tail)
    if max(whole.end, whole.new_end) - start > _MAX_LINES:
        yield whole
        return
    matcher = SequenceMatcher(
        None, old[start : whole.end], new[start : whole.new_end], autojunk=False
    )
    for tag, *positions in matcher.get_opcodes():
        if tag != "equal":
            yield _Change(*(position + start for position in positions))


def _hunks(changes: list[_Change]) -> Iterator[list[_Change]]:
    """Changes that are so near that their context would overlap or touch."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change.start - hunk[-1].end > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk
