"""Find out how a document is laid out, so that new text looks like the rest."""

from collections import Counter
from itertools import islice
from typing import Final

from kubeyaml.model import Document, Place
from kubeyaml.patch.layout import Look
from kubeyaml.patch.source_text import SourceText

_MAX_COLLECTIONS: Final = 500


def look_of(source: SourceText, document: Document) -> Look:
    """The layout of most of the document; the usual one where there is nothing to learn from."""
    root = document.place
    if root.style == "flow":
        return _look_of_json(source, root)
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
    usual = Look()
    return Look(_most_common(steps, usual.step, 1), _most_common(dashes, usual.dash, 0))


def _look_of_json(source: SourceText, root: Place) -> Look:
    first = min(children(root), key=lambda child: child.start, default=None)
    if first is None:
        return Look(is_json=True)
    step = source.column(first.key_start)
    is_on_a_line_of_its_own = (
        step and not source.between(first.key_start - step, first.key_start).strip()
    )
    return Look(
        step=step if is_on_a_line_of_its_own else 2,
        is_json=True,
        is_minified=source.between(first.key_end, first.start) == ":",
    )


def children(place: Place) -> list[Place]:
    """The places of the entries of a collection that stand in it; none come from a merge."""
    inside = place.inside
    found = inside.values() if isinstance(inside, dict) else inside or ()
    return [child for child in found if child.note != "merge"]


def _most_common(counts: Counter[int], usual: int, at_least: int) -> int:
    # Odd places, such as those of a list inside a list, can give numbers that nothing can have.
    sound = [(count, step) for step, count in counts.items() if step >= at_least]
    return max(sound, default=(0, usual))[1]
