"""Find the problems of a policy: the path of each one, and a message for the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as File
from typing import Any

from policies.bundles import rule_settings
from policies.exceptions import (
    as_patterns,
    exception_problems,
    gpu_exception_limit_problems,
    path_exception_problems,
)
from policies.policy import parse_catalog_version
from policies.problems import Problem, path_pattern_problem, schema_problems, suggestion_suffix
from rules.all_rules import ALL_RULES
from rules.base.json_values import Path, as_object, display
from rules.catalog.index import CATALOG
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
# Rules that find nothing until one of their options is set.
_RULES_NEEDING_OPTIONS = (_IMAGE_RULE, "gpu-namespace")
# Images without a registry are completed before they are compared; patterns are not, because
# `ubuntu` and `pytorch/*` would have to be completed in different ways.
_REPOSITORY_PATTERN = re.compile(r"(?:[^/]*[.:*\]][^/]*|localhost)(?:/[^/:@]+)*/?")


@cache
def policy_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a policy, from policy.schema.json."""
    content = File(__file__).with_name("policy.schema.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(content)
    return loaded


def find_policy_problems(raw: Any) -> Iterator[Problem]:
    """Yield the problems of a policy: the path of each one, and its message."""
    import jsonschema  # noqa: PLC0415  # takes 0.07 s: import it only if there is a policy

    broken: list[Path] = []
    for error in jsonschema.Draft202012Validator(policy_schema()).iter_errors(raw):
        for path, message in schema_problems(error):
            broken.append(path)
            yield path, message
    valid = _without_broken_parts(as_object(raw), broken)
    yield from _catalog_problems(valid.get("catalog"))
    yield from _rule_problems(valid.get("rules", {}))
    yield from _component_problems(valid.get("profiles", ()))
    yield from _path_settings_problems(valid.get("perPath", ()))
    excluded = as_object(valid.get("lint")).get("exclude", ())
    yield from _pattern_problems(excluded, ("lint", "exclude"))
    for index, exception in enumerate(valid.get("exceptions", ())):
        yield from exception_problems(exception, ("exceptions", index))
    if not broken:
        yield from _problems_between_parts(raw)


def _without_broken_parts(raw: Mapping[str, Any], broken: Iterable[Path]) -> dict[str, Any]:
    """`raw` without the keys, and without the rules, in which the schema finds a problem."""
    keys = {path[0] for path in broken if path and (path[0] != "rules" or len(path) == 1)}
    rules = {path[1] for path in broken if path[:1] == ("rules",) and len(path) > 1}
    valid = {key: value for key, value in raw.items() if key not in keys}
    if rules:
        valid["rules"] = {n: v for n, v in valid.get("rules", {}).items() if n not in rules}
    return valid


def _problems_between_parts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of settings that need each other; each part is valid by itself."""
    yield from _unset_option_problems(raw)
    yield from _image_problems(raw)
    protected = {
        rule
        for rule, values in rule_settings(raw).items()
        if (setting := values.get(("suppressible",))) and not setting.value
    }
    for index, limits in enumerate(raw.get("gpuExceptions", [])):
        yield from gpu_exception_limit_problems(limits, protected, ("gpuExceptions", index))


def _catalog_problems(catalog: str | None) -> Iterator[Problem]:
    known = sorted({rule.since for rule in CATALOG}, key=parse_catalog_version)
    if catalog is not None and not parse_catalog_version(known[0]) <= parse_catalog_version(
        catalog
    ) <= parse_catalog_version(known[-1]):
        yield ("catalog",), f"there is no catalog {catalog}; this gpuward knows {known[-1]}"


def _rule_problems(rules: Mapping[str, Any]) -> Iterator[Problem]:
    for name, settings in rules.items():
        if name not in _RULE_BY_NAME:
            yield (
                ("rules", name),
                f"there is no rule {name!r}{suggestion_suffix(name, _RULE_BY_NAME)}",
            )
            continue
        # The policy key voidEveryContainer sets every_container.
        known = {k: v for k, v in _RULE_BY_NAME[name].options.items() if k != "every_container"}
        for option, value in settings.get("options", {}).items():
            path: Path = ("rules", name, "options", option)
            if option not in known:
                hint = suggestion_suffix(option, known) or f"; it has {', '.join(known) or 'none'}"
                if fact := _PROFILE_KEY_BY_RULE.get(name):
                    hint = (
                        f": {fact} belong in a profile, such as "
                        f"profiles: [{{name: our-cluster, extends: [nvidia], {fact}: […]}}]"
                    )
                yield path, f"{name} has no option {option!r}{hint}"
            elif not _has_option_type(value, known[option]):
                expected = _OPTION_TYPES.get(type(known[option]), "a number")
                yield path, f"the option {option!r} should be {expected} and is {display(value)}"


def _path_settings_problems(entries: Any) -> Iterator[Problem]:
    for index, entry in enumerate(entries):
        path: Path = ("perPath", index)
        yield from _pattern_problems(entry["paths"], (*path, "paths"))
        for place, message in _rule_problems(entry.get("rules", {})):
            yield (*path, *place), message
        for place, message in _component_problems(entry.get("profiles", ())):
            yield (*path, *place), message
        for number, exception in enumerate(entry.get("exceptions", ())):
            place = (*path, "exceptions", number)
            yield from path_exception_problems(exception, place)


def _pattern_problems(patterns: Any, path: Path) -> Iterator[Problem]:
    for index, pattern in enumerate(as_patterns(patterns)):
        if problem := path_pattern_problem(pattern):
            yield path if isinstance(patterns, str) else (*path, index), problem


def _component_problems(profiles: Any) -> Iterator[Problem]:
    for index, profile in enumerate(profiles):
        for number, component in enumerate(as_object(profile).get("components", ())):
            for position, name in enumerate(component.get("rules", ())):
                if name not in _RULE_BY_NAME:
                    path = ("profiles", index, "components", number, "rules", position)
                    yield path, f"there is no rule {name!r}{suggestion_suffix(name, _RULE_BY_NAME)}"


def _unset_option_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """The rules that are on, and find nothing because no option of theirs is set."""
    for name in _RULES_NEEDING_OPTIONS:
        given = {path: setting.value for path, setting in rule_settings(raw).get(name, {}).items()}
        options = _RULE_BY_NAME[name].options
        is_set = any(given.get(("options", option)) for option in options)
        if given.get(("action",), "off") != "off" and not is_set:
            which = "one of its options is set" if len(options) > 1 else "its option is set"
            message = f"{name} finds nothing until {which}: {', '.join(options)}"
            yield ("rules", name), message


def _image_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of patterns that would fit no image."""
    repositories = raw.get("rules", {}).get(_IMAGE_RULE, {}).get("options", {}).get("repositories")
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


def _has_option_type(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default) or (type(value) is int and isinstance(default, float))
