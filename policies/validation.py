"""What is wrong with a policy, in words that help, and where."""

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
# What the patterns of the schema ask for, by the key whose value they describe.
_EXPECTED_FORMS = {
    "catalog": 'a version such as "0.1"',
    "expires": "a date such as 2030-12-31",
    "name": "a name of small letters, digits and dashes",
    "reason": "a reason in words",
}
# The elements of lists have no key: they are namespaces and service accounts.
_NAMED = "a name, or a pattern that holds part of one"


_WHY = "everything else in a pod is written by those whom the rule guards against"
_PROVES = "proves nothing: also give a namespace, a serviceAccount or a name"


@cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema of a policy."""
    content = File(__file__).with_name("policy.schema.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(content)
    return loaded


def find_problems(raw: Any) -> Iterator[Problem]:
    """Everything that is wrong with a policy, each with its path."""
    import jsonschema  # noqa: PLC0415  # costs 0.07 s: only whoever has a policy pays for it

    fits = True
    for error in jsonschema.Draft202012Validator(schema()).iter_errors(raw):
        fits = False
        yield from _explained(error)
    if fits:
        yield from _bad_catalog(raw.get("catalog"))
        yield from _bad_rules(raw.get("rules", {}))
        for index, exception in enumerate(raw.get("exceptions", [])):
            yield from _bad_exception(exception, ("exceptions", index))


def as_patterns(value: Any) -> tuple[str, ...]:
    """One pattern or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _explained(error: Any) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        for key in sorted(set(error.instance) - set(known)):
            yield (*path, key), f"unknown key {key!r}{_did_you_mean(key, known)}"
    elif error.validator == "oneOf" and error.context:
        # The branch that comes nearest, which is the one that got past the type.
        nearest = max(error.context, key=lambda cause: len(cause.absolute_path))
        for cause in [c for c in error.context if c.validator != "type"] or [nearest]:
            yield from _explained(cause)
    elif error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        yield path, f"the key {missing!r} is missing"
    else:
        yield path, _explanation(error, str(path[-1]) if path else "policy")


def _explanation(error: Any, key: str) -> str:
    value, wanted = error.instance, error.validator_value
    is_shown = "is empty" if value is None else f"is {display(value)}"
    if error.validator == "not":
        return f"{key!r} is reserved and cannot be used yet"
    if error.validator == "type":
        hint = "; quote it" if wanted == "string" and isinstance(value, bool | float | int) else ""
        return f"this should be {_TYPE_WORDS[wanted]} and {is_shown}{hint}"
    if error.validator == "enum":
        if isinstance(value, bool):
            hint = "; quote it, because YAML reads off and on as booleans"
        else:
            hint = _did_you_mean(str(value), wanted)
        return f"this should be one of {', '.join(wanted)} and {is_shown}{hint}"
    if error.validator == "const":
        return f"this should be {wanted} and {is_shown}"
    if error.validator == "pattern":
        return f"this should be {_EXPECTED_FORMS.get(key, _NAMED)} and {is_shown}"
    return "this must not be empty"  # the schema has no other keywords but minima of one


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
        # This one is set by a key of the policy itself.
        known = {k: v for k, v in _RULES[name].options.items() if k != "every_container"}
        for option, value in settings.get("options", {}).items():
            path: Path = ("rules", name, "options", option)
            if option not in known:
                hint = _did_you_mean(option, known) or f"; it has {', '.join(known) or 'none'}"
                yield path, f"{name} has no option {option!r}{hint}"
            elif not _same_kind(value, known[option]):
                wanted = _OPTION_TYPES.get(type(known[option]), "a number")
                yield path, f"the option {option!r} should be {wanted} and is {display(value)}"


def _same_kind(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default) or (type(value) is int and isinstance(default, float))


def _bad_exception(exception: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    # A pattern that fits everything says nothing.
    said = {
        key
        for key, value in exception["match"].items()
        if all(pattern.strip("*") for pattern in as_patterns(value))
    }
    for name in exception["rules"]:
        if name not in _RULES:
            yield (*path, "rules"), f"there is no rule {name!r}{_did_you_mean(name, _RULES)}"
        elif _RULES[name].family in SECURITY_FAMILIES and "namespace" not in said:
            yield (*path, "match"), f"an exception to {name} must name a namespace: {_WHY}"
    if not said:
        yield (*path, "match"), "this fits everything; set the rule's action instead"
    elif said & {"image", "container"} and not said & {"namespace", "serviceAccount", "name"}:
        yield (*path, "match"), f"an image or a container's name alone {_PROVES}"
    try:
        datetime.date.fromisoformat(exception.get("expires", "2000-01-01"))
    except ValueError:
        yield (*path, "expires"), f"{exception['expires']!r} is not a date (YYYY-MM-DD)"
