"""Compose values and their places from libyaml's events.

PyYAML's composer crashes on deep nesting, and its constructor reads some scalars differently from
kubectl's parser. Most of this module is one long class, in which the linter spends most of its
time: calls into other objects would cost speed.
"""

from collections.abc import Callable
from typing import Any, Final

import yaml

from kubeyaml.events import (
    PARSER_ERRORS,
    NextEvent,
    block_scalar_end,
    empty_value_start,
    events_of,
    explain_error,
)
from kubeyaml.model import Duplicate, LimitError, Limits, RawPlace, YamlError
from kubeyaml.scalars import (
    MERGE_TAG,
    NUMBER_STARTS,
    RESOLVED_WORDS,
    Scalar,
    json_value,
    key_text,
    parse_number,
    resolve,
    resolve_tagged,
)

# The merge key `<<`, as go-yaml reads it.

# Where a RawPlace has these.
_STYLE_INDEX, _INSIDE_INDEX = 4, 6


class MergeKey(str):
    """A `<<` that stays a key of its mapping until the mapping ends; it is equal only to itself."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def merge_entries(values: dict[str, Any], places: dict[str, RawPlace], base: int) -> None:
    """Replace each MergeKey by the entries of its mappings. As in go-yaml, later entries win.

    `base` is the offset of the chunk in the file.
    """
    entries = [(key, value, places[key]) for key, value in values.items()]
    values.clear()
    places.clear()
    for key, value, place in entries:
        if type(key) is not MergeKey:
            values[key], places[key] = value, place
            continue
        style, inside = place[_STYLE_INDEX], place[_INSIDE_INDEX]
        sources: list[tuple[Any, Any]] = [(value, place)]
        if isinstance(inside, list) and style != "alias":
            sources = list(zip(value, inside, strict=True))
        # The first mapping of a list wins, so its entries are written last.
        for source, source_place in reversed(sources):
            if type(source) is not dict:
                message = "the value of << must be a mapping or a list of mappings"
                raise YamlError(message, source_place[0] + base)
            values.update(source)
            for name, inner in source_place[_INSIDE_INDEX].items():
                start, end, key_start, key_end, own_style, _, children = inner
                places[name] = (start, end, key_start, key_end, own_style, "merge", children)


ScalarEvent, AliasEvent = yaml.ScalarEvent, yaml.AliasEvent
MappingStartEvent, MappingEndEvent = yaml.MappingStartEvent, yaml.MappingEndEvent
SequenceEndEvent = yaml.SequenceEndEvent

_STYLE_NAMES: Final = {"": "plain", "'": "single", '"': "double", "|": "literal", ">": "folded"}
_BLOCK_STYLES: Final = frozenset("|>")
_NON_STRING_KEYS: Final = frozenset((*RESOLVED_WORDS, "<<"))


class _Anchor:
    """The target of aliases: its value, the places inside it, and its number of nodes and levels.

    `nodes` is 0 until the target is complete.
    """

    __slots__ = ("height", "inside", "nodes", "value")

    def __init__(self, value: Any, inside: Any, nodes: int = 0) -> None:
        self.value = value
        self.inside = inside
        self.nodes = nodes
        self.height = 0


class Composer:
    """Composes one chunk. `run` sets `value`, `place` and `duplicates`, or raises YamlError.

    `base` is the offset of `text` in the file. `place` stays None if there is no document. Each
    mapping and list is read by a call of its own; the limit on depth bounds the recursion.
    """

    def __init__(self, text: str, base: int, limits: Limits) -> None:
        self.value: Any = None
        self.place: RawPlace | None = None
        self.duplicates: list[Duplicate] = []
        self._text, self.base, self._limits = text, base, limits
        self._next_event: NextEvent
        # The path of the collection or alias that is being read.
        self._path: list[str | int] = []
        # The end of the last value, which is also the end of a block collection that closes.
        self._end = 0
        self._nodes = 3  # the starts of the stream, the document and the root
        self._alias_nodes = self._deepest = 0
        self._anchors: dict[str, _Anchor] = {}

    def run(self) -> None:
        """Read all events."""
        event: Any = None
        try:
            next_event = self._next_event = events_of(self._text, self.base)
            event = next_event()  # the start of the stream
            event = next_event()
            if type(event) is yaml.StreamEndEvent:
                return
            event = next_event()
            self.value, self.place = self._node(event, -1, -1)
            next_event()  # the end of the document
            event = next_event()
        except PARSER_ERRORS as problem:
            raise explain_error(problem, event, self._text, self.base) from problem
        if type(event) is yaml.DocumentStartEvent:
            raise self._refusal("kubectl ignores this second document; start it with ---", event)
        del self._next_event  # and the parser, which may be large

    def _node(self, event: Any, key_start: int, key_end: int) -> tuple[Any, RawPlace]:
        """Return the value and the place of the node that begins with `event`.

        The key is at `key_start` to `key_end`; both are -1 if the node is not in a mapping.
        """
        if type(event) is ScalarEvent:
            return self._scalar(event, key_start, key_end)
        if type(event) is AliasEvent:
            return self._alias(event, key_start, key_end)
        if type(event) is MappingStartEvent:
            return self._mapping(event, key_start, key_end)
        return self._list(event, key_start, key_end)

    def _scalar(self, event: Any, key_start: int, key_end: int) -> tuple[Any, RawPlace]:
        value, style, note = event.value, event.style, ""
        start, end = event.start_mark.index, event.end_mark.index
        if event.tag is not None or event.anchor is not None:
            value, note = json_value(self._resolve(event)), _note_of(event)
        elif not style:
            if value in RESOLVED_WORDS:
                if not value:
                    start = end = empty_value_start(self._text, start, key_end)
                value = RESOLVED_WORDS[value]
            elif value[0] in NUMBER_STARTS:
                value = json_value(parse_number(value))
        if style and style in "|>":
            end = block_scalar_end(self._text, start, end)
        self._end = end
        return value, (start, end, key_start, key_end, _STYLE_NAMES[style], note, None)

    # Two methods that do the same: Python is faster where all events are of one class.
    def _mapping(self, event: Any, key_start: int, key_end: int) -> tuple[Any, RawPlace]:
        values: dict[str, Any] = {}
        places: dict[str, RawPlace] = {}
        start, style, note = event.start_mark.index, "block", ""
        if len(self._path) >= self._deepest:
            self._check_depth(len(self._path) + 1, event)
        if event.anchor is None and event.tag is None:
            closing = self._fill_mapping(values, places, event)
        else:
            closing, note = self._fill_with_note(values, places, event, self._fill_mapping)
        if event.flow_style:
            style = self._end_flow(closing)
        return values, (start, self._end, key_start, key_end, style, note, places)

    def _list(self, event: Any, key_start: int, key_end: int) -> tuple[Any, RawPlace]:
        values: list[Any] = []
        places: list[RawPlace] = []
        start, style, note = event.start_mark.index, "block", ""
        if len(self._path) >= self._deepest:
            self._check_depth(len(self._path) + 1, event)
        if event.anchor is None and event.tag is None:
            closing = self._fill_list(values, places, event)
        else:
            closing, note = self._fill_with_note(values, places, event, self._fill_list)
        if event.flow_style:
            style = self._end_flow(closing)
        return values, (start, self._end, key_start, key_end, style, note, places)

    def _end_flow(self, closing: Any) -> str:
        """Move the end behind the bracket `closing`; return the style of what it closes."""
        # Only a bracket has a width. The end of a mapping without braces, as in `[a: 1]`, has none.
        if closing.end_mark.index > closing.start_mark.index:
            self._end = closing.end_mark.index
        return "flow"

    def _fill_mapping(self, values: dict[str, Any], places: dict[str, RawPlace], event: Any) -> Any:
        """Read the entries of the mapping that `event` starts; return the event that ends it."""
        next_event, path = self._next_event, self._path
        max_nodes, has_merge = self._limits.max_nodes, False
        self._nodes += 1  # the end
        try:
            while type(event := next_event()) is not MappingEndEvent:
                self._nodes += 2
                if self._nodes > max_nodes:
                    raise self._too_many_nodes()
                if type(event) is not ScalarEvent:
                    key = self._alias_key(event)
                else:
                    key = event.value
                    if (
                        event.tag is not None
                        or event.anchor is not None
                        or (
                            not event.style and (key in _NON_STRING_KEYS or key[0] in NUMBER_STARTS)
                        )
                    ):
                        key = self._odd_key(event)
                        has_merge |= type(key) is MergeKey
                key_start, key_end = event.start_mark.index, event.end_mark.index
                if key in values:
                    # Merges depend on the order of the entries, so the new entry must be the last.
                    del values[key]
                    place = (*map(_builtin_step, path), key)
                    self.duplicates.append(Duplicate(place, key_start + self.base))
                event = next_event()
                kind = type(event)
                if kind is ScalarEvent:
                    value = event.value
                    # Most values are texts as they stand; the others take another call.
                    if (
                        event.tag is not None
                        or event.anchor is not None
                        or (style := event.style) in _BLOCK_STYLES
                        or (not style and (value in RESOLVED_WORDS or value[0] in NUMBER_STARTS))
                    ):
                        values[key], places[key] = self._scalar(event, key_start, key_end)
                        continue
                    start, self._end = event.start_mark.index, (end := event.end_mark.index)
                    values[key] = value
                    places[key] = (start, end, key_start, key_end, _STYLE_NAMES[style], "", None)
                else:
                    path.append(key)
                    values[key], places[key] = self._node(event, key_start, key_end)
                    path.pop()
        except ValueError as problem:
            raise self._refusal(str(problem), event) from problem
        if has_merge:
            merge_entries(values, places, self.base)
        return event

    def _fill_list(self, values: list[Any], places: list[RawPlace], event: Any) -> Any:
        """Read the items of the list that `event` starts; return the event that ends it."""
        next_event, path, max_nodes = self._next_event, self._path, self._limits.max_nodes
        self._nodes += 1  # the end
        try:
            while type(event := next_event()) is not SequenceEndEvent:
                self._nodes += 1
                if self._nodes > max_nodes:
                    raise self._too_many_nodes()
                path.append(len(values))
                value, place = self._node(event, -1, -1)
                path.pop()
                values.append(value)
                places.append(place)
        except ValueError as problem:
            raise self._refusal(str(problem), event) from problem
        return event

    def _fill_with_note(
        self, values: Any, places: Any, event: Any, fill: Callable[..., Any]
    ) -> tuple[Any, str]:
        """Do the same by `fill` for a collection with a tag or an anchor; return its note, too."""
        if event.anchor is None:
            return fill(values, places, event), _note_of(event)
        anchor = self._anchors[event.anchor] = _Anchor(values, places)
        nodes, alias_nodes, deepest = self._nodes, self._alias_nodes, self._deepest
        self._deepest = depth = len(self._path) + 1
        closing = fill(values, places, event)
        anchor.nodes = self._nodes - nodes + self._alias_nodes - alias_nodes
        anchor.height = self._deepest - depth + 1
        self._deepest = max(self._deepest, deepest)
        return closing, _note_of(event)

    def _alias(self, event: Any, key_start: int, key_end: int) -> tuple[Any, RawPlace]:
        anchor = self._alias_target(event)
        start = event.start_mark.index
        self._end = end = event.end_mark.index
        self._alias_nodes += anchor.nodes
        if self._alias_nodes > self._limits.max_alias_nodes:
            message = f"aliases add more than {self._limits.max_alias_nodes} nodes"
            raise LimitError(message, start + self.base)
        self._check_depth(len(self._path) + anchor.height, event)
        value = json_value(anchor.value) if anchor.inside is None else anchor.value
        return value, (start, end, key_start, key_end, "alias", "alias", anchor.inside)

    def _alias_target(self, event: Any) -> _Anchor:
        anchor = self._anchors.get(event.anchor)
        if anchor is None or not anchor.nodes:
            why = "this alias has no anchor before it, or is inside its own anchor"
            raise self._refusal(why, event)
        return anchor

    def _alias_key(self, event: Any) -> str:
        anchor = self._alias_target(event) if isinstance(event, AliasEvent) else None
        if anchor is None or anchor.inside is not None:
            raise self._refusal("a mapping or list cannot be a key", event)
        return key_text(anchor.value)

    def _odd_key(self, event: Any) -> str:
        value = self._resolve(event)
        if event.value == "<<" and (event.implicit[0] or event.tag == MERGE_TAG):
            return MergeKey("<<")
        return key_text(value)

    def _resolve(self, event: Any) -> Scalar:
        value: Scalar = event.value
        if event.tag is not None:
            value = resolve_tagged(event.value, event.tag)
        elif not event.style:
            value = resolve(event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, None, nodes=1)
        return value

    def _check_depth(self, depth: int, event: Any) -> None:
        if depth > self._deepest:
            self._deepest = depth
            if depth > self._limits.max_depth:
                message = f"nested more than {self._limits.max_depth} levels deep"
                raise LimitError(message, event.start_mark.index + self.base)

    def _too_many_nodes(self) -> LimitError:
        why = f"more than {self._limits.max_nodes} nodes in one document: give it in parts"
        return LimitError(why, self._end + self.base)

    def _refusal(self, message: str, event: Any) -> YamlError:
        return YamlError(message, event.start_mark.index + self.base)


def _note_of(event: Any) -> str:
    if event.anchor is not None:
        return "anchor"
    return "" if event.tag is None else "tag"


def _builtin_step(step: str | int) -> str | int:
    return step if type(step) is int else str(step)
