"""Build values and places from libyaml's events, in one pass with an explicit stack.

PyYAML's composer crashes on deep nesting, and its constructor reads some scalars differently from
kubectl's parser. This module is longer than others because it is one class: one loop over shared
state, in which the linter spends most of its time, so calls into other objects would cost speed.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from kubeyaml.escapes import mark_quotes, unmark
from kubeyaml.model import Duplicate, LimitError, Limits, Path, Place, YamlError
from kubeyaml.pyyaml import yaml
from kubeyaml.scalars import (
    MERGE_TAG,
    NUMBER_STARTS,
    WORDS,
    Scalar,
    json_value,
    key_text,
    number,
    resolve,
    resolve_tagged,
)

_COLON: Final = re.compile(r"(?:\s|(?<=\s)#.*)*+:")
_KEEP_BREAKS: Final = re.compile(r"(?:[!&]\S*|\s|#.*)*+[|>][0-9]*\+")
_BREAKS: Final = "\r\n\x85\u2028\u2029"
_STYLES: Final = {"": "plain", "'": "single", '"': "double", "|": "literal", ">": "folded"}
_ODD_KEYS: Final = frozenset((*WORDS, "<<"))
_NOT_A_KEY: Final = "a mapping or list cannot be a key"
_MAX_TAG_DIRECTIVES: Final = 100


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


class _MergeKey(str):
    """A `<<` that stays a key of its mapping until the mapping ends; it is equal only to itself."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class EventReader:
    """Reads the events of one chunk. `run` fills `values`, `places` and `duplicates`, or raises.

    `base` is the offset of `text` in the file.
    """

    def __init__(self, text: str, base: int, limits: Limits) -> None:
        self.text = text
        self.has_question = "?" in text
        self.base = base
        self.limits = limits
        # The mapping or list that is open; at first a list, which takes the root.
        self.values: Any = []
        self.places: Any = []
        self.place = Place(base, base, -1, -1, "block", "", self.places)
        self.stack: list[tuple[Any, Any, Place]] = []
        # The key whose value comes next; None if a key comes next; "" in lists.
        self.key: str | None = ""
        self.key_start = self.key_end = -1
        # The end of the last value, which is also the end of a block collection that closes.
        self.end = base
        self.nodes = self.alias_nodes = self.deepest = 0
        self.anchors: dict[str, _Anchor] = {}
        self.open_anchors: list[tuple[_Anchor, int, int, int]] = []
        self.merging: list[Any] = []
        self.duplicates: list[Duplicate] = []

    def run(self) -> None:
        """Read all events. Raises YamlError if the text is refused."""
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.StreamStartEvent: self._skip,
            yaml.DocumentStartEvent: self._start_document,
            yaml.ScalarEvent: self._add_scalar,
            yaml.AliasEvent: self._add_alias,
            yaml.MappingStartEvent: self._open_mapping,
            yaml.MappingEndEvent: self._close,
            yaml.SequenceStartEvent: self._open_list,
            yaml.SequenceEndEvent: self._close,
            yaml.DocumentEndEvent: self._skip,
            yaml.StreamEndEvent: self._skip,
        }
        # libyaml compares each of these directives with all directives before it.
        if self.text.count("%TAG") > _MAX_TAG_DIRECTIVES:
            raise LimitError(f"more than {_MAX_TAG_DIRECTIVES} %TAG directives", self.base)
        event: Any = None
        marker, text = mark_quotes(self.text)
        if marker:
            handlers[yaml.ScalarEvent] = lambda event: self._add_scalar(unmark(event, marker))
        try:
            next_event = yaml.CSafeLoader(text).get_event
            for nodes in range(self.limits.max_nodes):
                event = next_event()
                if event is None:
                    return
                self.nodes = nodes
                handlers[event.__class__](event)
        except (yaml.YAMLError, ValueError) as problem:
            raise self._explain(problem, event) from problem
        why = f"more than {self.limits.max_nodes} nodes in one document: give it in parts"
        raise LimitError(why, self.end)

    def _skip(self, _event: Any) -> None:
        pass

    def _start_document(self, event: Any) -> None:
        if self.values:
            self._refuse("kubectl ignores this second document; start it with ---", event)

    def _add_scalar(self, event: Any) -> None:
        text = event.value
        style = event.style
        start = event.start_mark.index + self.base
        self.end = end = event.end_mark.index + self.base
        if self.has_question and not style and "?" in text and self.place.style == "flow":
            self._refuse("inside brackets, kubectl accepts a ? only in quotes", event)
        is_bare = event.tag is None and event.anchor is None
        if self.key is None:
            self.key_start, self.key_end = start, end
            is_usual = is_bare and (
                style or (text not in _ODD_KEYS and text[0] not in NUMBER_STARTS)
            )
            self.key = text if is_usual else self._odd_key(event)
            return
        value = text
        if not is_bare:
            value = json_value(self._resolve(event))
        elif not style:
            if text in WORDS:
                value = WORDS[text]
                if not text:
                    start = self.end = end = self._empty_value(start)
            elif text[0] in NUMBER_STARTS:
                value = json_value(number(text))
        if style and style in "|>":
            self.end = end = self._block_end(start, end)
        note = "" if is_bare else _note(event)
        key = (self.key_start, self.key_end)
        self._put(value, Place(start, end, *key, _STYLES[style], note, None))

    def _odd_key(self, event: Any) -> str:
        value = self._resolve(event)
        if event.value == "<<" and (event.implicit[0] or event.tag == MERGE_TAG):
            if not self.merging or self.merging[-1] is not self.values:
                self.merging.append(self.values)
            return _MergeKey("<<")
        return key_text(value)

    def _resolve(self, event: Any) -> Scalar:
        value: Scalar = event.value
        if event.tag is not None:
            value = resolve_tagged(event.value, event.tag)
        elif not event.style:
            value = resolve(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchor(value, None, nodes=1)
        return value

    def _empty_value(self, start: int) -> int:
        """Return the start of an empty value.

        In flow style, and after `? key`, libyaml reports the start of the next token instead.
        """
        in_place = start > self.key_end and self.text[start - self.base - 1] == ":"
        if in_place or self.key_end < 0:
            return start
        colon = _COLON.match(self.text, self.key_end - self.base)
        return colon.end() + self.base if colon else self.key_end

    def _block_end(self, start: int, end: int) -> int:
        """Return the end of a block scalar; libyaml reports the end of the blank lines after it."""
        body = self.text[start - self.base : end - self.base]
        if _KEEP_BREAKS.match(body):
            return start + len(body.removesuffix("\n").removesuffix("\r"))
        return start + len(body.rstrip(_BREAKS))

    def _add_alias(self, event: Any) -> None:
        start = event.start_mark.index + self.base
        self.end = end = event.end_mark.index + self.base
        anchor = self.anchors.get(event.anchor)
        if anchor is None or not anchor.nodes:
            self._refuse("this alias has no anchor before it, or is inside its own anchor", event)
        is_scalar = anchor.inside is None
        if self.key is None:
            if not is_scalar:
                self._refuse(_NOT_A_KEY, event)
            self.key_start, self.key_end = start, end
            self.key = key_text(anchor.value)
            return
        self.alias_nodes += anchor.nodes
        if self.alias_nodes > self.limits.max_alias_nodes:
            message = f"aliases add more than {self.limits.max_alias_nodes} nodes"
            raise LimitError(message, start)
        self._descend(anchor.height, event)
        value = json_value(anchor.value) if is_scalar else anchor.value
        place = Place(start, end, self.key_start, self.key_end, "alias", "alias", anchor.inside)
        self._put(value, place)

    def _open_mapping(self, event: Any) -> None:
        self._open(event, {}, {})
        self.key = None

    def _open_list(self, event: Any) -> None:
        self._open(event, [], [])
        self.key = ""
        self.key_start = self.key_end = -1

    def _open(self, event: Any, values: Any, places: Any) -> None:
        if self.key is None:
            self._refuse(_NOT_A_KEY, event)
        start = event.start_mark.index + self.base
        style = "flow" if event.flow_style else "block"
        note = "" if event.tag is None and event.anchor is None else _note(event)
        place = Place(start, start, self.key_start, self.key_end, style, note, places)
        self._put(values, place)
        self.stack.append((self.values, self.places, self.place))
        self.values, self.places, self.place = values, places, place
        if event.anchor is not None:
            anchor = self.anchors[event.anchor] = _Anchor(values, places)
            self.open_anchors.append((anchor, self.nodes, self.alias_nodes, self.deepest))
            self.deepest = 0
        if len(self.stack) > self.deepest:
            self._descend(0, event)

    def _close(self, event: Any) -> None:
        place = self.place
        # Only a closing bracket has a width. The end of a block has none, and the end of a mapping
        # without braces, as in `[a: 1]`, has none either.
        if place.style == "flow" and event.end_mark.index > event.start_mark.index:
            self.end = event.end_mark.index + self.base
        place.end = self.end
        if self.merging and self.merging[-1] is self.values:
            self.merging.pop()
            _merge(self.values, self.places)
        if place.note == "anchor":
            self._close_anchor()
        self.values, self.places, self.place = self.stack.pop()
        if type(self.values) is dict:
            self.key = None
        else:
            self.key = ""
            self.key_start = self.key_end = -1

    def _close_anchor(self) -> None:
        anchor, nodes, alias_nodes, deepest = self.open_anchors.pop()
        anchor.nodes = self.nodes - nodes + self.alias_nodes - alias_nodes
        anchor.height = self.deepest - len(self.stack) + 1
        self.deepest = max(self.deepest, deepest)

    def _descend(self, levels: int, event: Any) -> None:
        self.deepest = max(self.deepest, len(self.stack) + levels)
        if self.deepest > self.limits.max_depth:
            message = f"nested more than {self.limits.max_depth} levels deep"
            raise LimitError(message, event.start_mark.index + self.base)

    def _put(self, value: Any, place: Place) -> None:
        values, key = self.values, self.key
        if type(values) is list:
            values.append(value)
            self.places.append(place)
            return
        if is_repeated := key in values:
            # Merges depend on the order of the entries, so the new entry must be the last one.
            del values[key]
        values[key] = value
        self.places[key] = place
        self.key = None
        if is_repeated:
            self.duplicates.append(Duplicate(self._path(), place.key_start))

    def _path(self) -> Path:
        """Return the path of the last value: the last entry of each open collection."""
        outer = [values for values, _, _ in self.stack[1:]]
        return tuple(
            len(values) - 1 if type(values) is list else str(next(reversed(values)))
            for values in (*outer, self.values)
        )

    def _refuse(self, message: str, event: Any) -> NoReturn:
        raise YamlError(message, event.start_mark.index + self.base)

    def _explain(self, problem: Exception, event: Any) -> YamlError:
        index = event.start_mark.index if event else 0
        message = str(problem)
        if isinstance(problem, yaml.MarkedYAMLError):
            message = ", ".join(filter(None, (problem.context, problem.problem)))
            mark = problem.problem_mark or problem.context_mark
            index = mark.index if mark else index
        elif isinstance(problem, yaml.reader.ReaderError):
            message = problem.reason
            index = len(self.text.encode()[: problem.position].decode(errors="ignore"))
        elif isinstance(problem, UnicodeEncodeError):
            message = "half of a surrogate pair is not a character"
            index = problem.start
        return YamlError(message, min(index, len(self.text)) + self.base)


def _note(event: Any) -> str:
    if event.anchor is not None:
        return "anchor"
    return "" if event.tag is None else "tag"


def _merge(values: dict[str, Any], places: dict[str, Any]) -> None:
    """Replace each `<<` by the entries of its mappings. As in go-yaml, later entries win."""
    entries = [(key, value, places[key]) for key, value in values.items()]
    values.clear()
    places.clear()
    for key, value, place in entries:
        if type(key) is not _MergeKey:
            values[key], places[key] = value, place
            continue
        is_list = type(value) is list and place.style != "alias"
        sources = list(zip(value, place.inside, strict=True)) if is_list else [(value, place)]
        # The first mapping of a list wins, so its entries are written last.
        for source, source_place in reversed(sources):
            if type(source) is not dict:
                raise YamlError(
                    "the value of << must be a mapping or a list of mappings", source_place.start
                )
            values.update(source)
            for name, inside in source_place.inside.items():
                places[name] = inside.merged()
