"""Exceptions of a policy, and what it allows: their problems, and their conversion."""

import datetime
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from policies.policy import SECURITY_FAMILIES, GpuExceptionLimits
from policies.problems import Problem, suggestion_suffix
from rules.base.json_values import Path
from rules.catalog.index import CATALOG
from rules.container_files.index import RULES as CONTAINER_FILE_RULES
from rules.engine.rule_set import PolicyException
from rules.objects.pod import Pod
from rules.rule import Rule

RULE_BY_NAME: Mapping[str, Rule[Any]] = {rule.name: rule for rule in CATALOG}
# The fields of an exception by the keys of `match`.
_FIELD_BY_MATCH_KEY = {
    "namespace": "namespaces",
    "kind": "kinds",
    "name": "names",
    "serviceAccount": "service_accounts",
    "image": "images",
    "container": "containers",
}
_NAMESPACE_REASON = "the user that the rule is about can write every other field of the pod"
_NOT_ABOUT_PODS_REASON = (
    "the rule is not about pods, and only pods have one, so it would never apply"
)
_CONTAINER_MATCH_KEYS = {"image", "container"}
_PROVES_NOTHING_FAULT = "proves nothing: also give a namespace, a serviceAccount or a name"
_NO_APPROVAL_FAULT = "every tenant could except its own pods: name namespaces, or require approval"


class ExceptionEntry(NamedTuple):
    """An entry of `exceptions` of the right form, which may name what does not exist.

    `match` has patterns by the keys of a policy; `raw` is the entry as it is written.
    """

    rules: tuple[str, ...]
    reason: str
    match: Mapping[str, tuple[str, ...]]
    expires: str | None
    raw: Mapping[str, Any]


class GpuExceptionEntry(NamedTuple):
    """An entry of `gpuExceptions` of the right form; `raw` is the entry as it is written."""

    limits: GpuExceptionLimits
    raw: Mapping[str, Any]


def to_exception_entry(raw: Mapping[str, Any]) -> ExceptionEntry:
    """Return the exception in `raw`, which fits the schema."""
    return ExceptionEntry(
        rules=tuple(raw["rules"]),
        reason=raw["reason"],
        match={key: as_patterns(value) for key, value in raw.get("match", {}).items()},
        expires=raw.get("expires"),
        raw=raw,
    )


def to_exception(entry: ExceptionEntry) -> PolicyException:
    """Return the exception that `entry`, which has no problems, makes."""
    return PolicyException(
        rules=entry.rules,
        reason=entry.reason,
        expires=datetime.date.fromisoformat(entry.expires) if entry.expires else None,
        **{_FIELD_BY_MATCH_KEY[key]: patterns for key, patterns in entry.match.items()},
    )


def from_exception(exception: PolicyException) -> dict[str, Any]:
    """Return the exception as a policy writes it: what `to_exception_entry` takes."""
    found = {key: list(getattr(exception, field)) for key, field in _FIELD_BY_MATCH_KEY.items()}
    raw = {
        "rules": list(exception.rules),
        "reason": exception.reason,
        "match": {key: patterns for key, patterns in found.items() if patterns},
    }
    return raw | ({"expires": exception.expires.isoformat()} if exception.expires else {})


def to_gpu_exception_entry(raw: Mapping[str, Any]) -> GpuExceptionEntry:
    """Return the limits of GpuExceptions in `raw`, which fits the schema."""
    limits = GpuExceptionLimits(
        rules=tuple(raw["rules"]),
        namespaces=as_patterns(raw["namespaces"]),
        max_days=int(raw["longestDays"]),
        needs_approval=raw.get("approval", "required") == "required",
    )
    return GpuExceptionEntry(limits, raw)


def as_patterns(value: Any) -> tuple[str, ...]:
    """Return one pattern, or a list of patterns, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def exception_problems(exception: ExceptionEntry, path: Path) -> Iterator[Problem]:
    """Yield the problems of the exception at `path` that the schema cannot find."""
    # A pattern that matches every value does not restrict the exception.
    criteria = {key for key, value in exception.match.items() if _are_restrictive(value)}
    # Something without containers has none that `*` matches. Without an account, its name is empty.
    of_pods = sorted(exception.match.keys() & _CONTAINER_MATCH_KEYS | criteria & {"serviceAccount"})
    for name in exception.rules:
        if name not in RULE_BY_NAME:
            yield (*path, "rules"), _why_no_such_rule(name)
        elif RULE_BY_NAME[name].family in SECURITY_FAMILIES and "namespace" not in criteria:
            yield (
                (*path, "match"),
                f"an exception to {name} must name a namespace: {_NAMESPACE_REASON}",
            )
        elif RULE_BY_NAME[name].subject is not Pod and of_pods:
            yield (
                (*path, "match", of_pods[0]),
                f"an exception to {name} cannot match by {of_pods[0]}: {_NOT_ABOUT_PODS_REASON}",
            )
    if not criteria:
        yield (*path, "match"), "this matches every object; set the rule's action instead"
    elif criteria & _CONTAINER_MATCH_KEYS and not criteria & {
        "namespace",
        "serviceAccount",
        "name",
    }:
        yield (*path, "match"), f"an image or a container's name alone {_PROVES_NOTHING_FAULT}"
    yield from _date_problems(exception, path)


def path_exception_problems(exception: ExceptionEntry, path: Path) -> Iterator[Problem]:
    """Yield the problems that the schema cannot find of an exception for some files, at `path`."""
    for name in exception.rules:
        if name not in RULE_BY_NAME:
            yield (*path, "rules"), _why_no_such_rule(name)
    yield from _date_problems(exception, path)


def _date_problems(exception: ExceptionEntry, path: Path) -> Iterator[Problem]:
    try:
        if exception.expires is not None:
            datetime.date.fromisoformat(exception.expires)
    except ValueError:
        yield (*path, "expires"), f"{exception.expires!r} is not a date (YYYY-MM-DD)"


def _why_no_such_rule(name: str) -> str:
    """Return why there can be no exception to the rule `name`."""
    if any(rule.name == name for rule in CONTAINER_FILE_RULES):
        return f"{name} is about files, and exceptions are about objects: write a comment there"
    return f"there is no rule {name!r}{suggestion_suffix(name, RULE_BY_NAME)}"


def gpu_exception_limit_problems(
    limits: GpuExceptionLimits, protected: Collection[str], path: Path
) -> Iterator[Problem]:
    """Yield the problems that the schema cannot find of a policy's GpuException limits at `path`.

    `protected` are the rules that have `suppressible: false`.
    """
    is_open = not limits.needs_approval and not _are_restrictive(limits.namespaces)
    for name in limits.rules:
        where = (*path, "rules")
        if name not in RULE_BY_NAME:
            yield where, _why_no_such_rule(name)
        elif name in protected:
            yield where, f"{name} has suppressible: false, so its exceptions cannot be allowed"
        elif is_open and RULE_BY_NAME[name].family in SECURITY_FAMILIES:
            yield (
                (*path, "namespaces"),
                f"{name} in all namespaces without approval: {_NO_APPROVAL_FAULT}",
            )


def _are_restrictive(patterns: tuple[str, ...]) -> bool:
    """Return whether none of `patterns` matches everything."""
    return all(pattern.strip("*") for pattern in patterns)
