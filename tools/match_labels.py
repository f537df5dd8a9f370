"""Build the CEL tests for the node labels that the built-in profiles list for GPU nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from policies.profiles import built_in
from rules.base.traits import KEY_WORDS
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE
from tools.cel import any_of, contains, leading_letters, matches, starts_with
from tools.match_bounds import LONGEST


def is_label(key: str, values: str, extra_test: str = "") -> Iterator[str]:
    """Yield tests of whether a condition on a node label asks for GPU nodes.

    `key` and `values` are CEL expressions: the label's key, and the list of values asked for. A
    label that other nodes have as well asks for GPU nodes by one of its values. `extra_test` is
    put in front of that test of the values; it must end with its operator.
    """
    known, shared = _known_labels()
    yield from _of_gpu_nodes(key, known.keys() - shared)
    by_values: dict[frozenset[str], set[str]] = {}
    for name in shared:
        by_values.setdefault(
            frozenset(starts_with("value", leading_letters(known[name]))), set()
        ).add(name)
    for tests, names in sorted(by_values.items(), key=lambda pair: sorted(pair[1])):
        test = any_of([f"value.size() > {LONGEST['value']}", *sorted(tests)])
        prefix = "" if names <= LABELS_OF_EVERY_NODE else extra_test
        value = f"{values}.exists(value, {test})"
        yield f"{any_of(matches(key, names))} && ({prefix}{value})"


def is_label_of_gpu_nodes(key: str) -> Iterator[str]:
    """Yield tests of whether only GPU nodes have the label; `key` is a CEL expression."""
    known, _ = _known_labels()
    yield from _of_gpu_nodes(key, known.keys() - LABELS_OF_EVERY_NODE)


def _of_gpu_nodes(key: str, names: Collection[str]) -> Iterator[str]:
    yield f"{key}.size() > {LONGEST['key']}"
    yield from contains(key, KEY_WORDS)
    yield from matches(key, names)


def _known_labels() -> tuple[dict[str, set[str]], set[str]]:
    """Return the labels of GPU nodes with their values, and those that other nodes have as well.

    Labels that contain one of `KEY_WORDS` are left out, because those words have their own test.
    """
    known: dict[str, set[str]] = {}
    for raw in built_in().values():
        for name, values in raw.get("nodeLabels", {}).items():
            known.setdefault(name, set()).update(values or ["*"])
        for name in raw.get("nodeModes", {}):
            known.setdefault(name, set()).add("*")
    known = {name: v for name, v in known.items() if not any(word in name for word in KEY_WORDS)}
    shared = {
        n
        for n, v in known.items()
        if any("*" in value for value in v) and "" not in leading_letters(v)
    }
    return known, shared | (known.keys() & LABELS_OF_EVERY_NODE)
