"""The labels of GPU nodes, as all built-in profiles know them, told in CEL."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from policies.profiles import built_in
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE
from rules.traits.bits import KEY_WORDS
from tools.cel import begins, either, holds, is_one_of, letters
from tools.match_bounds import LONGEST


def is_label(key: str, values: str, unless: str = "") -> Iterator[str]:
    """Tests of whether a label is one of GPU nodes, where `unless` by one of its `values`."""
    known, shared = _known_labels()
    yield from _of_gpu_nodes(key, known.keys() - shared)
    by_values: dict[frozenset[str], set[str]] = {}
    for name in shared:
        by_values.setdefault(frozenset(begins("value", letters(known[name]))), set()).add(name)
    for tests, names in sorted(by_values.items(), key=lambda pair: sorted(pair[1])):
        test = either([f"value.size() > {LONGEST['value']}", *sorted(tests)])
        if_any = "" if names <= LABELS_OF_EVERY_NODE else unless
        value = f"{values}.exists(value, {test})"
        yield f"{either(is_one_of(key, names))} && ({if_any}{value})"


def is_label_of_gpu_nodes(key: str) -> Iterator[str]:
    """Tests of whether only GPU nodes have a label, whatever its value."""
    known, _ = _known_labels()
    yield from _of_gpu_nodes(key, known.keys() - LABELS_OF_EVERY_NODE)


def _of_gpu_nodes(key: str, names: Collection[str]) -> Iterator[str]:
    yield f"{key}.size() > {LONGEST['key']}"
    yield from holds(key, KEY_WORDS)
    yield from is_one_of(key, names)


def _known_labels() -> tuple[dict[str, set[str]], set[str]]:
    """The labels of GPU nodes with their values, and which of them other nodes have as well.

    Those that have one of `KEY_WORDS` in them need not be known.
    """
    known: dict[str, set[str]] = {}
    for raw in built_in().values():
        for name, meaning in raw.get("nodeLabels", {}).items():
            known.setdefault(name, set()).update(meaning or ["*"])
    known = {name: v for name, v in known.items() if not any(word in name for word in KEY_WORDS)}
    shared = {n for n, v in known.items() if any("*" in one for one in v) and "" not in letters(v)}
    return known, shared | (known.keys() & LABELS_OF_EVERY_NODE)
