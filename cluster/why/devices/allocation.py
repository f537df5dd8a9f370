"""The search of kube-scheduler's allocator for a node's devices for claims.

Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating`,
whose answers `tests/cluster_commands/test_why_and_device_allocator.py` compares with these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from cluster.source.objects import Object
from cluster.why.devices.capacity import asked_of, is_enough, nano_of
from cluster.why.devices.errors import FatalError, NotKnownError
from cluster.why.devices.features import Features
from cluster.why.devices.pools import Device, DeviceKey, Pool
from cluster.why.devices.requests import MAX_DEVICES, ClaimRequest, Constraint, Request
from cluster.why.devices.selectors import Selection, select
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.bounds import StepLimit

_MAX_STEPS = 20_000
_CHARACTERS_OF_A_STEP = 100
TOO_MANY_CHOICES = "whether one of very many choices of devices does"
_EFFECTS = ("NoSchedule", "NoExecute")
Selectors: TypeAlias = Mapping[str, tuple[str, ...]]
"""The selectors of each DeviceClass that there is."""


class Holdings:
    """The devices that claims have: `holders` of whole devices, and what is used of shared ones.

    Of namespaces that `shows` does not accept no claim is named.
    """

    def __init__(
        self,
        claims: Iterable[Object],
        shows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.holders: dict[DeviceKey, list[str]] = defaultdict(list)
        self.used: dict[DeviceKey, Counter[str]] = {}
        self._unread: set[DeviceKey] = set()
        for raw in claims:
            metadata = as_object(raw.get("metadata"))
            namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
            label = f"claim {namespace}/{name}" if shows(namespace) else "another namespace"
            allocation = as_object(as_object(raw.get("status")).get("allocation"))
            results = as_object(allocation.get("devices")).get("results")
            for _, result in as_objects(results):
                if result.get("adminAccess") is not True:
                    self._add(label, result)

    def _add(self, label: str, result: Mapping[str, Any]) -> None:
        key = tuple(as_text(result.get(name)) for name in ("driver", "pool", "device"))
        driver, pool, device = key
        if result.get("shareID") is None:
            self.holders[driver, pool, device].append(label)
            return
        used = self.used.setdefault((driver, pool, device), Counter())
        try:
            for name, amount in as_object(result.get("consumedCapacity")).items():
                used[name] += nano_of(amount)
        except NotKnownError:
            self._unread.add((driver, pool, device))

    def used_of(self, device: Device) -> Mapping[str, int]:
        """Return what is used of a shared device. Raises NotKnownError."""
        if device.key in self._unread:
            raise NotKnownError(f"how much others have of the device {device.name}")
        return self.used.get(device.key, {})

    def has(self, key: DeviceKey) -> bool:
        """Return whether any claim has the device, or a share of it."""
        return key in self.holders or key in self.used


def untolerated_taint(device: Device, request: Request) -> Mapping[str, Any] | None:
    """The first taint of `device` that keeps it from `request`."""
    return next(
        (
            taint
            for taint in device.taints
            if taint.get("effect") in _EFFECTS
            and not any(_tolerates(toleration, taint) for toleration in request.tolerations)
        ),
        None,
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    for field in ("effect", "key"):
        wanted = as_text(toleration.get(field))
        if wanted and wanted != as_text(taint.get(field)):
            return False
    operator = as_text(toleration.get("operator")) or "Equal"
    same = as_text(toleration.get("value")) == as_text(taint.get("value"))
    return operator == "Exists" or (operator == "Equal" and same)


class Attempt(NamedTuple):
    """The requests to one node. `limit` counts the devices and selectors that are looked at.

    `features` are those of the allocator.
    """

    pools: Sequence[Pool]
    claims: Sequence[ClaimRequest]
    classes: Selectors
    held: Holdings
    limit: StepLimit
    features: Features = Features()

    def selection(self, device: Device, request: Request) -> Selection:
        """Return the answers about `device` of the selectors of class and request, in order."""
        for expression in (*self.classes[request.class_name], *request.selectors):
            found = self.select(expression, device)
            if found is not Selection.MATCHES:
                return found
        return Selection.MATCHES if device.is_here else Selection.DIFFERS

    def select(self, expression: str, device: Device) -> Selection:
        """Return the answer of one selector about `device`. It counts by its length."""
        self.limit.take(1 + len(expression) // _CHARACTERS_OF_A_STEP)
        return select(expression, device)

    def is_in_use(self, device: Device) -> bool:
        """Return whether shares of a device are taken, so that another one draws on no counter."""
        used = self.held.used.get(device.key)
        return bool(used) if self.features.is_before_1_37 else used is not None

    @property
    def has_one_order(self) -> bool:
        """Return whether every release of Kubernetes tries the devices in the same order."""
        return sum(pool.slices for pool in self.pools) <= 1

    @property
    def constrained(self) -> ClaimRequest | None:
        """The first claim that limits all devices by a constraint: one that is not met is fatal."""
        for claim, request in self.requests:
            if request.devices is None and any(one.is_about(request) for one in claim.constraints):
                return claim
        return None

    @property
    def requests(self) -> Iterator[tuple[ClaimRequest, Request]]:
        """Each request with its claim, alternatives included."""
        for claim in self.claims:
            for alternatives in claim.requests:
                for request in alternatives:
                    yield claim, request


class Outcome(NamedTuple):
    """The result of a search: whether a node has the devices, and what may end it before.

    `may_end` is empty if nothing does.
    """

    has_devices: bool
    may_end: str = ""


def try_to_allocate(attempt: Attempt) -> Outcome:
    """Return whether the node has the devices.

    Raises FatalError if the allocator ends its search for all nodes, and NotKnownError.
    """
    _check_meaning(attempt)
    everything = _all_devices(attempt)
    _check_size(attempt, everything)
    could = _Search(attempt, everything, is_strict=False).run()
    strict = _Search(attempt, everything, is_strict=True)
    found, fatal, unread = False, None, None
    try:
        found = strict.run()
    except FatalError as error:
        fatal = error
    except NotKnownError as error:
        unread = error
    is_ordered = attempt.has_one_order or not (could or attempt.constrained)
    is_certain = is_ordered and not strict.doubts
    if fatal is not None and is_certain:
        raise fatal
    may_end = str(fatal or unread or ("" if is_certain else strict.what_may_fail()))
    if not could or (found and not may_end):
        return Outcome(could, may_end)
    if unread is not None:
        raise unread
    if may_end:
        raise NotKnownError(f"in which order the devices are tried: {may_end}", may_end)
    raise NotKnownError(next(iter(strict.doubts), "which of the devices are ready"))


def _check_meaning(attempt: Attempt) -> None:
    """Raise NotKnownError for what is not read here."""
    doubts = [one.doubt for one in attempt.claims] + [one.doubt for _, one in attempt.requests]
    for doubt in filter(None, doubts):
        raise NotKnownError(doubt)
    for pool in attempt.pools:
        if pool.doubt:
            raise NotKnownError(pool.doubt, pool.doubt)


_Everything: TypeAlias = Mapping[tuple[int, str], tuple[tuple[Pool, Device], ...]]
"""The devices of requests for all devices, by the number of the claim and the request's name."""


