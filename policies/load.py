"""Read policies and profiles, and say clearly what is wrong with them."""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from kubeyaml import Chunk, Document, Limits, YamlError, line_and_column, read
from policies.profiles import ProfileError, chosen_profile
from rules.catalog import CATALOG
from rules.document import Path
from rules.policy import GUARDS, Policy, PolicyException, RuleSettings
from rules.rule import Action, Rule

MAX_CHARACTERS = 1 << 20
_RULES: Mapping[str, Rule[Any]] = {rule.name: rule for rule in CATALOG}
_LIMITS = Limits(max_depth=30, max_nodes=100_000, max_alias_nodes=10_000)


class PolicyError(ValueError):
    """A policy that cannot be used; the text names the place and the remedy."""


def default_policy(profiles: Iterable[str] = ()) -> Policy:
    """The policy of somebody who has none: every rule by its default, profile `nvidia`."""
    try:
        return Policy(profile=chosen_profile(list(profiles) or ["nvidia"]))
    except ProfileError as error:
        raise PolicyError(str(error)) from error


def load_policy(text: str, name: str, profiles: Iterable[str] = ()) -> Policy:
    """The policy in `text`, a file called `name`; `profiles`, if any, replace those that it names.

    Raises PolicyError with `name:line:column` if it is not a valid policy.
    """
    if len(text) > MAX_CHARACTERS:
        raise PolicyError(f"{name}: a policy may have at most {MAX_CHARACTERS} characters")
    try:
        document = read(Chunk(text), _LIMITS)
    except YamlError as error:
        line, column = line_and_column(text, error.offset)
        raise PolicyError(f"{name}:{line}:{column}: {error.message}") from error
    if document is None:
        raise PolicyError(f"{name}: the file is empty; a policy begins with\n{_BEGINNING}")
    problems = [(p, m) for p, m in (*_duplicates(document), *_problems(document.value))]
    if not problems:
        try:
            return _policy(document.value, list(profiles))
        except ProfileError as error:
            problems = [(("profiles",), str(error))]
    raise PolicyError("\n".join(_located(document, text, name, problem) for problem in problems))


_BEGINNING = "apiVersion: gpuward.io/v1\nkind: Policy"


@cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema of a policy."""
    content = files("policies").joinpath("policy.schema.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = json.loads(content)
    return loaded


def _located(document: Document, text: str, name: str, problem: tuple[Path, str]) -> str:
    path, message = problem
    place = document.place
    for step in path:
        inside: Any = place.inside
        try:
            place = inside[step]
        except (KeyError, IndexError, TypeError):
            break
    offset = place.key_start if place.key_start >= 0 else place.start
    line, column = line_and_column(text, offset)
    return f"{name}:{line}:{column}: {message}"


def _duplicates(document: Document) -> Iterator[tuple[Path, str]]:
    for duplicate in document.duplicates:
        yield duplicate.path, f"the key {duplicate.path[-1]!r} stands here twice"


def _problems(raw: Any) -> list[tuple[Path, str]]:
    """Everything that is wrong with a policy, each with its path."""
    import jsonschema  # costs 0.07 s: only whoever has a policy pays for it

    validator = jsonschema.Draft202012Validator(schema())
    errors = sorted(validator.iter_errors(raw), key=lambda error: list(map(str, error.path)))
    if errors:
        return [problem for error in errors for problem in _explained(error)]
    return list(_unknown_rules(raw)) + list(_bad_exceptions(raw))


def _explained(error: Any) -> Iterator[tuple[Path, str]]:
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        for key in sorted(set(error.instance) - set(known)):
            yield (*path, key), f"unknown key {key!r}{_did_you_mean(key, known)}"
    elif error.validator == "not":
        yield path, f"{path[-1]!r} is reserved and cannot be used yet"
    elif error.validator == "oneOf" and error.context:
        # The branch that comes nearest, which is the one that got past the type.
        nearest = max(error.context, key=lambda cause: len(cause.absolute_path))
        inner = [c for c in error.context if c.validator != "type"] or [nearest]
        for cause in inner:
            yield from _explained(cause)
    elif error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        yield path, f"the key {missing!r} is missing"
    elif error.validator == "enum" and isinstance(error.instance, bool):
        yield path, f"{error.message}; quote it, because YAML reads off and on as booleans"
    else:
        yield path, error.message


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _unknown_rules(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for name, settings in raw.get("rules", {}).items():
        if name not in _RULES:
            yield ("rules", name), f"there is no rule {name!r}{_did_you_mean(name, _RULES)}"
            continue
        known = _RULES[name].options
        for option, value in settings.get("options", {}).items():
            path: Path = ("rules", name, "options", option)
            if option not in known or option == "every_container":
                yield path, f"{name} has no option {option!r}{_did_you_mean(option, known)}"
            elif not _same_kind(value, known[option]):
                wanted = "a list of texts" if isinstance(known[option], tuple) else "a number"
                yield path, f"the option {option!r} should be {wanted}"


def _same_kind(value: Any, default: Any) -> bool:
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is type(default)


def _bad_exceptions(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for index, exception in enumerate(raw.get("exceptions", [])):
        path: Path = ("exceptions", index)
        for name in exception["rules"]:
            if name not in _RULES:
                yield (*path, "rules"), f"there is no rule {name!r}{_did_you_mean(name, _RULES)}"
            elif _RULES[name].family in GUARDS and not _names_namespace(exception["match"]):
                yield (
                    (*path, "match"),
                    f"an exception to {name} must name a namespace: everything else in a pod "
                    "is written by those whom the rule guards against",
                )
        if not set(exception["match"]) - {"image", "container"}:
            yield (
                (*path, "match"),
                "an image or a container's name alone proves nothing: also give a namespace, "
                "a serviceAccount, or a kind and name",
            )
        try:
            datetime.date.fromisoformat(exception.get("expires", "2000-01-01"))
        except ValueError:
            yield (*path, "expires"), f"{exception['expires']!r} is not a date (YYYY-MM-DD)"


def _names_namespace(match: Mapping[str, Any]) -> bool:
    return all(pattern.strip("*") for pattern in _several(match.get("namespace", "*")))


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _policy(raw: Mapping[str, Any], profiles: list[str]) -> Policy:
    policy = Policy(
        profile=chosen_profile(profiles or raw.get("profiles", ["nvidia"])),
        rules={name: _settings(settings) for name, settings in raw.get("rules", {}).items()},
        exceptions=tuple(_exception(e) for e in raw.get("exceptions", [])),
        catalogue=raw.get("catalogue"),
    )
    return replace(
        policy,
        on_rule_error=raw.get("onRuleError", policy.on_rule_error),
        workloads=raw.get("workloads", policy.workloads),
        void_every_container=raw.get("voidEveryContainer", policy.void_every_container),
    )


def _settings(raw: Mapping[str, Any]) -> RuleSettings:
    options = raw.get("options", {})
    return RuleSettings(
        action=Action[raw["action"].upper()] if "action" in raw else None,
        fix=raw.get("fix"),
        options={k: tuple(v) if isinstance(v, list) else v for k, v in options.items()},
        suppressible=raw.get("suppressible", True),
    )


def _exception(raw: Mapping[str, Any]) -> PolicyException:
    match = {key: _several(value) for key, value in raw["match"].items()}
    expires = raw.get("expires")
    return PolicyException(
        rules=tuple(raw["rules"]),
        reason=raw["reason"],
        expires=datetime.date.fromisoformat(expires) if expires else None,
        namespaces=match.get("namespace", ()),
        kinds=match.get("kind", ()),
        names=match.get("name", ()),
        service_accounts=match.get("serviceAccount", ()),
        images=match.get("image", ()),
        containers=match.get("container", ()),
    )
