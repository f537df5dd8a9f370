"""Commands that label nodes, in the text of a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rules.gpu.shell_words import Span, find_commands

_START = r"(?<![\w.-])(?:kubectl|oc)(?=[ \t])"
_NODES = frozenset({"node", "nodes", "no"})
# Options of kubectl, and of `label`, that take a word.
_OPTIONS = frozenset(
    {"-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-s", "--server"}
    | {"--as", "--as-group", "--token", "--request-timeout", "-v"}
    | {"-l", "--selector", "--field-selector", "-f", "--filename", "-k", "--kustomize"}
    | {"-o", "--output", "--field-manager", "--resource-version", "--template"}
)


class FoundLabel(NamedTuple):
    """A label that a command sets or removes: None as `value`. `span` is that of the word."""

    name: str
    value: str | None
    overwrites: bool
    span: Span
    command: int


def find_node_labels(text: str) -> Iterator[FoundLabel]:
    """The labels that `kubectl label nodes` sets or removes anywhere in `text`."""
    for words, spans in find_commands(text, _START):
        places = list(_arguments(words))
        arguments = [words[place] for place in places]
        if arguments[:1] != ["label"] or not arguments[1:]:
            continue
        if arguments[1].partition("/")[0] not in _NODES:
            continue
        overwrites = any(word in ("--overwrite", "--overwrite=true") for word in words)
        for place in places[2:]:
            name, equals, value = words[place].partition("=")
            if equals:
                yield FoundLabel(name, value, overwrites, spans[place], spans[0][0])
            elif name.endswith("-"):
                yield FoundLabel(name[:-1], None, overwrites, spans[place], spans[0][0])


def _arguments(words: list[str]) -> Iterator[int]:
    """The indices of the words after the command that are neither options nor their values."""
    position = 1
    while position < len(words):
        if not words[position].startswith("-"):
            yield position
        elif words[position] in _OPTIONS:
            position += 1
        position += 1
