"""The priority of gpuward's pods: preemption by pods of users heeds no disruption budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cluster.doctor.facts import DoctorFacts, name_of
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.source.objects import DEPLOYMENTS, PRIORITY_CLASSES, Object, SourceError
from cluster.source.release import describe
from rules.base.json_values import as_object, as_text
from terminal import DOCS_URL

_PRIORITY = "priority"
_HIGHEST = "system-node-critical"
# Kubernetes, pkg/apis/scheduling/v1/helpers.go. No other class may have such values.
_SYSTEM_CLASSES = {_HIGHEST: 2_000_001_000, "system-cluster-critical": 2_000_000_000}
# What the chart makes that nothing is decided by.
_NOT_NEEDED = ("-audit", "-console")
_REMEDY = (
    f"set priorityClassName: {_HIGHEST} in the values of the chart; "
    f"{DOCS_URL}/resilience.md says how to keep priority classes from users"
)


class _Class(NamedTuple):
    """A priority class. With `preempts` its pods can evict others."""

    name: str
    value: int
    preempts: bool


def check_own_priority(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each priority class that Deployments of the release have, or for those without.

    None without a release, or if its Deployments cannot be read: the check of the release says so.
    """
    if (release := facts.release) is None:
        return
    home = release.home
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys([home.name, *_needed_deployments(release.objects)]):
        try:
            deployment = facts.get(DEPLOYMENTS, home.namespace, name)
        except SourceError:
            continue
        if deployment is not None:
            found.setdefault(_class_name(deployment), []).append(name)
    classes = {each.name: each for each in map(_read, facts.objects(PRIORITY_CLASSES))}
    for name, deployments in sorted(found.items()):
        yield _row(describe(DEPLOYMENTS, home, ", ".join(deployments)), name, classes)


def _needed_deployments(objects: list[tuple[str, str]]) -> list[str]:
    return [n for kind, n in objects if kind == DEPLOYMENTS.kind and not n.endswith(_NOT_NEEDED)]


def _class_name(deployment: Object) -> str:
    template = as_object(as_object(deployment.get("spec")).get("template"))
    return as_text(as_object(template.get("spec")).get("priorityClassName"))


def _read(item: Object) -> _Class:
    value = item.get("value")
    preempts = item.get("preemptionPolicy") != "Never"
    return _Class(name_of(item), value if isinstance(value, int) else 0, preempts)


def _row(subject: str, name: str, classes: Mapping[str, _Class]) -> Row:
    """The row about Deployments whose pods have the priority class `name`, which may be empty."""
    if name == _HIGHEST:
        return ok(_PRIORITY, subject, f"has the priority class {name}: no pod can evict it")
    if not name:
        message = "has no priority class: pods of every class can evict it, and then nobody judges"
        return wrong(_PRIORITY, subject, message, _REMEDY)
    value = _SYSTEM_CLASSES.get(name) or (classes[name].value if name in classes else None)
    if value is None:
        message = f"has the priority class {name}, whose value is not known"
        return not_known(_PRIORITY, subject, message, _REMEDY)
    above = [
        each.name
        for each in sorted(classes.values())
        if each.value > value and each.preempts and each.name not in _SYSTEM_CLASSES
    ]
    if above:
        message = f"has the priority class {name}: pods of the class {above[0]} can evict it"
        return wrong(_PRIORITY, subject, message, _REMEDY)
    message = (
        f"has the priority class {name}: pods of {_HIGHEST} can evict it, if users may name it"
    )
    return not_known(_PRIORITY, subject, message, _REMEDY)