def _all_devices(attempt: Attempt) -> _Everything:
    found = {}
    for number, claim in enumerate(attempt.claims):
        for alternatives in claim.requests:
            for request in alternatives:
                if request.devices is None:
                    found[number, request.name] = tuple(_each_device(attempt, claim, request))
    return found


def _each_device(
    attempt: Attempt, claim: ClaimRequest, request: Request
) -> Iterator[tuple[Pool, Device]]:
    what = f"the {claim.label} asks for all devices"
    for pool in attempt.pools:
        if why := pool.unusable or pool.incomplete or pool.fatal:
            raise FatalError(f"{what}, and the pool {pool.label} {why}")
        for device in pool.devices:
            chosen = attempt.selection(device, request)
            if chosen is Selection.FAILS:
                raise FatalError(failure_text(device, request))
            if chosen is Selection.NOT_KNOWN:
                raise NotKnownError(unread_text(request), unread_text(request))
            if chosen is Selection.MATCHES:
                is_old = attempt.features.is_before_1_37
                used = attempt.held.used_of(device) if is_old else {}
                if is_enough(device, asked_of(device, request), used):
                    yield pool, device


def failure_text(device: Device, request: Request) -> str:
    """That a selector cannot be evaluated for a device."""
    return f"a selector of the request {request.name} fails for the device {device.name}"


def fatal_text(pool: Pool) -> str:
    """That the search ends at a pool."""
    return f"the pool {pool.label} {pool.fatal}"


def unread_text(request: Request) -> str:
    """That a selector is not evaluated here."""
    return f"which devices the selectors of its request {request.name} choose"


def _check_size(attempt: Attempt, everything: _Everything) -> None:
    for number, claim in enumerate(attempt.claims):
        least = most = 0
        for alternatives in claim.requests:
            counts = [
                len(everything[number, one.name]) if one.devices is None else one.devices
                for one in alternatives
            ]
            least, most = least + min(counts, default=0), most + max(counts, default=0)
        if least > MAX_DEVICES:
            raise FatalError(
                f"the {claim.label} asks for {least} devices, and {MAX_DEVICES} is the most"
            )
        if most > MAX_DEVICES:
            raise NotKnownError(f"which alternatives its {claim.label} has room for")


