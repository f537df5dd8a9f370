"""A resource claim is written in the layout of another version of the API.

What it does
------------
Finds requests of a ResourceClaim or a ResourceClaimTemplate whose fields are not where the
`apiVersion` of the object has them. Since `resource.k8s.io/v1beta2`, `deviceClassName`,
`selectors`, `allocationMode`, `count`, `adminAccess`, `tolerations` and `capacity` are in the block
`exactly` of the request; in `v1beta1` they are in the request itself. The alternatives in
`firstAvailable` have no such block in any version.

Why it matters
--------------
kubectl refuses unknown fields. Where it is told not to, the API server drops them, and then refuses
the claim because its request has neither `exactly` nor a device class. Many examples on the web
were written for `v1beta1`.

Fix safety
----------
The fix moves the fields, and changes none. It is not made where a request has `firstAvailable`, or
has a field twice.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-claim-v1/
- Kubernetes, `staging/src/k8s.io/api/resource/v1beta1/types.go` and `v1/types.go`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Edit, Path, as_object, as_objects, display, put, remove
from rules.base.traits import CLAIM_OBJECT
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, Fix, define_rule

EXACTLY_FIELD = "exactly"
_FLAT_VERSION = "v1beta1"
_NESTED_VERSIONS = ("v1beta2", "v1")
_REQUEST_FIELDS = (
    *("deviceClassName", "selectors", "allocationMode", "count", "adminAccess"),
    *("tolerations", "capacity"),
)


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each request, or alternative of one, with fields in the place of another version."""
    listed = as_object(claim.spec.get("devices")).get("requests")
    for index, request in as_objects(listed):
        path: Path = (*claim.path, "devices", "requests", index)
        key = f"requests.{_name_or_number(request, index)}"
        if claim.version in _NESTED_VERSIONS:
            yield from _flat_fields(claim.version, path, key, request)
        elif claim.version == _FLAT_VERSION and EXACTLY_FIELD in request:
            moved = as_object(request[EXACTLY_FIELD])
            yield _finding(
                path,
                key,
                f"{_request_words(request)} has the block {EXACTLY_FIELD}, "
                f"which {_FLAT_VERSION} does not have",
                "move its fields into the request, or write apiVersion: resource.k8s.io/v1",
                _fix_by_moving_up(path, request, moved),
            )
        for number, alternative in as_objects(request.get("firstAvailable")):
            if EXACTLY_FIELD in alternative:
                place = (*path, "firstAvailable", number)
                name = _name_or_number(alternative, number)
                yield _finding(
                    place,
                    f"{key}/{name}",
                    f"the alternative {display(name)} has the block {EXACTLY_FIELD}, "
                    "which alternatives do not have",
                    "move its fields into the alternative",
                    _fix_by_moving_up(place, alternative, as_object(alternative[EXACTLY_FIELD])),
                )


def _flat_fields(version: str, path: Path, key: str, request: Mapping[str, Any]) -> Findings:
    flat = [field for field in _REQUEST_FIELDS if field in request]
    if not flat:
        return
    inside = as_object(request.get(EXACTLY_FIELD))
    yield _finding(
        path,
        key,
        f"{_request_words(request)} has {', '.join(flat)} "
        f"where {version} has the block {EXACTLY_FIELD}",
        f"move them into {EXACTLY_FIELD}",
        None
        if "firstAvailable" in request or not inside.keys().isdisjoint(flat)
        else Fix(
            f"move them into {EXACTLY_FIELD}",
            (
                put(
                    (*path, EXACTLY_FIELD), {**inside, **{field: request[field] for field in flat}}
                ),
                *(remove((*path, field)) for field in flat),
            ),
            safe=True,
        ),
    )


def _fix_by_moving_up(
    path: Path, holder: Mapping[str, Any], moved: Mapping[str, Any]
) -> Fix | None:
    """The fix that moves the fields in `exactly` up; None if one of them is there already."""
    if not moved or not holder.keys().isdisjoint(moved):
        return None
    edits: list[Edit] = [put((*path, field), value) for field, value in moved.items()]
    return Fix(
        f"move its fields out of {EXACTLY_FIELD}",
        (*edits, remove((*path, EXACTLY_FIELD))),
        safe=True,
    )


def _name_or_number(request: Mapping[str, Any], index: int) -> str:
    name = request.get("name")
    return name[:63] if isinstance(name, str) and name else f"#{index}"


def _request_words(request: Mapping[str, Any]) -> str:
    name = request.get("name")
    return f"the request {display(name)}" if isinstance(name, str) and name else "a request"


def _finding(path: Path, key: str, message: str, advice: str, fix: Fix | None) -> Finding:
    return Finding(
        path=path,
        key=key,
        message=f"{message}: the API server refuses it",
        help=advice,
        fix=fix,
        api_refuses=True,
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(CLAIM_OBJECT,))
