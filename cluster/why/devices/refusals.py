"""The reasons why a node does not have the devices for claims, for each of its devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from cluster.why.amounts import amount_text
from cluster.why.devices.allocation import Attempt, left_of, untolerated_taint
from cluster.why.devices.capacity import amount_given, asked_of, is_enough, nano_of, total_of
from cluster.why.devices.errors import NotKnownError
from cluster.why.devices.pools import Device, Pool
from cluster.why.devices.requests import ClaimRequest, Request
from cluster.why.devices.selectors import Selection
from reports.formats import some
from rules.base.json_values import as_text

NOT_OFFERED = "which the nodes do not offer"
_MAX_EXPRESSION = 120


class _Kind(IntEnum):
    """The kinds of reasons against a device, the easiest to change first."""

    TAKEN = 0
    TAINTED = 1
    COUNTERS = 2
    CAPACITY = 3
    SELECTOR = 4
    FAILS = 5
    ELSEWHERE = 6
    CLASS = 7


_REMEDIES = {
    _Kind.TAKEN: "wait until a claim there is deleted, or ask for fewer devices",
    _Kind.TAINTED: (
        "look at the devices: their driver or an administrator has set the taint; add a toleration "
        "to the request if they can be used"
    ),
    _Kind.COUNTERS: "wait until other parts of the card are given back, or ask for a smaller part",
    _Kind.CAPACITY: "ask for less of a device, or wait until shares of it are given back",
    _Kind.SELECTOR: "change the selector of the request so that it selects devices that are there",
    _Kind.FAILS: "let the selector test by has() that a device has an attribute before it reads it",
}


class Shortage(NamedTuple):
    """The reason why a node has no devices for claims.

    - `subject`: what tells groups of nodes apart.
    - `reasons`: what is asked for, and what is against the devices.
    - `is_lasting`: the node has no such devices at all.
    """

    subject: str
    reasons: tuple[str, ...]
    remedy: str = ""
    is_lasting: bool = False


class _Refusal(NamedTuple):
    kind: _Kind
    text: str
    """The words after the name of the device."""


def find_shortage(attempt: Attempt) -> Shortage:
    """Return why the node of an attempt that failed has no devices for the claims."""
    demands: dict[str, list[tuple[ClaimRequest, tuple[Request, ...]]]] = defaultdict(list)
    for claim in attempt.claims:
        for alternatives in claim.requests:
            alike = repr([one._replace(name="") for one in alternatives])
            demands[alike].append((claim, alternatives))
    found = []
    for demand in demands.values():
        labels = list(dict.fromkeys(claim.label for claim, _ in demand))
        alternatives = demand[0][1]
        short = [_shortage(attempt, one, labels, len(demand)) for one in alternatives]
        known = [one for one in short if one is not None]
        if len(known) == len(short):
            found += known
    # A shortage that nothing would change comes first: the others do not matter then.
    return min(found, key=lambda one: not one.is_lasting) if found else _together(attempt)


def _shortage(attempt: Attempt, request: Request, labels: list[str], times: int) -> Shortage | None:
    """Return why `times` such requests do not get their devices; None if there are enough."""
    free = 0
    refused: dict[_Refusal, list[Device]] = defaultdict(list)
    for pool in attempt.pools:
        for device in () if pool.unusable else pool.devices:
            refusal = _refusal(attempt, pool, device, request)
            if refusal is None:
                free += 1
            else:
                refused[refusal].append(device)
    unusable = [f"the pool {pool.label} {pool.unusable}" for pool in attempt.pools if pool.unusable]
    of_class = [one for one in refused if one.kind < _Kind.ELSEWHERE]
    wanted = None if request.devices is None else request.devices * times
    is_all_there = bool(free) and not of_class and not unusable
    if is_all_there if wanted is None else free >= wanted:
        return None
    asked = f"{_asked(request, labels, wanted)}, "
    if not (free or of_class or unusable):
        return Shortage(asked + NOT_OFFERED, (asked + NOT_OFFERED,), is_lasting=True)
    lines = [f"{line}: none of its devices is given away" for line in unusable]
    lines += [_line(kind, refused) for kind in sorted({one.kind for one in of_class})]
    how_many = "none is free for it" if not free else f"only {free} of them can be given to it"
    if wanted is None and free:
        how_many = "some of them cannot be given to it"
    first = min((one.kind for one in of_class), default=_Kind.CLASS)
    kinds = ", ".join(kind.name for kind in sorted({one.kind for one in of_class}))
    subject = f"{asked}{bool(free)} {kinds} {bool(unusable)}"
    return Shortage(subject, (asked + f"and {how_many}", *lines), _REMEDIES.get(first, ""))


def _asked(request: Request, labels: list[str], count: int | None) -> str:
    many = "all devices" if count is None else f"{count} device{'s'[count == 1 :]}"
    admin = " for an administrator" if request.is_admin else ""
    if labels == [""]:
        return f"the pod asks for {count} {request.name}, by the class {request.class_name}"
    claims = f"its {labels[0]} asks" if len(labels) == 1 else f"its claims {some(labels)} ask"
    return f"{claims} for {many} of the class {request.class_name}{admin}"


def _line(kind: _Kind, refused: Mapping[_Refusal, list[Device]]) -> str:
    """Return a line about the devices that are refused for one kind of reasons."""
    found = {refusal: devices for refusal, devices in refused.items() if refusal.kind is kind}
    if kind is _Kind.TAKEN:
        taken = (
            f"{some([one.name for one in devices])} ({refusal.text})"
            for refusal, devices in found.items()
        )
        return f"taken: {some([*taken])}"
    return "; ".join(
        f"{some([one.name for one in devices])} {refusal.text}"
        for refusal, devices in found.items()
    )


def _refusal(  # noqa: PLR0911  # one for each kind
    attempt: Attempt, pool: Pool, device: Device, request: Request
) -> _Refusal | None:
    """Return the reason against giving a device to a request; None if none is known."""
    chosen = _unselected(attempt, device, request)
    if chosen is not None:
        return chosen
    held = attempt.held
    holders = held.holders.get(device.key)
    if holders and not request.is_admin:
        return _Refusal(_Kind.TAKEN, " and ".join(dict.fromkeys(holders)))
    if taint := untolerated_taint(device, request):
        text = f"{taint.get('key')}={as_text(taint.get('value'))}".removesuffix("=")
        text = f"has the taint {text}:{taint.get('effect')}, which the request does not tolerate"
        return _Refusal(_Kind.TAINTED, text)
    try:
        used = held.used_of(device)
        if not is_enough(device, asked_of(device, request), used):
            return _Refusal(_Kind.CAPACITY, _lack(device, request, used))
        if device.consumed and not (device.is_shared and attempt.is_in_use(device)):
            left = left_of(pool, held, device.consumed)
            if short := next((name for (_, name), amount in left.items() if amount < 0), ""):
                return _Refusal(_Kind.COUNTERS, f"needs more {short} than its card has left")
    except NotKnownError:
        return None
    return None


def _unselected(attempt: Attempt, device: Device, request: Request) -> _Refusal | None:
    of_class = attempt.selection(device, request._replace(selectors=()))
    if not device.is_here:
        return _Refusal(_Kind.ELSEWHERE, "is for other nodes")
    if of_class is Selection.DIFFERS:
        return _Refusal(_Kind.CLASS, f"is not of the class {request.class_name}")
    for expression in (*attempt.classes[request.class_name], *request.selectors):
        short = expression.strip()
        if len(short) > _MAX_EXPRESSION:
            short = f"{short[:_MAX_EXPRESSION]}…"
        match attempt.select(expression, device):
            case Selection.FAILS:
                return _Refusal(_Kind.FAILS, f"lacks what a selector reads: {short}")
            case Selection.DIFFERS:
                return _Refusal(_Kind.SELECTOR, f"does not match {short}")
    return None


def _lack(device: Device, request: Request, used: Mapping[str, int]) -> str:
    for name in request.capacity:
        if name not in device.amounts:
            return f"has no {name} to give"
    for name, capacity in device.amounts.items():
        asked, total = request.capacity.get(name), total_of(capacity)
        given = amount_given(device, capacity, asked)
        if given is None:
            return f"does not give {asked or total} of {name}, by its requestPolicy"
        if given + used.get(name, 0) > nano_of(total):
            rest = ", of which others have some," if used.get(name) else ""
            wanted = f"{asked} is asked" if asked else f"a claim takes {amount_text(name, given)}"
            if asked and given != nano_of(asked):
                wanted += f", for which a claim takes {amount_text(name, given)}"
            return f"has {total} of {name}{rest} and {wanted}"
    return "has no more to share"


def _together(attempt: Attempt) -> Shortage:
    """Devices that are free one by one, and do not meet all requests together."""
    labels = some(list(dict.fromkeys(filter(None, (claim.label for claim in attempt.claims)))))
    reason = "enough devices are free one by one, and no choice of them meets all requests together"
    reasons = [f"{f'its {labels}: ' if labels else ''}{reason}"]
    for claim in attempt.claims:
        for constraint in claim.constraints:
            how = "different values" if constraint.is_distinct else "the same value"
            reasons.append(f"the {claim.label} wants devices with {how} of {constraint.attribute}")
    remedy = "ask for fewer devices" + (", or leave a constraint out" if len(reasons) > 1 else "")
    return Shortage("; ".join(reasons), tuple(reasons), remedy)
