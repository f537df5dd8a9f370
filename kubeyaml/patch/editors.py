"""Edits of a collection in block style: entries on lines of their own."""

import re
from typing import Any, Final

from kubeyaml.model import Place
from kubeyaml.patch.layout import Look, block, block_entry, block_item, scalar
from kubeyaml.patch.look import children
from kubeyaml.patch.model import PatchError, Splice
from kubeyaml.patch.refusals import refuse_comments_inside
from kubeyaml.patch.source_text import SourceText

_COLON: Final = re.compile(r"[ \t]*:")
_DASH: Final = re.compile(r"(?:\s|#.*)*+-")
_DASHES: Final = re.compile(r"[- \t]*")


class BlockEditor:
    """Plans edits of the entries of the block collection at `place`.

    Each method returns splices, or raises PatchError. A key is a name or the index of an item.
    """

    def __init__(self, source: SourceText, place: Place, look: Look) -> None:
        self._source = source
        self._place = place
        self._look = look
        self._column = source.column(place.start)

    def add(self, key: str | int, value: Any) -> list[Splice]:
        """Put a new entry below the others, or an item above the one that has its index."""
        source, place = self._source, self._place
        if source.between(place.start, place.start + 1) == "?":
            raise PatchError("the mapping has a key behind a question mark")
        if isinstance(key, str):
            lines = block_entry(key, value, self._column, self._look)
            return [source.insert_lines(place.end, lines)]
        lines = block_item(value, self._column, self._look)
        if key == len(children(place)):
            return [source.insert_lines(place.end, lines)]
        start = self._header(key)[0]
        text = source.line_break.join(lines) + source.line_break + " " * self._column
        return [Splice(start, start, text.lstrip(" "))]

    def replace(self, key: str | int, value: Any, *, discard: bool = False) -> list[Splice]:
        """Replace the value of an entry; `discard` the comments in it."""
        source, old = self._source, _child(self._place, key)
        behind = self._header(key)[1]
        gap = source.between(behind, old.start)
        if not discard:
            refuse_comments_inside(source, old)
        if old.style == "block":
            return self._replace_block(old, behind, scalar(value))
        if not value or not isinstance(value, dict | list):
            blank = "" if old.end > old.start else " "
            return [Splice(old.start, old.end, blank + scalar(value, old.style))]
        self._refuse_text_behind(old)
        if gap.strip(" \t"):
            raise PatchError("the value is not on the line of its key")
        if isinstance(key, int):
            lines = block(value, self._column + len("- "), self._look)
            return [Splice(behind, old.end, " " + source.line_break.join(lines).lstrip(" "))]
        indent = self._look.step if isinstance(value, dict) else self._look.dash
        lines = block(value, self._column + indent, self._look)
        return [Splice(behind, old.end), source.insert_lines(old.end, lines)]

    def remove(self, key: str | int) -> list[Splice]:
        """Remove an entry, which must not be the only one, with all its lines."""
        source, old = self._source, _child(self._place, key)
        self._refuse_text_behind(old)
        start = self._header(key)[0]
        line = source.line_start(start)
        before = source.between(line, start)
        if not before.strip(" "):
            return [Splice(line, source.line_end(old.end))]
        following = [child for child in children(self._place) if child.start > old.end]
        if not _DASHES.fullmatch(before) or not following:
            raise PatchError("the entry does not begin on a line of its own")
        # The first entry of an item stands beside the dash, and the second one takes its place.
        if isinstance(key, int):
            stop = self._header(key + 1)[0]
        else:
            stop = min(child.key_start for child in following)
        if source.between(source.line_end(old.end), stop).strip():
            raise PatchError("a comment stands below the entry, which begins beside a dash")
        return [Splice(start, stop)]

    def _header(self, key: str | int) -> tuple[int, int]:
        """The start of an entry, and the end of its colon or dash."""
        source, child = self._source, _child(self._place, key)
        if isinstance(key, str):
            colon = _COLON.match(source.text, child.key_end)
            if colon is None:
                raise PatchError("the key stands behind a question mark")
            return child.key_start, colon.end()
        if key == 0:
            return self._place.start, self._place.start + 1
        previous = _child(self._place, key - 1)
        dash = _DASH.match(source.text, previous.end)
        if dash is None:
            raise PatchError("the dash of the item is not where it is expected")
        return dash.end() - 1, dash.end()

    def _replace_block(self, old: Place, behind: int, text: str) -> list[Splice]:
        source = self._source
        start, stop = source.line_start(old.start), source.line_end(old.end)
        self._refuse_text_behind(old)
        if start <= behind:
            return [Splice(old.start, old.end, text)]
        return [Splice(behind, behind, " " + text), Splice(start, stop)]

    def _refuse_text_behind(self, entry: Place) -> None:
        rest = self._source.rest_of_line(entry.end)
        if rest and not rest.startswith("#"):
            raise PatchError("something else stands on the line on which the value ends")


def _child(place: Place, key: str | int) -> Place:
    inside: Any = place.inside
    child: Place = inside[key]
    return child