class _Search:
    """Tries devices one after the other.

    A strict search ends like the allocator where that ends, and gives away nothing that is in
    doubt. The other one goes on: if it finds nothing, there is nothing.
    """

    def __init__(self, attempt: Attempt, everything: _Everything, *, is_strict: bool) -> None:
        self._attempt, self._everything, self._is_strict = attempt, everything, is_strict
        self._chosen: dict[tuple[DeviceKey, int, str], Selection] = {}
        self._taking: dict[DeviceKey, set[int]] = defaultdict(set)
        self._sharing: dict[DeviceKey, Counter[str]] = {}
        self._sharers: Counter[DeviceKey] = Counter()
        self._drawn: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        self._left: dict[tuple[str, str], Mapping[tuple[str, str], int]] = {}
        self._values: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._steps = 0
        self.doubts: dict[str, None] = {}

    def run(self) -> bool:
        """Return whether there are devices for all claims."""
        return self._claim(0)

    def what_may_fail(self) -> str:
        """Return what would end the search with other devices first; empty if nothing would."""
        if claim := self._attempt.constrained:
            return f"the {claim.label} has constraints on all devices"
        if pool := next((each for each in self._attempt.pools if each.fatal), None):
            return fatal_text(pool)
        for _, request in self._attempt.requests:
            for pool in self._attempt.pools:
                for device in () if pool.unusable else pool.devices:
                    if not request.is_admin and device.key in self._attempt.held.holders:
                        continue
                    chosen = self._attempt.selection(device, request)
                    if chosen is Selection.FAILS:
                        return failure_text(device, request)
                    if chosen is Selection.NOT_KNOWN:
                        return unread_text(request)
        return ""

    def _claim(self, number: int) -> bool:
        if number == len(self._attempt.claims):
            return True
        return self._request(number, 0)

    def _request(self, claim: int, number: int) -> bool:
        requests = self._attempt.claims[claim].requests
        if number == len(requests):
            return self._claim(claim + 1)
        return any(self._alternative(claim, number, request) for request in requests[number])

    def _alternative(self, claim: int, number: int, request: Request) -> bool:
        if request.devices is not None:
            return self._devices(claim, number, request, request.devices, 0)
        every = self._everything[claim, request.name]
        return bool(every) and self._every(claim, number, request, every)

    def _every(
        self, claim: int, number: int, request: Request, left: Sequence[tuple[Pool, Device]]
    ) -> bool:
        if not left:
            return self._request(claim, number + 1)
        (pool, device), *others = left
        with self._given(claim, request, pool, device, must=True) as is_given:
            return is_given and self._every(claim, number, request, others)

    def _devices(self, claim: int, number: int, request: Request, count: int, start: int) -> bool:
        if count <= 0:
            return self._request(claim, number + 1)
        for place, (pool, device) in enumerate(self._listed):
            self._attempt.limit.take(1)
            if place < start or not self._is_selected(claim, request, device):
                continue
            with self._given(claim, request, pool, device) as is_given:
                if is_given and self._devices(claim, number, request, count - 1, place + 1):
                    return True
        return False

    @property
    def _listed(self) -> Iterator[tuple[Pool, Device]]:
        for pool in self._attempt.pools:
            if pool.fatal and self._is_strict:
                raise FatalError(fatal_text(pool))
            for device in () if pool.unusable else pool.devices:
                yield pool, device

    def _is_selected(self, claim: int, request: Request, device: Device) -> bool:
        if self._is_taken(claim, request, device):
            return False
        key = device.key, claim, request.name
        if key not in self._chosen:
            self._chosen[key] = self._attempt.selection(device, request)
        chosen = self._chosen[key]
        if self._is_strict and chosen is Selection.FAILS:
            raise FatalError(failure_text(device, request))
        if self._is_strict and chosen is Selection.NOT_KNOWN:
            raise NotKnownError(unread_text(request), unread_text(request))
        return chosen in {Selection.MATCHES, Selection.NOT_KNOWN}

    def _is_taken(self, claim: int, request: Request, device: Device) -> bool:
        taking = self._taking[device.key]
        if request.is_admin:
            return claim in taking
        return bool(taking) or device.key in self._attempt.held.holders

    @contextmanager
    def _given(
        self, claim: int, request: Request, pool: Pool, device: Device, *, must: bool = False
    ) -> Iterator[bool]:
        """Give the device to the request, until the end of the block, if nothing is against it."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise NotKnownError(TOO_MANY_CHOICES)
        asked = self._amounts(request, device)
        is_in_use = self._sharers[device.key] or self._attempt.is_in_use(device)
        draws = () if device.is_shared and is_in_use else device.consumed
        if (
            (asked is None and not must)
            or self._is_taken(claim, request, device)
            or not self._has_counters(pool, draws)
            or untolerated_taint(device, request)
        ):
            yield False
            return
        added = self._constrain(claim, request, device)
        if added is None:
            if must and self._is_strict:
                raise FatalError(f"a constraint keeps the device {device.name} from a request")
            yield False
            return
        if asked is None:
            self._release(added)
            yield False
            return
        self._mark(claim, device, asked, 1)
        self._draw(pool, draws, 1)
        try:
            yield True
        finally:
            self._draw(pool, draws, -1)
            self._mark(claim, device, asked, -1)
            self._release(added)

    def _release(self, added: Iterable[tuple[int, int]]) -> None:
        for key in added:
            self._values[key].pop()

    def _amounts(self, request: Request, device: Device) -> Mapping[str, int] | None:
        """Return the request's amounts of the device; None if they are too much, or in doubt."""
        if device.doubt:
            self.doubts[device.doubt] = None
            if self._is_strict:
                return None
        try:
            asked = asked_of(device, request)
            used = Counter(self._attempt.held.used_of(device))
            used.update(self._sharing.get(device.key, {}))
            return asked if is_enough(device, asked, used) else None
        except NotKnownError as error:
            self.doubts[str(error)] = None
            return None if self._is_strict else {}

    def _mark(self, claim: int, device: Device, asked: Mapping[str, int], sign: int) -> None:
        if device.is_shared:
            self._sharers[device.key] += sign
            shared = self._sharing.setdefault(device.key, Counter())
            for name, amount in asked.items():
                shared[name] += sign * amount
        elif sign > 0:
            self._taking[device.key].add(claim)
        else:
            self._taking[device.key].discard(claim)

    def _has_counters(self, pool: Pool, draws: Sequence[Mapping[str, Any]]) -> bool:
        if not draws:
            return True
        key = pool.driver, pool.name
        if key not in self._left:
            self._left[key] = left_of(pool, self._attempt.held)
        drawn = Counter(self._drawn[key])
        drawn.update(_amounts_of(draws))
        return all(drawn[counter] <= left for counter, left in self._left[key].items())

    def _draw(self, pool: Pool, draws: Sequence[Mapping[str, Any]], sign: int) -> None:
        drawn = self._drawn[pool.driver, pool.name]
        for counter, amount in _amounts_of(draws).items():
            drawn[counter] += sign * amount

    def _constrain(
        self, claim: int, request: Request, device: Device
    ) -> list[tuple[int, int]] | None:
        """The constraints to which the device is added; None if it does not meet one of them."""
        added: list[tuple[int, int]] = []
        for number, constraint in enumerate(self._attempt.claims[claim].constraints):
            if not constraint.is_about(request):
                continue
            key = claim, number
            value = attribute_of(device, constraint)
            others = self._values[key]
            is_met = (
                value not in others
                if constraint.is_distinct
                else all(value == other for other in others)
            )
            if value is None or not is_met:
                self._release(added)
                return None
            others.append(value)
            added.append(key)
        return added


