"""The objects that commands of kubectl make or change, from the text of a script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object
from rules.gpu.commands.scripts import KUBECTL_PATTERN, Span, find_commands

# Options of kubectl, and of these commands, that take no word.
_FLAGS = frozenset(
    {"--attach", "--command", "--expose", "--help", "--leave-stdin-open", "--privileged"}
    | {"--quiet", "--rm", "--save-config", "--stdin", "--tty", "--wait", "--force"}
    | {"--insecure-skip-tls-verify", "--match-server-version", "--warnings-as-errors"}
)
_FLAG_LETTERS = frozenset("itqh")
_FULL_NAMES = {"-n": "--namespace", "-l": "--labels"}
_QUOTA_RESOURCE_NAMES = ("quota", "resourcequota", "resourcequotas")
_NODE_RESOURCE_NAMES = ("node", "nodes", "no")


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
        self.behind: list[str] = []  # a double dash
        self.options: list[tuple[str, str, Span]] = []
        position = 1
        while position < len(words):
            word, span = words[position], spans[position]
            position += 1
            if word == "--":
                self.behind = list(words[position:])
                return
            if not word.startswith("-"):
                self.plain.append((word, span))
                continue
            name, equals, value = word.partition("=")
            if not equals and not _is_flag(name) and position < len(words):
                value, span = words[position], (span[0], spans[position][1])
                position += 1
            self.options.append((_FULL_NAMES.get(name, name), value, span))

    def value(self, option: str) -> str:
        """The last value of `option`, empty without one."""
        return next((v for name, v, _ in reversed(self.options) if name == option), "")

    def span(self, option: str, default: Span) -> Span:
        """Return the span of the value of `option`; `default` without one."""
        return next((s for name, _, s in reversed(self.options) if name == option), default)


def _is_flag(name: str) -> bool:
    return name in _FLAGS or (name[1:2] != "-" and _FLAG_LETTERS.issuperset(name[1:]))


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
    is_known = len(verbs) > 1 and verbs[0] in ("label", "taint")
    return is_known and verbs[1].partition("/")[0] in _NODE_RESOURCE_NAMES


def _metadata(arguments: _CommandArguments, position: int) -> dict[str, Any]:
    plain = arguments.plain
    metadata = {"name": plain[position][0] if position < len(plain) else ""}
    if namespace := arguments.value("--namespace"):
        metadata["namespace"] = namespace
    return metadata


def _pod(arguments: _CommandArguments, span: Span, text: str) -> CommandObject:
    metadata = _metadata(arguments, 1)
    for option, field in (("--labels", "labels"), ("--annotations", "annotations")):
        texts = (value for name, value, _ in arguments.options if name == option)
        if pairs := _parse_pairs(",".join(texts)):
            metadata[field] = pairs
    container: dict[str, Any] = {"name": metadata["name"], "image": arguments.value("--image")}
    path: Path = ("spec", "containers", 0)
    places = {(*path, "image"): arguments.span("--image", span)}
    for name, value, where in arguments.options:
        if name == "--env":
            variable, _, given = value.partition("=")
            entries = container.setdefault("env", [])
            places[*path, "env", len(entries)] = where
            entries.append({"name": variable, "value": given})
    if any(name == "--privileged" and value != "false" for name, value, _ in arguments.options):
        container["securityContext"] = {"privileged": True}
        places[*path, "securityContext"] = arguments.span("--privileged", span)
    if arguments.behind:
        is_command = any(name == "--command" for name, _, _ in arguments.options)
        container["command" if is_command else "args"] = arguments.behind
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    manifest["spec"] = {"containers": [container]}
    overrides = _overrides(text, arguments.span("--overrides", (0, 0)))
    if overrides:
        manifest = _apply_merge_patch(manifest, overrides)
        place = arguments.span("--overrides", span)
        places = {} if "containers" in as_object(overrides.get("spec")) else places
        places |= dict.fromkeys((("spec",), ("metadata",)), place)
    return CommandObject(manifest, places, span)


def _overrides(text: str, span: Span) -> Mapping[str, Any]:
    """The JSON in the word at `span`; empty for a placeholder, and for what kubectl refuses."""
    try:
        words = shlex.split(text[slice(*span)])
        return as_object(json.loads(words[-1].removeprefix("--overrides="))) if words else {}
    except (ValueError, RecursionError):
        return {}


def _apply_merge_patch(value: Any, patch: Any) -> Any:
    """`value` with the JSON merge patch (RFC 7386), which kubectl applies by default."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        merged[name] = _apply_merge_patch(merged.get(name), inner)
    return {name: inner for name, inner in merged.items() if inner is not None}


def _quota(arguments: _CommandArguments, span: Span) -> CommandObject:
    hard: dict[str, str] = {}
    places: dict[Path, Span] = {}
    for name, value, where in arguments.options:
        if name == "--hard":
            for key, amount in _parse_pairs(value).items():
                hard[key] = amount
                places["spec", "hard", key] = where
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _metadata(arguments, 2)}
    return CommandObject({**manifest, "spec": {"hard": hard}}, places, span)


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
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}
