"""A resource claim refers to requests that it lacks, or has values that cannot stand together.

What it does
------------
Finds, in a ResourceClaim or a ResourceClaimTemplate,

- names in `constraints[].requests` and `config[].requests` that no request of the claim has, such
  as a misspelt one, and names of alternatives without the request before them (`gpu/large`);
- a `matchAttribute` or a `distinctAttribute` without a domain, such as `pcieRoot` instead of
  `resource.kubernetes.io/pcieRoot`;
- two requests, or two alternatives of one, with the same name;
- requests that have both a device of their own (`exactly`) and `firstAvailable`, or neither of
  them, and devices without a `deviceClassName`;
- `count` beside `allocationMode: All`, and counts below one;
- other allocation modes than `ExactCount` and `All`;
- the version `v1alpha2` of the API, which Kubernetes has not had since 1.31;
- tolerations of device taints with another operator than `Exists` and `Equal`, or with a value
  beside `Exists`.

Why it matters
--------------
The API server refuses the claim. It accepts a template with the same fault no more than the claim.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/
- Kubernetes, `pkg/apis/resource/validation/validation.go`
- k8s.io/api v0.30.0 and v0.31.0, `resource`
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import CLAIM_OBJECT
from rules.objects.kubernetes_objects import DeviceRequest
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

_NOUNS_OF_ENTRIES = {"constraints": "a constraint", "config": "an entry of config"}
_ATTRIBUTE_FIELDS = ("matchAttribute", "distinctAttribute")
# The names that Kubernetes gives to attributes of the devices of all drivers.
_STANDARD_DOMAIN = "resource.kubernetes.io"
_STANDARD_ATTRIBUTES = frozenset({"pcieRoot", "pciBusID", "numaNode"})
_REMOVED_VERSION = "v1alpha2"
_ALLOCATION_MODES = ("ExactCount", "All")
_CLASS_FIELD, _EXACTLY_FIELD, _ALTERNATIVES_FIELD = "deviceClassName", "exactly", "firstAvailable"
# In this version a request has the fields itself that it has in `exactly` in the later ones.
_FLAT_VERSION, _NESTED_VERSIONS = "v1beta1", ("v1beta2", "v1")
_FLAT_FIELDS = (
    *(_CLASS_FIELD, "selectors", "allocationMode", "count", "adminAccess"),
    *("tolerations", "capacity"),
)
# No claim has more requests than this, and each alternative of one is a name as well.
_MAX_NAMES = 300
_MAX_COMPARED_NAMES = 20  # unknown names of one claim for which the right one is looked for


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each reference to no request, each doubled name, and each value that is refused."""
    if claim.version == _REMOVED_VERSION:
        yield _refused(
            (*claim.base, "apiVersion"),
            "apiVersion",
            f"Kubernetes has no {claim.object.kind} of the version {_REMOVED_VERSION} since 1.31",
            "write apiVersion: resource.k8s.io/v1, and what is asked for in spec.devices.requests",
        )
    devices = as_object(claim.spec.get("devices"))
    path: Path = (*claim.path, "devices")
    names = _RequestNames(devices.get("requests"))
    for field in _NOUNS_OF_ENTRIES:
        for index, entry in as_objects(devices.get(field)):
            place = (*path, field, index)
            yield from _unknown_requests(entry, place, f"{field}.{index}", names)
            if field == "constraints":
                yield from _attributes_without_domain(entry, place, f"{field}.{index}")
    yield from _doubled_names(devices.get("requests"), path)
    yield from _incomplete_requests(claim)
    for request in claim.requests():
        yield from _faulty_values(request)


