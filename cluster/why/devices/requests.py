"""The content of claims: requests, their alternatives, and constraints on the devices.

Source: Kubernetes, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.pod_requests import amount_of, whole
from rules.base.claim_requests import alternatives_of
from rules.base.json_values import as_object, as_objects, as_text

MAX_DEVICES = 32
"""The most devices that one claim can have."""
_READ = frozenset(
    {
        *("name", "deviceClassName", "selectors", "allocationMode", "count", "adminAccess"),
        *("tolerations", "capacity"),
    }
)
_READ_OF_CONSTRAINT = frozenset({"requests", "matchAttribute", "distinctAttribute"})


class Request(NamedTuple):
    """A request for devices, or one of the alternatives of a request.

    - `name`: with that of the request around it, such as `gpu/large`.
    - `devices`: how many; None for all that match.
    - `capacity`: what it asks of each device, by name as written.
    - `doubt`: what it means and is not read here; empty if all is read.
    """

    name: str
    class_name: str
    selectors: tuple[str, ...] = ()
    devices: int | None = 1
    is_admin: bool = False
    tolerations: tuple[Mapping[str, Any], ...] = ()
    capacity: Mapping[str, Any] = {}
    doubt: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a constraint may call it."""
        return self.name, self.name.partition("/")[0]


class Constraint(NamedTuple):
    """All devices of the requests have the same value of an attribute, or all have another one.

    Without `requests` it is about all requests of the claim.
    """

    attribute: str
    is_distinct: bool
    requests: frozenset[str] = frozenset()

    def is_about(self, request: Request) -> bool:
        """Return whether it limits the devices of `request`."""
        return not self.requests or not self.requests.isdisjoint(request.names)


class ClaimRequest(NamedTuple):
    """A claim without devices: for each of its requests the alternatives, in their order.

    `label` is what people call it, such as `claim gpu`.
    """

    label: str
    requests: tuple[tuple[Request, ...], ...]
    constraints: tuple[Constraint, ...] = ()
    doubt: str = ""

    @property
    def classes(self) -> Iterator[str]:
        """The DeviceClasses that it names."""
        return (one.class_name for alternatives in self.requests for one in alternatives)


def read_claim(label: str, spec: Mapping[str, Any]) -> ClaimRequest:
    """The requests of a claim with this `spec`."""
    devices = as_object(spec.get("devices"))
    requests = []
    for _, raw in as_objects(devices.get("requests")):
        name = as_text(raw.get("name"))
        is_choice = bool(as_objects(raw.get("firstAvailable")))
        requests.append(
            tuple(
                _read_request(f"{name}/{as_text(each.get('name'))}" if is_choice else name, each)
                for each in alternatives_of(raw)
            )
        )
    constraints, doubt = [], ""
    for _, raw in as_objects(devices.get("constraints")):
        if unknown := sorted({*raw} - _READ_OF_CONSTRAINT):
            doubt = f"what the constraint {unknown[0]} of its {label} means"
        listed = raw.get("requests")
        named = frozenset(map(as_text, listed if isinstance(listed, list) else ()))
        distinct = as_text(raw.get("distinctAttribute"))
        attribute = as_text(raw.get("matchAttribute")) or distinct
        constraints.append(Constraint(attribute, bool(distinct), named))
    return ClaimRequest(label, tuple(requests), tuple(constraints), doubt)


def _read_request(name: str, raw: Mapping[str, Any]) -> Request:
    count, doubt = raw.get("count", 1), ""
    mode = as_text(raw.get("allocationMode")) or "ExactCount"
    expressions = []
    for _, selector in as_objects(raw.get("selectors")):
        expression = as_object(selector.get("cel")).get("expression")
        if not isinstance(expression, str):
            doubt = "what a selector without CEL means"
        expressions.append(as_text(expression))
    if unknown := sorted({*raw} - _READ):
        doubt = f"what {unknown[0]} of its request {name} means"
    if mode not in {"ExactCount", "All"} or not isinstance(count, int):
        doubt = f"how many devices its request {name} asks for"
        count = 1
    return Request(
        name,
        as_text(raw.get("deviceClassName")),
        tuple(expressions),
        None if mode == "All" else count,
        raw.get("adminAccess") is True,
        tuple(toleration for _, toleration in as_objects(raw.get("tolerations"))),
        as_object(as_object(raw.get("capacity")).get("requests")),
        doubt,
    )


def requests_of_containers(
    spec: Mapping[str, Any], class_by_resource: Mapping[str, str]
) -> Iterable[Request]:
    """Return a pod's requests of DeviceClasses by the names of resources.

    `spec` is the pod's.

    Devices of containers that start later are free for ordinary init containers before them.
    Source: Kubernetes,
    `pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go`.
    """
    initial = [each for _, each in as_objects(spec.get("initContainers"))]
    containers = [*initial, *(each for _, each in as_objects(spec.get("containers")))]
    for resource, class_name in sorted(class_by_resource.items()):
        most = 0
        asked = [_asked(each, resource) for each in containers]
        is_short = [
            number < len(initial) and each.get("restartPolicy") != "Always"
            for number, each in enumerate(containers)
        ]
        for number, count in enumerate(asked):
            if is_short[number]:
                later = zip(asked[number:], is_short[number:], strict=True)
                most = max(most, count - sum(each for each, short in later if not short))
        own = [count for count, short in zip(asked, is_short, strict=True) if not short]
        for count in (most, *own):
            if count > 0:
                yield Request(resource, class_name, devices=count)


def _asked(container: Mapping[str, Any], resource: str) -> int:
    resources = as_object(container.get("resources"))
    for field in ("requests", "limits"):
        amount = as_object(resources.get(field)).get(resource)
        if amount is not None:
            return whole(amount_of(amount))
    return 0
