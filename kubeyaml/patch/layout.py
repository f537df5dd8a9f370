"""Write values as YAML text that is laid out like the rest of its document."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from kubeyaml.model import Document, Place
from kubeyaml.patch.source_text import SourceText
from kubeyaml.scalars import resolve

_PLAIN_PATTERN: Final = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_ESCAPED_PATTERN: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|[\ud800-\udfff]")


class Layout(NamedTuple):
    """The layout of a document, and so of new text in it."""

    indent_columns: int = 2
    """the columns by which a mapping is indented below its key"""
    dash_columns: int = 0
    """the columns by which the dashes of a list are indented below its key"""
    is_json: bool = False
    is_minified: bool = False
    """JSON without blanks"""


def quoted_text(text: str) -> str:
    """`text` in double quotes, as JSON and YAML both read it."""
    encoded = json.dumps(text, ensure_ascii=False)
    return _ESCAPED_PATTERN.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded)


def scalar_text(value: Any, style: str = "plain") -> str:
    """A scalar or an empty collection; strings in the style of the value before, if they can be."""
    if not isinstance(value, str):
        return json.dumps(value)
    if style == "single" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style == "double" or not _PLAIN_PATTERN.fullmatch(value) or resolve(value) != value:
        return quoted_text(value)
    return value


def flow_text(value: Any, layout: Layout) -> str:
    """`value` on one line, inside the brackets of flow style."""
    write = quoted_text if layout.is_json else scalar_text
    comma, colon = (",", ":") if layout.is_minified else (", ", ": ")
    if isinstance(value, dict):
        entries = (f"{write(key)}{colon}{flow_text(child, layout)}" for key, child in value.items())
        return "{" + comma.join(entries) + "}"
    if isinstance(value, list):
        return "[" + comma.join(flow_text(child, layout) for child in value) + "]"
    return write(value) if isinstance(value, str) else scalar_text(value)


def one_line_text(value: Any) -> str:
    """`value` as YAML on one line, for people to read."""
    return flow_text(value, Layout())


def pretty_flow_text(value: Any, layout: Layout, column: int, line_break: str) -> str:
    """`value` in flow style with one entry a line; `column` is that of its closing bracket."""
    if not value or not isinstance(value, dict | list):
        return flow_text(value, layout)
    write = quoted_text if layout.is_json else scalar_text
    inner = column + layout.indent_columns
    children = value.items() if isinstance(value, dict) else (("", child) for child in value)
    entries = [
        (f"{write(key)}: " if isinstance(value, dict) else "")
        + pretty_flow_text(child, layout, inner, line_break)
        for key, child in children
    ]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    gap = line_break + " " * inner
    return opening + gap + f",{gap}".join(entries) + line_break + " " * column + closing


def block_entry_lines(key: str, value: Any, column: int, layout: Layout) -> Iterator[str]:
    """The lines of `key: value` in a block mapping whose keys are at `column`."""
    head = " " * column + scalar_text(key) + ":"
    if not value or not isinstance(value, dict | list):
        yield f"{head} {scalar_text(value)}"
        return
    yield head
    yield from block_lines(
        value,
        column + (layout.indent_columns if isinstance(value, dict) else layout.dash_columns),
        layout,
    )


def block_item_lines(value: Any, column: int, layout: Layout) -> Iterator[str]:
    """The lines of an item in a block list whose dashes are at `column`."""
    if not value or not isinstance(value, dict | list):
        yield f"{' ' * column}- {scalar_text(value)}"
        return
    first, *others = block_lines(value, column + len("- "), layout)
    yield " " * column + "- " + first.lstrip(" ")
    yield from others


def block_lines(value: Any, column: int, layout: Layout) -> Iterator[str]:
    """The lines of a collection that is not empty, whose entries are at `column`."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from block_entry_lines(key, child, column, layout)
        return
    for child in value:
        yield from block_item_lines(child, column, layout)


_MAX_COLLECTIONS: Final = 500


def layout_of(source: SourceText, document: Document) -> Layout:
    """The layout of most of the document; the usual one where there is nothing to learn from."""
    root = document.place
    if root.style == "flow":
        return _layout_of_json(source, root)
    steps: Counter[int] = Counter()
    dashes: Counter[int] = Counter()
    waiting = [root]
    for place in islice(waiting, _MAX_COLLECTIONS):
        column = source.column(place.start)
        for child in place.filled_collections():
            if child.style != "block" or child.note == "merge":
                continue
            waiting.append(child)
            if place.is_mapping and not child.note:
                counts = steps if child.is_mapping else dashes
                counts[source.column(child.start) - column] += 1
    usual = Layout()
    return Layout(
        _most_common_step(steps, usual.indent_columns, 1),
        _most_common_step(dashes, usual.dash_columns, 0),
    )


def _layout_of_json(source: SourceText, root: Place) -> Layout:
    first = min(written_children(root), key=lambda child: child.start, default=None)
    if first is None:
        return Layout(is_json=True)
    step = source.column(first.key_start)
    is_on_a_line_of_its_own = (
        step and not source.text_between(first.key_start - step, first.key_start).strip()
    )
    return Layout(
        indent_columns=step if is_on_a_line_of_its_own else 2,
        is_json=True,
        is_minified=source.text_between(first.key_end, first.start) == ":",
    )


def written_children(place: Place) -> list[Place]:
    """The places of the entries of a collection that stand in it; none come from a merge."""
    inside = place.inside
    found = inside.values() if isinstance(inside, dict) else inside or ()
    return [child for child in found if child.note != "merge"]


def _most_common_step(counts: Counter[int], usual: int, at_least: int) -> int:
    # Odd places, such as those of a list inside a list, can give numbers that nothing can have.
    sound = [(count, step) for step, count in counts.items() if step >= at_least]
    return max(sound, default=(0, usual))[1]
