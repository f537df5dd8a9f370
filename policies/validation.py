"""Find the problems of a policy: the path of each one, and a message for the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from pathlib import Path as File
from typing import Any, NamedTuple

from policies.bundles import setting_of_rule
from policies.exceptions import (
    exception_problems,
    gpu_exception_limit_problems,
    path_exception_problems,
)
from policies.policy import Policy, parse_catalog_version
from policies.policy_settings import PathEntry, PolicySettings, RuleValues, to_settings
from policies.problems import (
    Problem,
    iter_schema_errors,
    path_pattern_problem,
    schema_problems,
    suggestion_suffix,
)
from rules.all_rules import ALL_RULES
from rules.base.json_values import Path, as_object, display
from rules.catalog.index import CATALOG
from rules.finding import Action
from rules.placement.exclusion import COMMON_LABELS, labels_of_gpu_nodes
from rules.rule import Rule

_RULE_BY_NAME: Mapping[str, Rule[Any]] = {rule.name: rule for rule in ALL_RULES}
_OPTION_TYPES = {
    tuple: "a list of texts",
    bool: "true or false",
    int: "a whole number",
    str: "text",
}
# Rules without options that users look for: the key of a profile that has what the rule goes by.
_PROFILE_KEY_BY_RULE = {
    **dict.fromkeys(("scheduler-name", "scheduler-mismatch"), "schedulers"),
    **dict.fromkeys(("toleration-default", "toleration-mismatch"), "taints"),
    "affinity-default": "affinities",
}
_IMAGE_RULE = "untrusted-gpu-image"
_EXCLUSION_RULE = "gpu-node-without-request"
MAX_NODE_LABELS = 20
"""How many labels of GPU nodes its option may name: each of them is in the affinity of each pod."""
# A label as `validation` of k8s.io/apimachinery allows it.
_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE_LABEL_PATTERN = re.compile(rf"({_PART}(\.{_PART})*/)?{_NAME}(={_NAME})?")
_MAX_LABEL_CHARACTERS = 253 + 1 + 63 + 1 + 63
# Rules that find nothing until one of their options is set.
_RULES_NEEDING_OPTIONS = (_IMAGE_RULE, "gpu-namespace")
# The option with labels of namespaces (`rules.profile.namespaces`): key, or key=pattern.
_LABELS_OPTION = "labels"
_LABEL_PATTERN = re.compile(r"[A-Za-z0-9._/-]+(?:=[A-Za-z0-9._*-]*)?")
# Images without a registry are completed before they are compared; patterns are not, because
# `ubuntu` and `pytorch/*` would have to be completed in different ways.
_REPOSITORY_PATTERN = re.compile(r"(?:[^/]*[.:*\]][^/]*|localhost)(?:/[^/:@]+)*/?")


@cache
def policy_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a policy, from policy.schema.json."""
    content = File(__file__).with_name("policy.schema.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(content)
    return loaded


class CheckedPolicy(NamedTuple):
    """The settings of a policy, without the parts that the schema refuses, and its problems."""

    settings: PolicySettings
    problems: list[Problem]


def check_policy(raw: Any, max_problems: int) -> CheckedPolicy:
    """Return the settings of the policy `raw`, and its first problems: at most `max_problems`."""
    problems = list(islice(_schema_problems(raw), max_problems))
    if len(problems) >= max_problems:  # others of its parts may have problems too
        return CheckedPolicy(PolicySettings(), problems)
    settings = to_settings(_without_broken_parts(as_object(raw), [path for path, _ in problems]))
    found = _setting_problems(settings)
    if not problems:
        found = chain(found, _problems_between_parts(settings))
    return CheckedPolicy(settings, problems + list(islice(found, max_problems - len(problems))))


def _schema_problems(raw: Any) -> Iterator[Problem]:
    for error in iter_schema_errors(raw, policy_schema()):
        yield from schema_problems(error)


def _setting_problems(settings: PolicySettings) -> Iterator[Problem]:
    """Yield the problems of each part that the schema cannot find."""
    yield from _catalog_problems(settings.catalog)
    yield from _rule_problems(settings.rules)
    yield from _component_problems(settings.profiles)
    yield from _path_entry_problems(settings.per_path)
    yield from _pattern_problems(settings.lint.get("exclude", ()), ("lint", "exclude"))
    for index, exception in enumerate(settings.exceptions):
        yield from exception_problems(exception, ("exceptions", index))


def _without_broken_parts(raw: Mapping[str, Any], broken: Iterable[Path]) -> dict[str, Any]:
    """`raw` without the keys, and without the rules, in which the schema finds a problem."""
    keys = {path[0] for path in broken if path and (path[0] != "rules" or len(path) == 1)}
    rules = {path[1] for path in broken if path[:1] == ("rules",) and len(path) > 1}
    valid = {key: value for key, value in raw.items() if key not in keys}
    if rules:
        valid["rules"] = {n: v for n, v in valid.get("rules", {}).items() if n not in rules}
    return valid


def _problems_between_parts(settings: PolicySettings) -> Iterator[Problem]:
    """Yield the problems of settings that need each other; each part is valid by itself."""
    yield from _unset_option_problems(settings)
    yield from _image_problems(settings)
    yield from _node_label_problems(settings)
    for index, (limits, _) in enumerate(settings.gpu_exceptions):
        protected = [
            rule
            for rule in limits.rules
            if setting_of_rule(settings, rule, "suppressible") is False
        ]
        yield from gpu_exception_limit_problems(limits, protected, ("gpuExceptions", index))


def _catalog_problems(catalog: str | None) -> Iterator[Problem]:
    known = sorted({rule.since for rule in CATALOG}, key=parse_catalog_version)
    if catalog is not None and not parse_catalog_version(known[0]) <= parse_catalog_version(
        catalog
    ) <= parse_catalog_version(known[-1]):
        yield ("catalog",), f"there is no catalog {catalog}; this gpuward knows {known[-1]}"


def _rule_problems(rules: Mapping[str, RuleValues]) -> Iterator[Problem]:
    for name, values in rules.items():
        if name not in _RULE_BY_NAME:
            yield (
                ("rules", name),
                f"there is no rule {name!r}{suggestion_suffix(name, _RULE_BY_NAME)}",
            )
            continue
        # The policy key voidEveryContainer sets every_container.
        known = {k: v for k, v in _RULE_BY_NAME[name].options.items() if k != "every_container"}
        for (key, *rest), setting in values.items():
            if rest:
                for message in _option_problems(name, known, rest[0], setting.value):
                    yield ("rules", name, key, *rest), message


def _option_problems(rule: str, known: Mapping[str, Any], option: str, value: Any) -> Iterator[str]:
    if option not in known:
        hint = suggestion_suffix(option, known) or f"; it has {', '.join(known) or 'none'}"
        if fact := _PROFILE_KEY_BY_RULE.get(rule):
            hint = (
                f": {fact} belong in a profile, such as "
                f"profiles: [{{name: our-cluster, extends: [nvidia], {fact}: […]}}]"
            )
        yield f"{rule} has no option {option!r}{hint}"
    elif not _has_option_type(value, known[option]):
        expected = _OPTION_TYPES.get(type(known[option]), "a number")
        yield f"the option {option!r} should be {expected} and is {display(value)}"
    elif option == _LABELS_OPTION:
        for label in value:
            if not _LABEL_PATTERN.fullmatch(label):
                yield f"no namespace has the label {display(label)}: write key, or key=value"


def _path_entry_problems(entries: Iterable[PathEntry]) -> Iterator[Problem]:
    for index, entry in enumerate(entries):
        path: Path = ("perPath", index)
        yield from _pattern_problems(entry.path_patterns, (*path, "paths"))
        for place, message in _rule_problems(entry.rules):
            yield (*path, *place), message
        for place, message in _component_problems(entry.profiles):
            yield (*path, *place), message
        for number, exception in enumerate(entry.exceptions):
            place = (*path, "exceptions", number)
            yield from path_exception_problems(exception, place)


def _pattern_problems(patterns: Iterable[str], path: Path) -> Iterator[Problem]:
    for index, pattern in enumerate(patterns):
        if problem := path_pattern_problem(pattern):
            yield (*path, index), problem


def _component_problems(profiles: Any) -> Iterator[Problem]:
    for index, profile in enumerate(profiles):
        for number, component in enumerate(as_object(profile).get("components", ())):
            for position, name in enumerate(component.get("rules", ())):
                if name not in _RULE_BY_NAME:
                    path = ("profiles", index, "components", number, "rules", position)
                    yield path, f"there is no rule {name!r}{suggestion_suffix(name, _RULE_BY_NAME)}"


def _unset_option_problems(settings: PolicySettings) -> Iterator[Problem]:
    """Yield the rules that are on, and find nothing because no option of theirs is set."""
    for name in _RULES_NEEDING_OPTIONS:
        options = _RULE_BY_NAME[name].options
        is_set = any(setting_of_rule(settings, name, "options", option) for option in options)
        if setting_of_rule(settings, name, "action") not in {None, "off"} and not is_set:
            which = "one of its options is set" if len(options) > 1 else "its option is set"
            message = f"{name} finds nothing until {which}: {', '.join(options)}"
            yield ("rules", name), message


def _image_problems(settings: PolicySettings) -> Iterator[Problem]:
    """Yield the problems of patterns that would fit no image."""
    given = settings.rules.get(_IMAGE_RULE, {}).get(("options", "repositories"))
    repositories = given.value if given else ()
    for index, pattern in enumerate(repositories if isinstance(repositories, list) else ()):
        if isinstance(pattern, str) and not (
            _REPOSITORY_PATTERN.fullmatch(pattern) and pattern == pattern.lower()
        ):
            path = ("rules", _IMAGE_RULE, "options", "repositories", index)
            yield (
                path,
                (
                    f"{display(pattern)} fits no image: write the registry and the repository in "
                    "small letters, without a tag, such as docker.io/pytorch/* or "
                    "docker.io/library/ubuntu"
                ),
            )


def _node_label_problems(settings: PolicySettings) -> Iterator[Problem]:
    """Yield the labels of nodes that Kubernetes would refuse in a node affinity."""
    given = settings.rules.get(_EXCLUSION_RULE, {}).get(("options", "nodes"))
    labels = given.value if given and isinstance(given.value, list) else []
    path: Path = ("rules", _EXCLUSION_RULE, "options", "nodes")
    if len(labels) > MAX_NODE_LABELS:
        yield path, f"{len(labels)} labels, where at most {MAX_NODE_LABELS} may be"
    for index, label in enumerate(label for label in labels if isinstance(label, str)):
        if len(label) > _MAX_LABEL_CHARACTERS or not _NODE_LABEL_PATTERN.fullmatch(label):
            message = f"{display(label)} is no label of a node: write KEY or KEY=VALUE"
            yield (*path, index), message
        elif label in COMMON_LABELS:
            message = f"nodes without GPUs have {label} too: write the value that GPU nodes have"
            yield (*path, index), message


def exclusion_problems(policy: Policy) -> Iterator[Problem]:
    """Yield the problem of a policy that keeps pods off GPU nodes and knows no label of these."""
    settings = policy.rules.get(_EXCLUSION_RULE)
    if settings is None or settings.action in {None, Action.OFF}:
        return
    if not labels_of_gpu_nodes(policy.profile, settings.options.get("nodes", ())):
        names = ", ".join(policy.profile.name.split("+"))
        message = (
            f"{_EXCLUSION_RULE} keeps pods off nodes with the labels that profiles name, and the "
            f"profile {names} names none: set options: {{nodes: [LABEL=VALUE]}}"
        )
        yield ("rules", _EXCLUSION_RULE), message


def _has_option_type(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default) or (type(value) is int and isinstance(default, float))
