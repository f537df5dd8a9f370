"""Find the problems of a policy: the path of each one, and a message for the user."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as File
from typing import Any, TypeAlias

from policies.suggestions import did_you_mean
from rules.base.json_access import display
from rules.base.json_patch import Path
from rules.catalog import CATALOG
from rules.objects.pod import Pod
from rules.policy import SECURITY_FAMILIES, parse_version
from rules.rule import Rule

Problem: TypeAlias = tuple[Path, str]
_RULES: Mapping[str, Rule[Any]] = {rule.name: rule for rule in CATALOG}
_TYPE_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
}
_OPTION_TYPES = {
    tuple: "a list of texts",
    bool: "true or false",
    int: "a whole number",
    str: "text",
}
# What the patterns and lengths of the schema require, by the key of the value.
_EXPECTED_FORMS = {
    "catalog": 'a version such as "0.1"',
    "contact": "one line of at most 200 characters",
    "docsUrl": "an address such as https://wiki.example.com/gpus, of at most 500 characters",
    "expires": "a date such as 2030-12-31",
    "name": "a name of small letters, digits and dashes",
    "reason": "a reason in words",
}
# The patterns of list items, which have no key: namespaces and service accounts.
_NAME_OR_PATTERN = "a name, or a pattern with a part of a name"


_NAMESPACE_REASON = "the user that the rule is about can write every other field of the pod"
_NOT_ABOUT_PODS = "the rule is not about pods, and only pods have one, so it would never apply"
# Rules without options that users look for: the key of a profile that has what the rule goes by.
_PROFILE_FACTS = {
    **dict.fromkeys(("scheduler-name", "scheduler-mismatch"), "schedulers"),
    **dict.fromkeys(("toleration-default", "toleration-mismatch"), "taints"),
    "affinity-default": "affinities",
}
_ONLY_PODS_HAVE = {"image", "container", "serviceAccount"}
_PROVES_NOTHING = "proves nothing: also give a namespace, a serviceAccount or a name"


@cache
def schema() -> Mapping[str, Any]:
    """Return the JSON Schema of a policy, from policy.schema.json."""
    content = File(__file__).with_name("policy.schema.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(content)
    return loaded


def find_problems(raw: Any) -> Iterator[Problem]:
    """Yield the problems of a policy: the path of each one, and its message."""
    import jsonschema  # noqa: PLC0415  # takes 0.07 s: import it only if there is a policy

    is_valid = True
    for error in jsonschema.Draft202012Validator(schema()).iter_errors(raw):
        is_valid = False
        yield from _schema_problems(error)
    if is_valid:
        yield from _bad_catalog(raw.get("catalog"))
        yield from _bad_rules(raw.get("rules", {}))
        for index, exception in enumerate(raw.get("exceptions", [])):
            yield from _bad_exception(exception, ("exceptions", index))


def as_patterns(value: Any) -> tuple[str, ...]:
    """Return one pattern, or a list of patterns, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _schema_problems(error: Any) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        for key in sorted(set(error.instance) - set(known)):
            yield (*path, key), f"unknown key {key!r}{_did_you_mean(key, known)}"
    elif error.validator == "oneOf" and error.context:
        # Explain the branch with the right type; else the one whose error lies deepest.
        nearest = max(error.context, key=lambda cause: len(cause.absolute_path))
        for cause in [c for c in error.context if c.validator != "type"] or [nearest]:
            yield from _schema_problems(cause)
    elif error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        yield path, f"the key {missing!r} is missing"
    else:
        yield path, _explanation(error, str(path[-1]) if path else "policy")


def _explanation(error: Any, key: str) -> str:
    value, expected = error.instance, error.validator_value
    actual = "is empty" if value is None else f"is {display(value)}"
    if error.validator == "not":
        return f"{key!r} is reserved and cannot be used yet"
    if error.validator == "type":
        hint = (
            "; quote it" if expected == "string" and isinstance(value, bool | float | int) else ""
        )
        return f"this should be {_TYPE_WORDS[expected]} and {actual}{hint}"
    if error.validator == "enum":
        if isinstance(value, bool):
            hint = "; quote it, because YAML reads off and on as booleans"
        else:
            hint = _did_you_mean(str(value), expected)
        return f"this should be one of {', '.join(expected)} and {actual}{hint}"
    if error.validator == "const":
        return f"this should be {expected} and {actual}"
    if error.validator in {"pattern", "maxLength"}:
        return f"this should be {_EXPECTED_FORMS.get(key, _NAME_OR_PATTERN)} and {actual}"
    return "this must not be empty"  # the only other keywords of the schema are minima of 1


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    hint = did_you_mean(word, known)
    return hint and f"; {hint}"


def _bad_catalog(catalog: str | None) -> Iterator[Problem]:
    known = sorted({rule.since for rule in CATALOG}, key=parse_version)
    if catalog is not None and not parse_version(known[0]) <= parse_version(
        catalog
    ) <= parse_version(known[-1]):
        yield ("catalog",), f"there is no catalog {catalog}; this gpuward knows {known[-1]}"


def _bad_rules(rules: Mapping[str, Any]) -> Iterator[Problem]:
    for name, settings in rules.items():
        if name not in _RULES:
            yield ("rules", name), f"there is no rule {name!r}{_did_you_mean(name, _RULES)}"
            continue
        # The policy key voidEveryContainer sets every_container.
        known = {k: v for k, v in _RULES[name].options.items() if k != "every_container"}
        for option, value in settings.get("options", {}).items():
            path: Path = ("rules", name, "options", option)
            if option not in known:
                hint = _did_you_mean(option, known) or f"; it has {', '.join(known) or 'none'}"
                if fact := _PROFILE_FACTS.get(name):
                    hint = (
                        f": {fact} belong in a profile, such as "
                        f"profiles: [{{name: our-cluster, extends: [nvidia], {fact}: […]}}]"
                    )
                yield path, f"{name} has no option {option!r}{hint}"
            elif not _same_type(value, known[option]):
                expected = _OPTION_TYPES.get(type(known[option]), "a number")
                yield path, f"the option {option!r} should be {expected} and is {display(value)}"


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default) or (type(value) is int and isinstance(default, float))


def _bad_exception(exception: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    # A pattern that matches every value does not restrict the exception.
    criteria = {
        key
        for key, value in exception["match"].items()
        if all(pattern.strip("*") for pattern in as_patterns(value))
    }
    for name in exception["rules"]:
        if name not in _RULES:
            yield (*path, "rules"), f"there is no rule {name!r}{_did_you_mean(name, _RULES)}"
        elif _RULES[name].family in SECURITY_FAMILIES and "namespace" not in criteria:
            yield (
                (*path, "match"),
                f"an exception to {name} must name a namespace: {_NAMESPACE_REASON}",
            )
        elif _RULES[name].subject is not Pod and (of_pods := sorted(criteria & _ONLY_PODS_HAVE)):
            yield (
                (*path, "match", of_pods[0]),
                f"an exception to {name} cannot match by {of_pods[0]}: {_NOT_ABOUT_PODS}",
            )
    if not criteria:
        yield (*path, "match"), "this matches every object; set the rule's action instead"
    elif criteria & {"image", "container"} and not criteria & {
        "namespace",
        "serviceAccount",
        "name",
    }:
        yield (*path, "match"), f"an image or a container's name alone {_PROVES_NOTHING}"
    try:
        datetime.date.fromisoformat(exception.get("expires", "2000-01-01"))
    except ValueError:
        yield (*path, "expires"), f"{exception['expires']!r} is not a date (YYYY-MM-DD)"