class _RequestNames:
    """The names of requests, and those of their alternatives after a slash."""

    def __init__(self, listed: Any) -> None:
        names: list[str] = []
        for _, request in as_objects(listed):
            name = as_text(request.get("name"))
            names.append(name)
            alternatives = as_objects(request.get("firstAvailable"))
            names += [f"{name}/{as_text(each.get('name'))}" for _, each in alternatives]
        self._listed = names[:_MAX_NAMES]
        self._known = frozenset(self._listed)
        self._nearest: dict[str, str | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def nearest(self, name: str) -> str | None:
        """The name that is probably meant; None if there is none, or after many of them."""
        if name not in self._nearest and len(self._nearest) < _MAX_COMPARED_NAMES:
            full = next((n for n in self._listed if n.partition("/")[2] == name), None)
            others = [n for n in self._listed if n]
            self._nearest[name] = full or nearest_word(name[:63], others)
        return self._nearest.get(name)


def _unknown_requests(
    entry: Mapping[str, Any], place: Path, key: str, names: _RequestNames
) -> Findings:
    listed = entry.get("requests")
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(name, str) or name in names or has_placeholder(name):
            continue
        near = names.nearest(name)
        yield _refused(
            (*place, "requests", index),
            f"{key}.requests.{name}",
            f"{_NOUNS_OF_ENTRIES[key.partition('.')[0]]} names the request {display(name)}, "
            "which the claim lacks",
            f"write {near}" if near else "write the name of a request of the claim",
        )


def _attributes_without_domain(entry: Mapping[str, Any], place: Path, key: str) -> Findings:
    for field in _ATTRIBUTE_FIELDS:
        name = as_text(entry.get(field))
        if name and "/" not in name and not has_placeholder(name):
            domain = _STANDARD_DOMAIN if name in _STANDARD_ATTRIBUTES else "gpu.nvidia.com"
            advice = f"write {domain}/{name}"
            if name not in _STANDARD_ATTRIBUTES:
                advice = f"write the domain as well, such as {domain}/{name}"
            fault = f"a constraint has the {field} {display(name)} without a domain"
            yield _refused((*place, field), f"{key}.{field}", fault, advice)


def _doubled_names(listed: Any, path: Path) -> Findings:
    for place, name in _last_of_doubled_names(listed, (*path, "requests")):
        fault = f"two requests have the name {display(name)}"
        yield _refused(place, f"requests.{name}", fault, "give each a name of its own")
    for index, request in as_objects(listed):
        alternatives = (*path, "requests", index, "firstAvailable")
        for place, name in _last_of_doubled_names(request.get("firstAvailable"), alternatives):
            full = f"{as_text(request.get('name'))}/{name}"
            fault = f"two alternatives have the name {display(full)}"
            yield _refused(place, f"requests.{full}", fault, "give each a name of its own")


def _last_of_doubled_names(listed: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """The place of the last entry with a name that several have, and the name."""
    names = {index: as_text(entry.get("name")) for index, entry in as_objects(listed)}
    times = Counter(name for name in names.values() if name)
    last = {name: index for index, name in names.items()}
    for name, count in times.items():
        if count > 1:
            yield (*path, last[name], "name"), name


def _incomplete_requests(claim: DeviceClaim) -> Findings:
    """Yield each request without exactly one of its two forms, and each device without a class.

    `claim-layout` reports the fields that are in the place of another version.
    """
    is_flat = claim.version == _FLAT_VERSION
    listed = as_object(claim.spec.get("devices")).get("requests")
    for index, request in as_objects(
        listed if is_flat or claim.version in _NESTED_VERSIONS else ()
    ):
        path: Path = (*claim.path, "devices", "requests", index)
        name = as_text(request.get("name"))[:63] or f"#{index}"
        has_fields = any(request.get(field) for field in _FLAT_FIELDS)
        block = request.get(_EXACTLY_FIELD)
        has_block = block is not None
        if has_block if is_flat else has_fields:
            continue
        alternatives = list(as_objects(request.get(_ALTERNATIVES_FIELD)))
        has_own = has_fields or has_block
        if has_own == bool(alternatives):
            words = "both {} and" if has_own else "neither {} nor"
            form = words.format(_CLASS_FIELD if is_flat else _EXACTLY_FIELD)
            fault = f"the request {display(name)} has {form} {_ALTERNATIVES_FIELD}"
            advice = "remove one of them" if has_own else "write one of them"
            yield _refused(path, f"requests.{name}.form", fault, advice)
        elif has_own:
            fields = request if is_flat else as_object(block)
            yield from _missing_class(path if is_flat else (*path, _EXACTLY_FIELD), fields, name)
        for number, fields in alternatives:
            full = f"{name}/{as_text(fields.get('name'))[:63] or f'#{number}'}"
            if _EXACTLY_FIELD not in fields:
                yield from _missing_class((*path, _ALTERNATIVES_FIELD, number), fields, full)


def _missing_class(path: Path, fields: Mapping[str, Any], name: str) -> Findings:
    if not fields.get(_CLASS_FIELD):
        fault = f"the request {display(name)} has no {_CLASS_FIELD}"
        yield _refused(path, f"requests.{name}.{_CLASS_FIELD}", fault, "name a DeviceClass")


def _faulty_values(request: DeviceRequest) -> Findings:
    fields, shown = request.fields, f"the request {display(request.name)}"
    mode, count = as_text(fields.get("allocationMode")), fields.get("count")
    key = f"requests.{request.name}"
    if mode and mode not in _ALLOCATION_MODES and not has_placeholder(mode):
        near = nearest_word(mode[:63], _ALLOCATION_MODES) or _ALLOCATION_MODES[0]
        fault = f"{shown} has the allocationMode {display(mode)}, which does not exist"
        path = (*request.path, "allocationMode")
        yield _refused(path, f"{key}.allocationMode", fault, f"write {near}")
    elif type(count) is int and mode == "All" and count:
        fault = f"{shown} has a count beside allocationMode: All"
        yield _refused((*request.path, "count"), f"{key}.count", fault, "remove one of them")
    elif type(count) is int and count < 0:
        fault = f"{shown} has the count {count}"
        yield _refused((*request.path, "count"), f"{key}.count", fault, "write 1 or more")
    for index, toleration in as_objects(fields.get("tolerations")):
        place = (*request.path, "tolerations", index)
        operator, value = as_text(toleration.get("operator")), toleration.get("value")
        if has_placeholder(operator):
            continue
        if operator not in ("", "Exists", "Equal"):
            near = nearest_word(operator[:63], ("Exists", "Equal")) or "Exists"
            fault = f"{shown} has a toleration with the operator {display(operator)}"
            path = (*place, "operator")
            yield _refused(path, f"{key}.tolerations.{index}", fault, f"write {near}")
        elif operator == "Exists" and value:
            fault = f"{shown} has a toleration with operator Exists and a value"
            advice = "remove the value, or write operator: Equal"
            yield _refused((*place, "value"), f"{key}.tolerations.{index}", fault, advice)


def _refused(path: Path, key: str, fault: str, advice: str) -> Finding:
    return Finding(
        path=path,
        key=key,
        message=f"{fault}: the API server refuses it",
        help=advice,
        api_refuses=True,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(CLAIM_OBJECT,))
