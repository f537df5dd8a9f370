"""The changes of a namespace's LimitRanges to a new pod, as the API server's admission makes them.

Source: Kubernetes, `plugin/pkg/admission/limitranger/admission.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.pod_requests import amount_of
from cluster.source.objects import Object
from cluster.why.amounts import amount_text
from cluster.why.hurdles import Hurdle
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.limit_ranges import ContainerLimits, container_limits

_LISTS = ("containers", "initContainers")


class Limited(NamedTuple):
    """A pod as the API server would store it.

    `defaults` has a line for each container that gets something; `hurdles` say what is refused.
    """

    pod: Object
    defaults: tuple[str, ...] = ()
    hurdles: tuple[Hurdle, ...] = ()


def apply_limit_ranges(pod: Object, ranges: Iterable[Object]) -> Limited:
    """`pod` with the defaults of `ranges`, which are those of its namespace."""
    defaults: list[str] = []
    items = [(_name_of(raw), item) for raw in ranges for item in container_limits(raw)]
    if not items:
        return Limited(pod)
    spec = {**as_object(pod.get("spec"))}
    for field in _LISTS:
        if field in spec:
            containers = [container for _, container in as_objects(spec[field])]
            spec[field] = [_with_defaults(c, items, defaults) for c in containers]
    hurdles = [
        hurdle
        for field in _LISTS
        for _, container in as_objects(spec.get(field))
        for name, item in items
        for hurdle in _refusals(container, name, item)
    ]
    return Limited({**pod, "spec": spec}, tuple(defaults), tuple(hurdles))


def _with_defaults(
    container: Mapping[str, Any], items: Iterable[tuple[str, ContainerLimits]], defaults: list[str]
) -> Object:
    resources = as_object(container.get("resources"))
    limits = {**as_object(resources.get("limits"))}
    requests = {**limits, **as_object(resources.get("requests"))}
    for name, item in items:
        added = {key: value for key, value in item.limits.items() if key not in limits}
        limits = {**added, **limits}
        asked = {key: value for key, value in item.requests.items() if key not in requests}
        requests = {**asked, **requests}
        devices = [f"{_text(key, value)} {key}" for key, value in added.items() if "/" in key]
        if devices:
            who = as_text(container.get("name"))
            defaults.append(
                f"the LimitRange {name} gives the container {who} {', '.join(devices)}, for which "
                "it does not ask"
            )
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _refusals(container: Mapping[str, Any], name: str, item: ContainerLimits) -> Iterator[Hurdle]:
    resources = as_object(container.get("resources"))
    limits, requests = as_object(resources.get("limits")), as_object(resources.get("requests"))
    who = as_text(container.get("name"))
    for resource, most in item.most.items():
        if max(map(amount_of, (limits.get(resource), requests.get(resource)))) > amount_of(most):
            yield Hurdle(
                f"the LimitRange {name} refuses it: the container {who} asks for more than "
                f"{_text(resource, most)} {resource}",
                "ask for less, or raise `max` of the LimitRange",
            )
    for resource, least in item.least.items():
        asked = [amount_of(part[resource]) for part in (limits, requests) if resource in part]
        if asked and min(asked) < amount_of(least):
            yield Hurdle(
                f"the LimitRange {name} refuses it: the container {who} asks for less than "
                f"{_text(resource, least)} {resource}",
                "ask for more, or lower `min` of the LimitRange",
            )


def _name_of(raw: Object) -> str:
    return as_text(as_object(raw.get("metadata")).get("name"))


def _text(resource: str, quantity: object) -> str:
    return amount_text(resource, amount_of(quantity))
