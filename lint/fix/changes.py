"""The differences between two texts: lines, the smallest edits, and words for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

from kubeyaml.patch import Operation, one_line_text

# Comparing lines takes time that is quadratic in their number.
_MAX_COMPARED_LINES = 1_000


class TextEdit(NamedTuple):
    """Put `text` in the place of what is between two offsets of a text."""

    start: int
    end: int
    text: str


class LineChange(NamedTuple):
    """Lines `start` to `end` of the old text become lines `new_start` to `new_end` of the new."""

    start: int
    end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    r"""The lines of a text with their line breaks. Only "\n" ends a line."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [text[text.rfind("\n") + 1 :]] * (
        not text.endswith("\n") and bool(text)
    )


def changed_lines(pieces: Sequence[tuple[str, str]]) -> Iterator[LineChange]:
    """Yield the changes from line to line.

    Lines that documents have in common need no comparison.
    """
    if any(text and not text.endswith("\n") for piece in pieces[:-1] for text in piece):
        # One line is in two pieces, as in JSON without line breaks.
        pieces = [("".join(old for old, _ in pieces), "".join(new for _, new in pieces))]
    line = new_line = 0
    for old_text, new_text in pieces:
        old, new = split_lines(old_text), split_lines(new_text)
        if old_text != new_text:
            for change in _line_changes(old, new):
                yield LineChange(
                    change.start + line,
                    change.end + line,
                    change.new_start + new_line,
                    change.new_end + new_line,
                )
        line, new_line = line + len(old), new_line + len(new)


def _line_changes(old: list[str], new: list[str]) -> Iterator[LineChange]:
    shortest = min(len(old), len(new))
    start = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    rest = shortest - start
    tail = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    whole = LineChange(start, len(old) - tail, start, len(new) - tail)
    if max(whole.end, whole.new_end) - start > _MAX_COMPARED_LINES:
        yield whole
        return
    matcher = SequenceMatcher(
        None, old[start : whole.end], new[start : whole.new_end], autojunk=False
    )
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield LineChange(
                start=start + old_start,
                end=start + old_end,
                new_start=start + new_start,
                new_end=start + new_end,
            )


def text_edits(old: str, new: str, start: int = 0) -> Iterator[TextEdit]:
    """The edits that turn `old`, which begins at the offset `start` of a text, into `new`."""
    before, after = split_lines(old), split_lines(new)
    offsets = list(accumulate(map(len, before), initial=start))
    for change in changed_lines([(old, new)]):
        gone = "".join(before[change.start : change.end])
        come = "".join(after[change.new_start : change.new_end])
        head = _common_prefix_length(gone, come)
        head -= gone[:head].endswith("\r")  # a line break is edited as a whole
        tail = _common_prefix_length(gone[head:][::-1], come[head:][::-1])
        tail -= gone[len(gone) - tail - 1 : len(gone) - tail + 1] == "\r\n"
        first = offsets[change.start]
        yield TextEdit(first + head, first + len(gone) - tail, come[head : len(come) - tail])


def _common_prefix_length(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


_MAX_SENTENCES = 8
_NAME_PATTERN = re.compile(r"[A-Za-z][\w-]*", re.ASCII)


def edits_by_hand(operations: Sequence[Operation]) -> Iterator[str]:
    """One sentence for each operation of a JSON Patch, in order."""
    for operation in operations[:_MAX_SENTENCES]:
        yield _edit_sentence(operation)
    if len(operations) > _MAX_SENTENCES:
        yield f"and {len(operations) - _MAX_SENTENCES} more: --patch shows all"


def _edit_sentence(operation: Operation) -> str:
    *parents, key = _pointer_steps(operation["path"])
    kind, where = operation["op"], _dotted(parents)
    if kind == "move":
        return f"rename {_dotted(_pointer_steps(operation['from']))} to {key}"
    if kind == "remove":
        return f"remove {_dotted([*parents, key])}"
    if kind == "replace":
        return f"set {_dotted([*parents, key])} to {one_line_text(operation['value'])}"
    if key == "-":
        return f"add to {where}: {one_line_text([operation['value']])}"
    return f"add to {where or 'the object'}: {one_line_text({key: operation['value']})}"


def _pointer_steps(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _dotted(parts: Sequence[str]) -> str:
    """A path as `kubectl explain` writes it, with indices in brackets: spec.containers[0]."""
    text = ""
    for part in parts:
        if part.isdigit():
            text += f"[{part}]"
        elif _NAME_PATTERN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text
