"""The objects that commands of kubectl make or change, from the text of a script."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rules.base.json_values import Path
from rules.gpu.commands.kubectl import KUBECTL_LINE, KUBECTL_PATTERN, is_node
from rules.gpu.commands.scripts import Span, find_commands
from sources.kubectl_overrides import with_overrides

_FULL_NAMES = {"-n": "--namespace", "-l": "--labels"}
_QUOTA_RESOURCE_NAMES = ("quota", "resourcequota", "resourcequotas")


class CommandObject(NamedTuple):
    """An object that a command makes.

    - `span_by_path`: the span of the word that the value at a path is from.
    - `span`: the span of the whole command, which all other values are from.
    - `is_change`: the command changes an object that exists, whose other fields are unknown.
    """

    manifest: dict[str, Any]
    span_by_path: dict[Path, Span]
    span: Span
    is_change: bool = False

    def span_of_path(self, path: Path) -> Span:
        """Return the span of the word, or command, that the value at `path` is from."""
        lengths = range(len(path), 0, -1)
        return next(
            (self.span_by_path[path[:n]] for n in lengths if path[:n] in self.span_by_path),
            self.span,
        )


class _CommandArguments:
    """The words of a command: options with their values, and the others."""

    def __init__(self, words: Sequence[str], spans: Sequence[Span]) -> None:
        self.plain: list[tuple[str, Span]] = []
        self.options: list[tuple[str, str, Span]] = []
        end = 1
        for each in KUBECTL_LINE.read(words, 1):
            end = each.last + 1
            span = (spans[each.first][0], spans[each.last][1])
            if each.name:
                self.options.append((_FULL_NAMES.get(each.name, each.name), each.value, span))
            else:
                self.plain.append((each.value, span))
        self.behind = list(words[end + 1 :])
        """The words behind a double dash."""

    def value(self, option: str) -> str:
        """The last value of `option`, empty without one."""
        return next((v for name, v, _ in reversed(self.options) if name == option), "")

    def values(self, option: str) -> list[str]:
        """Every value of `option`."""
        return [value for name, value, _ in self.options if name == option]

    def is_on(self, flag: str) -> bool:
        """Return whether an option that takes no word is given, and is not false."""
        return [value != "false" for value in self.values(flag)][-1:] == [True]

    def span(self, option: str, default: Span) -> Span:
        """Return the span of the value of `option`; `default` without one."""
        return next((s for name, _, s in reversed(self.options) if name == option), default)


def objects_of_commands(text: str) -> Iterator[CommandObject]:
    """The objects that commands anywhere in `text` make or change.

    These are `kubectl run`, `kubectl create quota`, and `kubectl label` and `taint` for nodes.
    """
    if "kubectl" not in text and "oc " not in text:
        return
    for words, spans in find_commands(text, KUBECTL_PATTERN):
        arguments = _CommandArguments(words, spans)
        verbs = [word for word, _ in arguments.plain[:2]]
        span = (spans[0][0], spans[-1][1])
        if verbs[:1] == ["run"] and len(verbs) > 1:
            yield _pod(arguments, span, text)
        elif verbs[:1] == ["create"] and verbs[1:] and verbs[1] in _QUOTA_RESOURCE_NAMES:
            yield _quota(arguments, span)
        elif _changes_node(verbs):
            yield _node(arguments, verbs[0], span)


def _changes_node(verbs: Sequence[str]) -> bool:
    return len(verbs) > 1 and verbs[0] in ("label", "taint") and is_node(verbs[1])


def _metadata(arguments: _CommandArguments, position: int) -> dict[str, Any]:
    plain = arguments.plain
    metadata = {"name": plain[position][0] if position < len(plain) else ""}
    if namespace := arguments.value("--namespace"):
        metadata["namespace"] = namespace
    return metadata


def _pod(arguments: _CommandArguments, span: Span, text: str) -> CommandObject:
    metadata = _metadata(arguments, 1)
    if labels := _parse_pairs(arguments.value("--labels")):
        metadata["labels"] = labels
    if annotations := dict(_parse_pair(text) for text in arguments.values("--annotations")):
        metadata["annotations"] = annotations
    container: dict[str, Any] = {"name": metadata["name"], "image": arguments.value("--image")}
    path: Path = ("spec", "containers", 0)
    places = {(*path, "image"): arguments.span("--image", span)}
    for name, value, where in arguments.options:
        if name == "--env":
            variable, _, given = value.partition("=")
            entries = container.setdefault("env", [])
            places[*path, "env", len(entries)] = where
            entries.append({"name": variable, "value": given})
    if arguments.is_on("--privileged"):
        container["securityContext"] = {"privileged": True}
        places[*path, "securityContext"] = arguments.span("--privileged", span)
    if words := [word for word, _ in arguments.plain[2:]] + arguments.behind:
        container["command" if arguments.is_on("--command") else "args"] = words
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    manifest["spec"] = {"containers": [container]}
    overrides = _overrides(text, arguments.span("--overrides", (0, 0)))
    made = with_overrides(manifest, overrides, arguments.value("--override-type"))
    if made is not manifest:
        place = arguments.span("--overrides", span)
        places = {} if "containers" in overrides else places
        places |= dict.fromkeys((("spec",), ("metadata",)), place)
    return CommandObject(made, places, span)


def _overrides(text: str, span: Span) -> str:
    """The word at `span`, without its quotes and the name of the option."""
    try:
        words = shlex.split(text[slice(*span)])
    except ValueError:  # a quote that does not end
        return ""
    return words[-1].removeprefix("--overrides=") if words else ""


def _quota(arguments: _CommandArguments, span: Span) -> CommandObject:
    hard: dict[str, str] = {}
    places: dict[Path, Span] = {}
    for key, amount in _parse_pairs(arguments.value("--hard")).items():
        hard[key] = amount
        places["spec", "hard", key] = arguments.span("--hard", span)
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _metadata(arguments, 2)}
    scopes = [scope for scope in arguments.value("--scopes").split(",") if scope]
    spec = {"hard": hard, **({"scopes": scopes} if scopes else {})}
    return CommandObject({**manifest, "spec": spec}, places, span)


def _node(arguments: _CommandArguments, verb: str, span: Span) -> CommandObject:
    """A node with the labels or the taints that the command sets."""
    metadata: dict[str, Any] = {"name": ""}
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    places: dict[Path, Span] = {}
    for word, where in arguments.plain[1:]:
        name, equals, value = word.partition("=")
        if verb == "label" and equals:
            labels[name] = value
            places["metadata", "labels", name] = where
        elif verb == "taint" and ":" in word and not word.endswith("-"):
            text, _, effect = word.rpartition(":")
            key, _, value = text.partition("=")
            places["spec", "taints", len(taints)] = where
            taints.append({"key": key, "value": value, "effect": effect})
        elif not equals and not word.endswith("-"):
            metadata["name"] = word.rpartition("/")[2]
    metadata["labels"] = labels
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return CommandObject({**manifest, "spec": {"taints": taints}}, places, span, is_change=True)


def _parse_pairs(text: str) -> dict[str, str]:
    return dict(_parse_pair(part) for part in text.split(",") if part)


def _parse_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
