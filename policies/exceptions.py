"""Exceptions of a policy, and what it allows: their problems, and their conversion."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from policies.policy import SECURITY_FAMILIES, GpuExceptionLimits
from policies.problems import Problem, suggestion
from rules.base.json_values import Path
from rules.catalog.index import CATALOG
from rules.container_files import RULES as CONTAINER_FILE_RULES
from rules.engine.rule_set import PolicyException
from rules.objects.pod import Pod
from rules.rule import Rule

GPU_EXCEPTION_API, GPU_EXCEPTION_KIND = "gpuward.io/v1alpha1", "GpuException"
"""The apiVersion and the kind of GpuExceptions; `gpu_exceptions` decides about them."""
RULES: Mapping[str, Rule[Any]] = {rule.name: rule for rule in CATALOG}
# The fields of an exception by the keys of `match`.
_FIELDS = {
    "namespace": "namespaces",
    "kind": "kinds",
    "name": "names",
    "serviceAccount": "service_accounts",
    "image": "images",
    "container": "containers",
}
_NAMESPACE_REASON = "the user that the rule is about can write every other field of the pod"
_NOT_ABOUT_PODS = "the rule is not about pods, and only pods have one, so it would never apply"
_ONLY_PODS_HAVE = {"image", "container", "serviceAccount"}
_PROVES_NOTHING = "proves nothing: also give a namespace, a serviceAccount or a name"
_APPROVAL_NONE = "every tenant could except its own pods: name namespaces, or require approval"


def to_exception(raw: Mapping[str, Any]) -> PolicyException:
    """The exception in `raw`, which has no problems."""
    expires = raw.get("expires")
    return PolicyException(
        rules=tuple(raw["rules"]),
        reason=raw["reason"],
        expires=datetime.date.fromisoformat(expires) if expires else None,
        **{_FIELDS[key]: as_patterns(value) for key, value in raw["match"].items()},
    )


def from_exception(exception: PolicyException) -> dict[str, Any]:
    """The exception as a policy writes it: the opposite of `to_exception`."""
    found = {key: list(getattr(exception, field)) for key, field in _FIELDS.items()}
    raw = {
        "rules": list(exception.rules),
        "reason": exception.reason,
        "match": {key: patterns for key, patterns in found.items() if patterns},
    }
    return raw | ({"expires": exception.expires.isoformat()} if exception.expires else {})


def to_gpu_exception_limits(raw: Mapping[str, Any]) -> GpuExceptionLimits:
    """The limits of GpuExceptions in `raw`, which has no problems."""
    return GpuExceptionLimits(
        rules=tuple(raw["rules"]),
        namespaces=as_patterns(raw["namespaces"]),
        longest_days=int(raw["longestDays"]),
        needs_approval=raw.get("approval", "required") == "required",
    )


def as_patterns(value: Any) -> tuple[str, ...]:
    """Return one pattern, or a list of patterns, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def exception_problems(exception: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """What the schema cannot say about the exception at `path`."""
    # A pattern that matches every value does not restrict the exception.
    criteria = {key for key, value in exception["match"].items() if _none_matches_all(value)}
    for name in exception["rules"]:
        if name not in RULES:
            yield (*path, "rules"), _why_no_such_rule(name)
        elif RULES[name].family in SECURITY_FAMILIES and "namespace" not in criteria:
            yield (
                (*path, "match"),
                f"an exception to {name} must name a namespace: {_NAMESPACE_REASON}",
            )
        elif RULES[name].subject is not Pod and (of_pods := sorted(criteria & _ONLY_PODS_HAVE)):
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
    yield from _bad_date(exception, path)


def path_exception_problems(exception: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """What the schema cannot say about an exception for some files, which is at `path`."""
    for name in exception["rules"]:
        if name not in RULES:
            yield (*path, "rules"), _why_no_such_rule(name)
    yield from _bad_date(exception, path)


def _bad_date(exception: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    try:
        datetime.date.fromisoformat(exception.get("expires", "2000-01-01"))
    except ValueError:
        yield (*path, "expires"), f"{exception['expires']!r} is not a date (YYYY-MM-DD)"


def _why_no_such_rule(name: str) -> str:
    """Why there can be no exception to the rule `name`."""
    if any(rule.name == name for rule in CONTAINER_FILE_RULES):
        return f"{name} is about files, and exceptions are about objects: write a comment there"
    return f"there is no rule {name!r}{suggestion(name, RULES)}"


def gpu_exception_limit_problems(
    limits: Mapping[str, Any], protected: Collection[str], path: Path
) -> Iterator[Problem]:
    """What the schema cannot say about the limits of GpuExceptions at `path` of a policy.

    `protected` are the rules that have `suppressible: false`.
    """
    is_open = limits.get("approval") == "none" and not _none_matches_all(limits["namespaces"])
    for name in limits["rules"]:
        where = (*path, "rules")
        if name not in RULES:
            yield where, _why_no_such_rule(name)
        elif name in protected:
            yield where, f"{name} has suppressible: false, so its exceptions cannot be allowed"
        elif is_open and RULES[name].family in SECURITY_FAMILIES:
            yield (
                (*path, "namespaces"),
                f"{name} in all namespaces without approval: {_APPROVAL_NONE}",
            )


def _none_matches_all(patterns: Any) -> bool:
    """Whether none of `patterns` matches everything."""
    return all(pattern.strip("*") for pattern in as_patterns(patterns))
