"""Edits of one collection, in block style or in flow style."""

import re
from typing import Any, Final

from kubeyaml.model import Place
from kubeyaml.patch.layout import (
    Layout,
    block_entry_lines,
    block_item_lines,
    block_lines,
    flow_text,
    pretty_flow_text,
    quoted_text,
    scalar_text,
    written_children,
)
from kubeyaml.patch.model import PatchError, Splice
from kubeyaml.patch.source_text import SourceText, refuse_comments_inside

_COLON_PATTERN: Final = re.compile(r"[ \t]*:")
_DASH_PATTERN: Final = re.compile(r"(?:\s|#.*)*+-")
_DASHES_PATTERN: Final = re.compile(r"[- \t]*")

# With these begin keys that have more than their text.
_NOTE_STARTS = frozenset("&!*|>")
_NOTED_KEY_REASON = "the key has an anchor or a tag"


class BlockEditor:
    """Plans edits of the entries of the block collection at `place`.

    Each method returns splices, or raises PatchError. A key is a name or the index of an item.
    """

    def __init__(self, source: SourceText, place: Place, layout: Layout) -> None:
        self._source = source
        self._place = place
        self._layout = layout
        self._column = source.column(place.start)

    def add(self, key: str | int, value: Any) -> list[Splice]:
        """Put a new entry below the others, or an item above the one that has its index."""
        source, place = self._source, self._place
        if source.text_between(place.start, place.start + 1) == "?":
            raise PatchError("the mapping has a key behind a question mark")
        if isinstance(key, str):
            lines = block_entry_lines(key, value, self._column, self._layout)
            return [source.splice_inserting_lines(self._end, lines)]
        lines = block_item_lines(value, self._column, self._layout)
        if key == len(written_children(place)):
            return [source.splice_inserting_lines(self._end, lines)]
        start = self._span_of_entry_head(key)[0]
        text = source.line_break.join(lines) + source.line_break + " " * self._column
        return [Splice(start, start, text.lstrip(" "))]

    @property
    def _end(self) -> int:
        """The end of the last entry, with the comments below that belong to something in it."""
        return self._source.end_of_comments_below(self._place.end, self._column)

    def replace(self, key: str | int, value: Any, *, discard: bool = False) -> list[Splice]:
        """Replace the value of an entry; `discard` the comments in it."""
        source, old = self._source, _child(self._place, key)
        behind = self._span_of_entry_head(key)[1]
        gap = source.text_between(behind, old.start)
        if not discard:
            refuse_comments_inside(source, old)
        if old.style == "block":
            return self._replace_block(old, behind, scalar_text(value))
        if not value or not isinstance(value, dict | list):
            blank = "" if old.end > old.start else " "
            return [Splice(old.start, old.end, blank + scalar_text(value, old.style))]
        self._refuse_text_behind(old)
        if gap.strip(" \t"):
            raise PatchError("the value is not on the line of its key")
        if isinstance(key, int):
            lines = block_lines(value, self._column + len("- "), self._layout)
            return [Splice(behind, old.end, " " + source.line_break.join(lines).lstrip(" "))]
        indent = (
            self._layout.indent_columns if isinstance(value, dict) else self._layout.dash_columns
        )
        lines = block_lines(value, self._column + indent, self._layout)
        return [Splice(behind, old.end), source.splice_inserting_lines(old.end, lines)]

    def remove(self, key: str | int) -> list[Splice]:
        """Remove an entry, which must not be the only one, with all its lines."""
        source, old = self._source, _child(self._place, key)
        self._refuse_text_behind(old)
        start = self._span_of_entry_head(key)[0]
        line = source.line_start(start)
        before = source.text_between(line, start)
        if not before.strip(" "):
            earlier = [child for child in written_children(self._place) if child.end <= line]
            above = max(earlier, key=lambda child: child.end, default=None)
            return [source.splice_removing_lines(line, old.end, above)]
        following = [child for child in written_children(self._place) if child.start > old.end]
        if not _DASHES_PATTERN.fullmatch(before) or not following:
            raise PatchError("the entry does not begin on a line of its own")
        # The first entry of an item stands beside the dash, and the second one takes its place.
        if isinstance(key, int):
            stop = self._span_of_entry_head(key + 1)[0]
        else:
            stop = min(child.key_start for child in following)
        if source.text_between(source.line_end(old.end), stop).strip():
            raise PatchError("a comment stands below the entry, which begins beside a dash")
        return [Splice(start, stop)]

    def _span_of_entry_head(self, key: str | int) -> tuple[int, int]:
        """The start of an entry, and the end of its colon or dash."""
        source, child = self._source, _child(self._place, key)
        if isinstance(key, str):
            colon = _COLON_PATTERN.match(source.text, child.key_end)
            if colon is None:
                raise PatchError("the key stands behind a question mark")
            return child.key_start, colon.end()
        if key == 0:
            return self._place.start, self._place.start + 1
        previous = _child(self._place, key - 1)
        dash = _DASH_PATTERN.match(source.text, previous.end)
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


