"""What the scheduler counts for a pod: its effective requests.

Source: Kubernetes, `staging/src/k8s.io/component-helpers/resource/helpers.go`, PodRequests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.quantity import Quantity, parse

_NANO = 10**9
_TERMINATED = ("Succeeded", "Failed")  # phases
# A pod states these for itself, in place of what its containers request.
_POD_LEVEL = ("cpu", "memory", "hugepages-")

Requests = dict[str, int]
"""Amounts by name of the resource, in units of 1e-9."""


def has_terminated(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has terminated; the scheduler then counts nothing for it."""
    return as_object(pod.get("status")).get("phase") in _TERMINATED


def effective_requests(pod: Mapping[str, Any]) -> Requests:
    """What a pod takes from its node, by resource, in units of 1e-9.

    The largest of: all containers that run together, which are app containers and sidecars; and
    each ordinary init container together with the sidecars that start before it. While a pod is
    resized in place, each of them counts with the most that it asks for or still has. Amounts that
    are no quantities count as nothing.
    """
    spec, status = as_object(pod.get("spec")), as_object(pod.get("status"))
    resizes = _Resizes(status)
    running = _sum(map(resizes.requests_of, _items(spec, "containers")))
    sidecars: Requests = {}
    largest_init: Requests = {}
    for container in _items(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            requests = resizes.requests_of(container)
            running = _sum((running, requests))
            requests = sidecars = _sum((sidecars, requests))
        else:
            requests = _sum((sidecars, _requests_of(container)))
        largest_init = _largest(largest_init, requests)
    effective = _largest(running, largest_init)
    own = _requests_of(spec)
    if own:
        now = resizes.effective(own, status)
        effective.update({name: now.get(name, 0) for name in own if name.startswith(_POD_LEVEL)})
    return _sum((effective, _amounts(as_object(spec.get("overhead")))))


def whole(amount: int) -> int:
    """The whole number for `amount`, in units of 1e-9, as the scheduler rounds: up."""
    return -(-amount // _NANO)


def amount_of(value: object) -> int:
    """A quantity in units of 1e-9; 0 if it is none."""
    parsed = parse(value)
    return max(parsed.nano, 0) if isinstance(parsed, Quantity) else 0


class _Resizes:
    """What the containers of a pod have, as the kubelet reports it, if it reports anything."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._containers = {
            as_text(found.get("name")): found
            for field in ("containerStatuses", "initContainerStatuses")
            for found in _items(status, field)
            if found.get("resources") is not None
        }
        pending = (c for c in _items(status, "conditions") if c.get("type") == "PodResizePending")
        self._is_infeasible = next(pending, {}).get("reason") == "Infeasible"

    def requests_of(self, container: Mapping[str, Any]) -> Requests:
        """The requests of a container."""
        requests = _requests_of(container)
        found = self._containers.get(as_text(container.get("name")))
        return requests if found is None else self.effective(requests, found)

    def effective(self, requests: Requests, found: Mapping[str, Any]) -> Requests:
        """What counts of `requests`, where `found` is the status of the pod or the container.

        A resize that the node can never grant counts for nothing.
        """
        if found.get("resources") is None:
            return requests
        actual = as_object(as_object(found["resources"]).get("requests"))
        granted = as_object(found.get("allocatedResources"))
        has = _amounts(actual)
        if any(actual.get(name) != value for name, value in granted.items()):
            has = _largest(has, _amounts(granted))
        return has if self._is_infeasible else _largest(requests, has)


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
    amounts = ((name, amount_of(value)) for name, value in quantities.items())
    return {name: amount for name, amount in amounts if amount}


def _sum(parts: Iterable[Requests]) -> Requests:
    total: Requests = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(one: Requests, other: Requests) -> Requests:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
