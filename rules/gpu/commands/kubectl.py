"""Commands of kubectl that label nodes or set variables."""

from collections.abc import Iterator
from typing import NamedTuple

from rules.gpu.commands.options import Argument, CommandLine
from rules.gpu.commands.scripts import Span, find_commands

KUBECTL_PATTERN = r"(?<![\w.-])(?:kubectl|oc)(?=[ \t])"
"""The pattern of where a command of kubectl begins, for `find_commands`."""
_NODE_RESOURCE_NAMES = frozenset({"node", "nodes", "no"})
# Of kubectl, and of its commands that are read here
KUBECTL_LINE = CommandLine(
    flags=frozenset(
        {"--disable-compression", "--insecure-skip-tls-verify", "--match-server-version", "--help"}
        | {"--warnings-as-errors", "--dry-run", "--cascade", "--validate", "--all", "--list"}
        | {"--all-namespaces", "--allow-missing-template-keys", "--attach", "--command", "--expose"}
        | {"--force", "--leave-stdin-open", "--local", "--overwrite", "--privileged", "--quiet"}
        | {"--recursive", "--resolve", "--rm", "--save-config", "--show-managed-fields", "--stdin"}
        | {"--tty", "--wait"}
    ),
    letters="AhRiqt",
)
"""What kubectl knows of options, for the commands that are read."""


class KubectlNodeLabel(NamedTuple):
    """A label that a command sets or removes: None as `value`. `span` is that of the word."""

    name: str
    value: str | None
    overwrites: bool
    span: Span
    command_start: int


def find_node_labels(text: str) -> Iterator[KubectlNodeLabel]:
    """The labels that `kubectl label nodes` sets or removes anywhere in `text`."""
    for words, spans in find_commands(text, KUBECTL_PATTERN):
        arguments = list(KUBECTL_LINE.read(words, 1))
        others = [each for each in arguments if not each.name]
        verbs = [each.value for each in others[:2]]
        if verbs[:1] != ["label"] or not is_node(verbs[-1]):
            continue
        overwrites = any(each.name == "--overwrite" and is_set(each) for each in arguments)
        for each in others[2:]:
            name, equals, value = each.value.partition("=")
            span = spans[each.first]
            if equals:
                yield KubectlNodeLabel(name, value, overwrites, span, spans[0][0])
            elif name.endswith("-"):
                yield KubectlNodeLabel(name[:-1], None, overwrites, span, spans[0][0])


def is_node(word: str) -> bool:
    """Return whether `word` names nodes, or a node, as in `node/gpu-1`."""
    return word.partition("/")[0] in _NODE_RESOURCE_NAMES


def is_set(flag: Argument) -> bool:
    """Return whether an option that takes no word is on."""
    return flag.value != "false"


class KubectlVariable(NamedTuple):
    """A variable that `kubectl set env` gives containers. `span` is that of the word."""

    name: str
    value: str
    span: Span
    command_start: int


def find_kubectl_variables(text: str) -> Iterator[KubectlVariable]:
    """The variables that `kubectl set env` sets anywhere in `text`."""
    for words, spans in find_commands(text, KUBECTL_PATTERN):
        arguments = list(KUBECTL_LINE.read(words, 1))
        others = [each for each in arguments if not each.name]
        if [each.value for each in others[:2]] == ["set", "env"]:
            given = [each for each in arguments if each.name in ("-e", "--env")]
            for each in (*others[2:], *given):
                name, equals, value = each.value.partition("=")
                if equals:
                    yield KubectlVariable(name, value, spans[each.last], spans[0][0])
