"""What must not be edited, with the reason."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubeyaml.model import Document, Path, Place
from kubeyaml.patch.model import PatchError, Splice
from kubeyaml.patch.source_text import SourceText

_CONTROL: Final = re.compile(r"\{\{-?\s*(?:if|else|end|range|with|define|block|include|template)\b")
_COMMENT: Final = re.compile(r"\s#")
_REASONS: Final = {
    "alias": "an alias stands for the value, and a change at its anchor would change other places",
    "merge": "a merge key (<<) supplies the value, and a change there would change other places",
    "anchor": "the value has an anchor, and a change would also change its aliases",
    "tag": "the value has a tag",
}


def refuse_conditions(source: SourceText) -> None:
    """Refuse the text of a template with conditions and loops: the edit might be inside one."""
    if _CONTROL.search(source.text, source.start, source.end):
        raise PatchError("the file is a template")


def place_at(document: Document, path: Path) -> Place:
    """The place of the value at `path`, if nothing on the way forbids an edit there."""
    place = document.place
    refuse_shared(place)
    for step in path:
        inside: Any = place.inside
        place = inside[step]
        refuse_shared(place)
    return place


def refuse_shared(place: Place) -> None:
    """Refuse an edit of a value that stands for others, or whose text says more than its value."""
    if place.note:
        raise PatchError(_REASONS[place.note])


def refuse_anchors_inside(place: Place) -> None:
    """Refuse to remove a value with an anchor inside, for which aliases may stand elsewhere."""
    for inner in _descendants(place):
        if inner.note == "anchor":
            raise PatchError(_REASONS["anchor"])


def refuse_comments_inside(source: SourceText, place: Place) -> None:
    """Refuse to replace a collection if something in it may be a comment."""
    if place.inside and _COMMENT.search(source.between(place.start, source.line_end(place.end))):
        raise PatchError("the value to replace contains comments")


def refuse_placeholders(source: SourceText, splices: Iterable[Splice]) -> None:
    """Refuse to change text that a template fills in."""
    for start, end, _ in splices:
        if "{{" in source.between(start, end):
            raise PatchError("a template fills in this text")


def _descendants(place: Place) -> Iterator[Place]:
    waiting = [place]
    for current in waiting:
        yield current
        if current.note not in {"alias", "merge"}:
            inside = current.inside
            waiting += inside.values() if isinstance(inside, dict) else inside or ()
