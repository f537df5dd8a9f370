"""Explain what a JSON Schema finds: the path of each problem, and a message for the user."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from rules.base.json_values import Path, display


def did_you_mean(word: str, known: Iterable[str], fallback: str = "") -> str:
    """Return `did you mean "…"?` with the word of `known` that is most similar to `word`.

    Returns `fallback` if none is similar.
    """
    import difflib  # noqa: PLC0415  # import it only for a misspelled word

    close = difflib.get_close_matches(word, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else fallback


Problem: TypeAlias = tuple[Path, str]
# A dollar that no backslash escapes; the patterns of our schemas have none in brackets.
_END_PATTERN = r"(?<!\\)\$"
_TYPE_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
}
# What the patterns and lengths of the schemas require, by the key of the value.
_EXPECTED_FORM_BY_KEY = {
    "catalog": 'a version such as "0.1"',
    "contact": "one line of at most 200 characters",
    "docsUrl": "an address such as https://wiki.example.com/gpus, of at most 500 characters",
    "expires": "a date such as 2030-12-31",
    "name": "a name of small letters, digits and dashes",
    "reason": "a reason in words",
}
# The patterns of list items, which have no key: namespaces and service accounts.
_NAME_OR_PATTERN = "a name, or a pattern with a part of a name"
# What a keyword with one value requires.
_REQUIREMENT_BY_KEYWORD = {
    "const": "{}",
    "maximum": "at most {}",
    "minimum": "at least {}",
    "maxItems": "at most {} items",
}


def iter_schema_errors(raw: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield each ValidationError of `raw`, by a JSON Schema.

    In its patterns `$` is the end of the text, as in every other reader of JSON Schema. jsonschema
    uses those of Python, in which a newline may follow.
    """
    from jsonschema import Draft202012Validator, ValidationError, validators  # noqa: PLC0415  # takes 0.07 s

    def check_pattern(_: Any, pattern: str, text: Any, __: Any) -> Iterator[Any]:
        if isinstance(text, str) and not re.search(re.sub(_END_PATTERN, r"\\Z", pattern), text):
            yield ValidationError(f"{text!r} does not match {pattern!r}")

    keywords = {"pattern": check_pattern}
    extend: Any = validators.extend
    validator = extend(Draft202012Validator, keywords)
    yield from validator(schema).iter_errors(raw)


def schema_problems(error: Any) -> Iterator[Problem]:
    """The problems that `error`, a ValidationError of jsonschema, stands for."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        schemas = error.schema.get("properties", {})
        known = [key for key, schema in schemas.items() if "not" not in schema]
        keys = f"; there are {', '.join(known)}" if known else ""
        for key in sorted(set(error.instance) - set(schemas)):
            yield (*path, key), f"unknown key {key!r}{suggestion_suffix(key, known) or keys}"
    elif error.validator == "oneOf" and (enum := _enum_cause(error.context)):
        yield from schema_problems(enum)
    elif error.validator == "oneOf" and error.context:
        # Explain the branch with the right type; else the one whose error lies deepest.
        nearest = max(error.context, key=lambda cause: len(cause.absolute_path))
        for cause in [c for c in error.context if c.validator != "type"] or [nearest]:
            yield from schema_problems(cause)
    elif error.validator == "required":
        # jsonschema makes one error of each missing key, and names it in its message alone.
        missing = [key for key in error.validator_value if key not in error.instance]
        named = next((key for key in missing if error.message.startswith(repr(key))), missing[0])
        yield path, f"the key {named!r} is missing"
    else:
        yield path, _explanation(error, str(path[-1]) if path else "policy")


def _enum_cause(causes: Iterable[Any]) -> Any:
    """The cause that lists the words which are right; None if none does."""
    return next((cause for cause in causes if cause.validator == "enum"), None)


_EXTENDED_FILES = ("./FILE.yaml", "./FILE.yaml@sha256:DIGEST")


def _explanation(error: Any, key: str) -> str:
    value, expected = error.instance, error.validator_value
    actual = "is empty" if value is None else f"is {display(value)}"
    if error.validator == "not":
        return f"there is no {key}: bundles take its place, as in extends: [strict]"
    if error.validator == "type":
        hint = (
            "; quote it" if expected == "string" and isinstance(value, bool | float | int) else ""
        )
        return f"this should be {_TYPE_WORDS[expected]} and {actual}{hint}"
    if error.validator == "enum":
        if isinstance(value, bool):
            hint = "; quote it, because YAML reads off and on as booleans"
        else:
            hint = suggestion_suffix(str(value), expected)
        is_extended = error.absolute_path[0] == "extends"
        choices = (*expected, *_EXTENDED_FILES) if is_extended else expected
        return f"this should be one of {', '.join(choices)} and {actual}{hint}"
    if error.validator in _REQUIREMENT_BY_KEYWORD:
        requirement = _REQUIREMENT_BY_KEYWORD[error.validator].format(expected)
        return f"this should be {requirement} and {actual}"
    if error.validator in {"pattern", "maxLength"}:
        return f"this should be {_EXPECTED_FORM_BY_KEY.get(key, _NAME_OR_PATTERN)} and {actual}"
    return "this must not be empty"  # the only other keywords of the schemas are minima of 1


def suggestion_suffix(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `word`: empty if no known word is similar."""
    hint = did_you_mean(word, known)
    return hint and f"; {hint}"


def path_pattern_problem(pattern: str, *, is_inside: bool = True) -> str:
    """Return why `pattern` fits no path of a file, and what to write instead.

    The text is empty if it may fit one. Paths have neither `./` in front nor `/` at the end.
    `is_inside`: they begin in the folder to which they are relative.
    """
    working = posixpath.normpath(pattern) if pattern else "."
    if is_inside:
        working = working.lstrip("/")
        while working.startswith("../"):
            working = working[3:]
    if working in {"", ".", ".."}:
        working = "*"
    if working == pattern:
        return ""
    return f"the pattern {pattern!r} fits no file: write {working!r}"