def attribute_of(device: Device, constraint: Constraint) -> tuple[str, Any] | None:
    """The type and value of the attribute that a constraint is about; None if there is none."""
    domain, _, name = constraint.attribute.partition("/")
    found = as_object(device.attributes.get(domain, {}).get(name))
    for kind in ("string", "int", "bool", "version"):
        if kind in found:
            return kind, found[kind]
    if found:
        raise NotKnownError(f"how the lists of the attribute {constraint.attribute} compare")
    return None


def _amounts_of(draws: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for drawn in draws:
        for name, counter in as_object(drawn.get("counters")).items():
            found[as_text(drawn.get("counterSet")), name] += nano_of(
                as_object(counter).get("value")
            )
    return found


def left_of(
    pool: Pool, held: Holdings, draws: Iterable[Mapping[str, Any]] = ()
) -> Mapping[tuple[str, str], int]:
    """Return what claims leave of each counter, without `draws`; negative if they take too much."""
    left = Counter(
        {
            (counter_set, name): nano_of(as_object(counter).get("value"))
            for counter_set, counters in pool.counters.items()
            for name, counter in counters.items()
        }
    )
    left.subtract(_amounts_of(draws))
    for device in (*pool.devices, *pool.others):
        if held.has(device.key):
            left.subtract(_amounts_of(device.consumed))
    return left