def splice_of_renamed_key(source: SourceText, entry: Place, name: str, layout: Layout) -> Splice:
    """The splice that gives the key of `entry` a new name, in the quotes that it has."""
    text = source.text_between(entry.key_start, entry.key_end)
    if text[:1] in _NOTE_STARTS:
        raise PatchError(_NOTED_KEY_REASON)
    style = {"'": "single", '"': "double"}.get(text[:1], "plain")
    new = quoted_text(name) if layout.is_json else scalar_text(name, style)
    return Splice(entry.key_start, entry.key_end, new)


def _child(place: Place, key: str | int) -> Place:
    inside: Any = place.inside
    child: Place = inside[key]
    return child


class FlowEditor:
    """Plans edits of the entries of the flow collection at `place`.

    Each method returns splices, or raises PatchError. A key is a name or the index of an item.
    """

    def __init__(self, source: SourceText, place: Place, layout: Layout) -> None:
        self._source = source
        self._place = place
        brackets = source.text_between(place.start, place.start + 1) + source.text_between(
            place.end - 1, place.end
        )
        if brackets not in {"{}", "[]"}:
            raise PatchError("the mapping has no braces")
        self._entries = sorted(written_children(place), key=lambda child: child.start)
        self._starts = [e.key_start if e.key_start >= 0 else e.start for e in self._entries]
        if self._starts and source.text_between(self._starts[-1], self._starts[-1] + 1) == '"':
            layout = layout._replace(is_json=layout.is_json or brackets == "{}")
        self._layout = layout

    def add(self, key: str | int, value: Any) -> list[Splice]:
        """Put a new entry behind the others, or an item before the one that has its index."""
        if not self._entries:
            return self._add_first(key, value)
        number = key if isinstance(key, int) else len(self._entries)
        if number < len(self._entries):
            text = self._entry_text(key, value, number)
            start = self._starts[number]
            return [Splice(start, start, text + "," + (self._blanks_before(number) or " "))]
        last = self._entries[-1].end
        self._refuse_comments(last, self._place.end)
        gap = self._blanks_before(len(self._entries) - 1)
        if not gap and not self._layout.is_minified:
            gap = " "
        # Behind a colon, a comma would be a part of the value.
        comma = " ," if self._source.text_between(last - 1, last) == ":" else ","
        return [Splice(last, last, comma + gap + self._entry_text(key, value, number - 1))]

    def replace(self, key: str | int, value: Any, *, discard: bool = False) -> list[Splice]:
        """Replace the value of an entry; `discard` the comments in it."""
        inside: Any = self._place.inside
        old: Place = inside[key]
        if not discard:
            refuse_comments_inside(self._source, old)
        before = self._text_before_new_value(old) if old.end == old.start else ""
        if isinstance(value, str) and not self._layout.is_json:
            return [Splice(old.start, old.end, before + scalar_text(value, old.style))]
        text = self._value_text(value, self._indentation(old.start))
        return [Splice(old.start, old.end, before + text)]

    def remove(self, key: str | int) -> list[Splice]:
        """Remove an entry and the comma that separates it from another."""
        inside: Any = self._place.inside
        old: Place = inside[key]
        number = self._entries.index(old)
        if len(self._entries) == 1:
            start, stop = self._place.start + 1, self._place.end - 1
        elif number:
            start, stop = self._entries[number - 1].end, old.end
        else:
            start, stop = self._starts[0], self._starts[1]
        for begin, end in ((start, self._starts[number]), (old.end, stop)):
            self._refuse_comments(begin, end)
            if "<<" in self._source.text_between(begin, end):
                raise PatchError("a merge key (<<) stands beside the entry")
        return [Splice(start, stop, self._blank_behind_tag(number))]

    def _blank_behind_tag(self, removed: int) -> str:
        """The blank between a bracket and a tag, which a removed entry separates: `[!x, a]`."""
        if not removed or removed < len(self._entries) - 1:
            return ""
        left = self._source.text_between(self._starts[removed - 1], self._entries[removed - 1].end)
        words = left.split()
        return " " if words and words[-1].startswith("!") else ""

    def _add_first(self, key: str | int, value: Any) -> list[Splice]:
        start, stop = self._place.start, self._place.end
        if self._place.inside:
            raise PatchError("a merge key (<<) supplies all other entries")
        self._refuse_comments(start, stop)
        whole = {key: value} if isinstance(key, str) else [value]
        return [Splice(start, stop, self._value_text(whole, self._indentation(start)))]

    def _text_before_new_value(self, old: Place) -> str:
        """The text between a key and a value in the place of `old`, for which nothing is written.

        In `{a, b: }`, only the second key has a colon.
        """
        source = self._source
        if old.key_end < 0 or ":" in source.text_between(old.key_end, old.start):
            return " "
        key = source.text_between(old.key_start, old.key_end)
        if key[:1] in _NOTE_STARTS:
            raise PatchError(_NOTED_KEY_REASON)
        if "\n" in key:
            raise PatchError("the key is on several lines, and so cannot have a value")
        return ": "

    def _entry_text(self, key: str | int, value: Any, like: int) -> str:
        """The text of a new entry, on as many lines as the entry number `like` suggests."""
        gap, layout = self._blanks_before(like), self._layout
        column = self._source.column(self._starts[like]) if "\n" in gap else None
        text = self._value_text(value, column)
        if isinstance(key, int):
            return text
        name = flow_text(key, layout)
        return f"{name}:{text}" if layout.is_minified else f"{name}: {text}"

    def _value_text(self, value: Any, column: int | None) -> str:
        if column is None or not self._layout.is_json or self._layout.is_minified:
            return flow_text(value, self._layout)
        return pretty_flow_text(value, self._layout, column, self._source.line_break)

    def _indentation(self, offset: int) -> int | None:
        """The indentation of the line of `offset`, None if the document is on one line."""
        source = self._source
        if "\n" not in source.text_between(source.start, source.end).strip():
            return None
        line = source.text_between(source.line_start(offset), offset)
        return len(line) - len(line.lstrip(" "))

    def _blanks_before(self, number: int) -> str:
        """The blanks before an entry, without comma."""
        start = self._entries[number - 1].end if number else self._place.start + 1
        self._refuse_comments(start, self._starts[number])
        before = self._source.text_between(start, self._starts[number])
        blanks = before.replace(",", "", 1)
        return before.rpartition(",")[2] if blanks.strip() else blanks  # behind a merge key

    def _refuse_comments(self, start: int, stop: int) -> None:
        if "#" in self._source.text_between(start, stop):
            raise PatchError("a comment stands between the brackets")
