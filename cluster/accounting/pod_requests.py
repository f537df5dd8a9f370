"""The effective requests of a pod, as the scheduler counts them.

Source: Kubernetes, `staging/src/k8s.io/component-helpers/resource/helpers.go`, PodRequests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rules.base.caching import cached_by_text
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.pod_amounts import amounts_together, runs_with_others
from rules.base.quantity import Quantity, parse

_NANO = 10**9
_TERMINATED = ("Succeeded", "Failed")  # phases
# A pod states these for itself, in place of what its containers request.
_POD_LEVEL = ("cpu", "memory", "hugepages-")

Requests = dict[str, int]
"""Amounts by name of the resource, in units of 1e-9."""


def has_terminated(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has terminated; the scheduler then counts nothing for it."""
    return as_object(pod.get("status")).get("phase") in _TERMINATED


def effective_requests(pod: Mapping[str, Any]) -> Requests:
    """Return the amounts that a pod takes from its node, by resource, in units of 1e-9.

    While a pod is resized in place, three amounts exist: what its containers ask for, what the
    kubelet has granted, and what they still have. The largest counts. A resize that the node can
    never grant does not count.
    Amounts that are no quantities count as nothing.

    Up to Kubernetes 1.36, schedulers took the most of each container instead, which is more if one
    container grows while another one shrinks.
    """
    spec, status = as_object(pod.get("spec")), as_object(pod.get("status"))
    states = _ContainerStates(status)
    asked = [] if states.is_infeasible else [_together(spec, _requests_of)]
    if asked and not states.may_differ(spec) and not _of_pod(status):
        (effective,) = asked
    else:
        effective = _largest(
            *asked,
            *(_of_pod(status) or (_together(spec, states.granted), _together(spec, states.actual))),
        )
    own = _requests_of(spec)
    if own and status.get("resources") is not None:
        has = _largest(_actual(status), _granted(status))
        own = has if states.is_infeasible else _largest(own, has)
    effective.update({name: own[name] for name in own if name.startswith(_POD_LEVEL)})
    return _sum((effective, _amounts(as_object(spec.get("overhead")))))


def _together(
    spec: Mapping[str, Any], requests_of: Callable[[Mapping[str, Any]], Requests]
) -> Requests:
    return amounts_together(
        (runs_with_others(container, is_init=is_init), requests_of(container))
        for field, is_init in (("initContainers", True), ("containers", False))
        for container in _items(spec, field)
    )


def whole(amount: int) -> int:
    """The whole number for `amount`, in units of 1e-9, as the scheduler rounds: up."""
    return -(-amount // _NANO)


def amount_of(value: object) -> int:
    """A quantity in units of 1e-9; 0 if it is none."""
    return _amount_of_text(value) if isinstance(value, str) else _parsed_amount(value)


def _parsed_amount(value: object) -> int:
    parsed = parse(value)
    return max(parsed.nano, 0) if isinstance(parsed, Quantity) else 0


@cached_by_text
def _amount_of_text(text: str) -> int:
    return _parsed_amount(text)


class _ContainerStates:
    """The amounts that containers have, as the kubelet reports them; else their requests."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._containers = {
            as_text(found.get("name")): found
            for field in ("containerStatuses", "initContainerStatuses")
            for found in _items(status, field)
        }
        pending = (c for c in _items(status, "conditions") if c.get("type") == "PodResizePending")
        self.is_infeasible = next(pending, {}).get("reason") == "Infeasible"

    def may_differ(self, spec: Mapping[str, Any]) -> bool:
        """Return whether a container may have been promised, or have, what it does not ask for.

        Most have just that, in the same words.
        """
        for field in ("containers", "initContainers"):
            for container in _items(spec, field):
                found = self._containers.get(as_text(container.get("name")), {})
                granted = found.get("allocatedResources")
                actual = as_object(found.get("resources")).get("requests")
                if granted is None and actual is None:
                    continue
                asked = as_object(container.get("resources")).get("requests")
                if granted not in (None, asked) or actual not in (None, asked):
                    return True
        return False

    def granted(self, container: Mapping[str, Any]) -> Requests:
        """Return the amounts that the kubelet has promised to the container."""
        found = self._containers.get(as_text(container.get("name")), {})
        if found.get("allocatedResources") is not None:
            return _granted(found)
        return {} if self.is_infeasible else _requests_of(container)

    def actual(self, container: Mapping[str, Any]) -> Requests:
        """Return the amounts that the container has."""
        found = self._containers.get(as_text(container.get("name")), {})
        if as_object(found.get("resources")).get("requests") is not None:
            return _actual(found)
        return self.granted(container)


def _of_pod(status: Mapping[str, Any]) -> tuple[Requests, ...]:
    """Return what the pod was granted and has as a whole.

    It is empty if the kubelet does not report both.
    """
    has_actual = as_object(status.get("resources")).get("requests") is not None
    if status.get("allocatedResources") is None or not has_actual:
        return ()
    return _granted(status), _actual(status)


def _granted(status: Mapping[str, Any]) -> Requests:
    return _amounts(as_object(status.get("allocatedResources")))


def _actual(status: Mapping[str, Any]) -> Requests:
    return _amounts(as_object(as_object(status.get("resources")).get("requests")))


def _items(holder: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    return (item for _, item in as_objects(holder.get(field)))


def _requests_of(holder: Mapping[str, Any]) -> Requests:
    """The requests in `resources`; a limit without a request is one, as API servers default it."""
    resources = as_object(holder.get("resources"))
    if not resources:
        return {}
    limits, requests = as_object(resources.get("limits")), as_object(resources.get("requests"))
    return _amounts({**limits, **requests})


def _amounts(quantities: Mapping[str, Any]) -> Requests:
    return {name: amount for name, value in quantities.items() if (amount := amount_of(value))}


def _sum(parts: Iterable[Requests]) -> Requests:
    total: Requests = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(*parts: Requests) -> Requests:
    largest: Requests = {}
    for part in parts:
        for name, amount in part.items():
            largest[name] = max(amount, largest.get(name, 0))
    return largest
