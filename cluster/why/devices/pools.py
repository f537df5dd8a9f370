"""The devices that a node can reach, in pools as kube-scheduler gathers them.

Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating`,
`GatherPools`; since 1.36 this allocator decides by default. `features.py` has what others do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.claims import content_of
from cluster.kubernetes_faults import RULE_WITHOUT_SELECTOR
from cluster.source.objects import Object
from cluster.why.devices.features import BINDING, TAINT_RULES, TAINTS, Features
from rules.base.json_values import as_object, as_objects, as_text
from rules.profile.platforms.records import Version

DeviceKey: TypeAlias = tuple[str, str, str]
"""A device is known by its driver, its pool and its name."""
Reaches: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Whether a NodeSelector selects the node that is asked about."""

_READ = frozenset(
    {
        *("name", "attributes", "capacity", "taints", "basic"),
        *("nodeName", "nodeSelector", "allNodes", "bindsToNode", "allowMultipleAllocations"),
        *("consumesCounters", "bindingConditions", "bindingFailureConditions"),
    }
)
_WAITS = "whether its driver makes it ready for the node"


class Device(NamedTuple):
    """A device that a driver offers.

    - `attributes`, `capacity`: as in the slice, by domain and name; `amounts`: the capacity again,
      by name as written.
    - `consumed`: the counters that it draws on, by counter set and name.
    - `is_shared`: several claims may have it at the same time.
    - `is_here`: the node can reach it; its slice may have others.
    - `doubt`: what decides about it and is not read here; empty if nothing does.
    """

    key: DeviceKey
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Any]]
    amounts: Mapping[str, Any]
    taints: tuple[Mapping[str, Any], ...] = ()
    consumed: tuple[Mapping[str, Any], ...] = ()
    is_shared: bool = False
    is_here: bool = True
    doubt: str = ""

    @property
    def driver(self) -> str:
        """The driver that offers it."""
        return self.key[0]

    @property
    def name(self) -> str:
        """Return the name that its driver gives it."""
        return self.key[2]


class Pool(NamedTuple):
    """The devices of one pool that a node can reach, in the order in which they are tried.

    - `slices`: how many ResourceSlices these devices are from.
    - `counters`: the counter sets that its devices share, by name.
    - `others`: its devices in slices that the node cannot reach; they draw on the same counters.
    - `unusable`: why none of its devices is given away; empty if they are. `doubt`: what would have
      to be known to say so.
    - `incomplete`: why no request for all devices gets them; `fatal`: why the search ends here.
    """

    driver: str
    name: str
    devices: tuple[Device, ...] = ()
    counters: Mapping[str, Mapping[str, Any]] = {}
    others: tuple[Device, ...] = ()
    slices: int = 0
    unusable: str = ""
    doubt: str = ""
    incomplete: str = ""
    fatal: str = ""

    @property
    def has_to_wait(self) -> bool:
        """Return whether one of its devices must be made ready for the node."""
        return any(device.doubt == _WAITS for device in self.devices)

    @property
    def label(self) -> str:
        """Its name with that of its driver."""
        return f"{self.name!r} of the driver {self.driver}"


class DevicePools:
    """The pools of a cluster, from its ResourceSlices and DeviceTaintRules."""

    def __init__(
        self,
        slices: Iterable[Object],
        taint_rules: Iterable[Object] = (),
        version: Version | None = None,
        features: Features = Features(),  # noqa: B008  # it cannot be changed
    ) -> None:
        self._features = features
        rules = () if TAINT_RULES in features.off else taint_rules
        self._rules = [*_read_rules(rules, version)]
        self._by_node: dict[str, list[_Slice]] = defaultdict(list)
        self._by_pool: dict[tuple[str, str], list[_Slice]] = defaultdict(list)
        for raw in slices:
            one = _read_slice(raw)
            self._by_pool[one.pool].append(one)
            is_for_all = features.is_before_1_37 and one.spec.get("sharedCounters")
            self._by_node["" if is_for_all else as_text(one.spec.get("nodeName"))].append(one)

    @property
    def are_known(self) -> bool:
        """Return whether there is any ResourceSlice."""
        return bool(self._by_pool)

    def of_node(self, name: str, reaches: Reaches) -> list[Pool]:
        """The pools of which the node `name` can reach something, in the order of the search."""
        newest = self._near(name, reaches)
        found = (self._pool(newest[key], name, reaches) for key in sorted(newest))
        # Devices that must be made ready are tried last.
        return sorted(filter(None, found), key=lambda pool: pool.has_to_wait)

    def are_whole(self, name: str, reaches: Reaches) -> bool:
        """Return whether the node can reach each slice of these pools, and no device is twice."""
        return all(
            len(slices) == slices[0].slices and not _device_twice(slices)
            for slices in self._near(name, reaches).values()
        )

    def _near(self, name: str, reaches: Reaches) -> Mapping[tuple[str, str], list[_Slice]]:
        """The slices that a node can reach, of the newest generation among them, by pool."""
        newest: dict[tuple[str, str], list[_Slice]] = {}
        for one in (*self._by_node.get(name, ()), *self._by_node.get("", ())):
            has_counters = self._features.is_before_1_37 and one.spec.get("sharedCounters")
            if not (has_counters or one.is_for(name, reaches)):
                continue
            known = newest.get(one.pool)
            if known is None or known[0].generation < one.generation:
                newest[one.pool] = [one]
            elif known[0].generation == one.generation:
                known.append(one)
        return newest

    def _pool(self, near: list[_Slice], name: str, reaches: Reaches) -> Pool | None:
        """The pool of which the slices `near` can be reached; None if it is being replaced."""
        driver, pool = near[0].pool
        generation = near[0].generation
        if len({one.slices for one in near}) > 1:  # the scheduler believes any of them
            return Pool(driver, pool, doubt=f"how many ResourceSlices the pool {pool!r} has")
        if self._features.uses_incomplete_pools:
            return self._read_incomplete_pool(near, name, reaches)
        every = near
        if len(near) != near[0].slices:
            listed = self._by_pool[driver, pool]
            if any(one.generation > generation for one in listed):
                return None
            every = [one for one in listed if one.generation == generation]
        if len(every) != near[0].slices:
            why = f"has {len(every)} of its {near[0].slices} ResourceSlices"
            return Pool(driver, pool, unusable=why)
        return self._read_pool(near, every, name, reaches)

    def _read_incomplete_pool(self, near: list[_Slice], name: str, reaches: Reaches) -> Pool:
        """The pool as before Kubernetes 1.35, with the slices that the node can reach."""
        driver, pool = near[0].pool
        if twice := _device_twice(near):
            return Pool(driver, pool, slices=len(near), fatal=f"has the device {twice!r} twice")
        found = self._read_pool(near, near, name, reaches)
        if len(near) == near[0].slices:
            return found
        why = f"has {len(near)} of its {near[0].slices} ResourceSlices on the node"
        return found._replace(incomplete=why)

    def _read_pool(
        self, near: list[_Slice], every: list[_Slice], name: str, reaches: Reaches
    ) -> Pool:
        """The pool with the slices `every`, of which the node can reach those that are `near`."""
        driver, pool = near[0].pool
        listed = [found for one in every for _, found in as_objects(one.spec.get("sharedCounters"))]
        counters = {as_text(one.get("name")): as_object(one.get("counters")) for one in listed}
        if len(counters) < len(listed):
            return Pool(driver, pool, unusable="has a counter set twice")
        offering = [one for one in every if not one.spec.get("sharedCounters")]
        mine = sorted((one for one in offering if one in near), key=lambda one: one.name)
        if twice := _device_twice(mine):
            return Pool(driver, pool, unusable=f"has the device {twice!r} twice")
        devices = [
            self._device(one, raw, is_here=one.has_for(raw, name, reaches))
            for one in mine
            for raw in one.devices
            if BINDING not in self._features.off or not content_of(raw).get("bindingConditions")
        ]
        others = [
            self._device(one, raw, is_here=False)
            for one in offering
            if one not in mine
            for raw in one.devices
        ]
        missing = (_missing_counter(device, counters) for device in (*devices, *others))
        if lacking := next(filter(None, missing), ""):
            return Pool(driver, pool, unusable=f"lacks the counter {lacking!r}")
        return Pool(driver, pool, tuple(devices), counters, tuple(others), len(mine))

    def _device(self, one: _Slice, raw: Mapping[str, Any], *, is_here: bool) -> Device:
        device = _read_device(one, raw, is_here=is_here)
        if TAINTS in self._features.off:
            device = device._replace(taints=())
        rules = [rule for rule in self._rules if rule.is_about(device)]
        if not rules:
            return device
        doubt = next((rule.doubt for rule in rules if rule.doubt), device.doubt)
        taints = tuple(rule.taint for rule in rules if not rule.doubt)
        return device._replace(taints=(*device.taints, *taints), doubt=doubt)


class _TaintRule(NamedTuple):
    """A taint of all devices that a selector is about.

    Without a selector it is about none, and before RULE_WITHOUT_SELECTOR was removed about all.
    """

    selector: Mapping[str, Any] | None
    taint: Mapping[str, Any]
    doubt: str

    def is_about(self, device: Device) -> bool:
        """Return whether it may taint the device; it does if it has no doubt."""
        if self.selector is None:
            return True
        named = zip(("driver", "pool", "device"), device.key, strict=True)
        return all(self.selector.get(field) in (None, name) for field, name in named)


def _read_rules(rules: Iterable[Object], version: Version | None) -> Iterator[_TaintRule]:
    """The rules that may be about devices in this version of Kubernetes, if it is known."""
    is_about_all = RULE_WITHOUT_SELECTOR.affects(version) if version else None
    for raw in rules:
        spec = as_object(raw.get("spec"))
        selector = spec.get("deviceSelector")
        if selector is None and is_about_all is False:
            continue
        name = as_text(as_object(raw.get("metadata")).get("name"))
        others = {*as_object(selector)} - {"driver", "pool", "device"}
        is_unclear = others or (not isinstance(selector, dict) and not is_about_all)
        doubt = f"which devices the DeviceTaintRule {name} is about" if is_unclear else ""
        known = selector if isinstance(selector, dict) else None
        yield _TaintRule(known, as_object(spec.get("taint")), doubt)


class _Slice(NamedTuple):
    name: str
    spec: Mapping[str, Any]
    pool: tuple[str, str]
    generation: int
    slices: int
    devices: tuple[Mapping[str, Any], ...]

    def is_for(self, node: str, reaches: Reaches) -> bool:
        """Return whether the node can reach a device of the slice."""
        if self.spec.get("perDeviceNodeSelection") is True:
            return any(self.has_for(raw, node, reaches) for raw in self.devices)
        return _selects(self.spec, node, reaches)

    def has_for(self, raw: Mapping[str, Any], node: str, reaches: Reaches) -> bool:
        """Return whether a node that can reach the slice can reach its device `raw`."""
        is_each = self.spec.get("perDeviceNodeSelection") is True
        return not is_each or _selects(content_of(raw), node, reaches)


def _selects(selection: Mapping[str, Any], node: str, reaches: Reaches) -> bool:
    if name := as_text(selection.get("nodeName")):
        return name == node
    if selection.get("allNodes") is True:
        return True
    selector = selection.get("nodeSelector")
    return isinstance(selector, dict) and reaches(selector)


def _read_slice(raw: Object) -> _Slice:
    spec = as_object(raw.get("spec"))
    pool = as_object(spec.get("pool"))
    generation, slices = pool.get("generation"), pool.get("resourceSliceCount")
    return _Slice(
        as_text(as_object(raw.get("metadata")).get("name")),
        spec,
        (as_text(spec.get("driver")), as_text(pool.get("name"))),
        generation if isinstance(generation, int) else 0,
        slices if isinstance(slices, int) else 0,
        tuple(found for _, found in as_objects(spec.get("devices"))),
    )


def _device_twice(slices: Iterable[_Slice]) -> str:
    """The name that two devices of a pool have; empty if there is none."""
    names = Counter(as_text(raw.get("name")) for one in slices for raw in one.devices)
    return next((device for device, times in names.items() if times > 1), "")


def _read_device(one: _Slice, raw: Mapping[str, Any], *, is_here: bool) -> Device:
    content = content_of(raw)
    driver, pool = one.pool
    doubt = ""
    unknown = sorted({*raw, *content} - _READ)
    if unknown:
        doubt = f"what its field {unknown[0]} means"
    elif content.get("bindingConditions"):
        doubt = _WAITS
    return Device(
        (driver, pool, as_text(raw.get("name"))),
        _by_domain(content.get("attributes"), driver),
        _by_domain(content.get("capacity"), driver),
        as_object(content.get("capacity")),
        tuple(taint for _, taint in as_objects(content.get("taints"))),
        tuple(drawn for _, drawn in as_objects(content.get("consumesCounters"))),
        content.get("allowMultipleAllocations") is True,
        is_here,
        doubt,
    )


def _by_domain(values: object, driver: str) -> Mapping[str, Mapping[str, Any]]:
    """Attributes or capacity by domain and name; those without a domain are of the driver's."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in as_object(values).items():
        domain, slash, name = key.partition("/")
        if slash:
            found[domain][name] = value
        else:
            found[driver][domain] = value
    return dict(found)


def _missing_counter(device: Device, counters: Mapping[str, Mapping[str, Any]]) -> str:
    """A counter on which a device draws and which its pool lacks; empty if there is none."""
    for drawn in device.consumed:
        counter_set = as_text(drawn.get("counterSet"))
        if counter_set not in counters:
            return counter_set
        for name in as_object(drawn.get("counters")):
            if name not in counters[counter_set]:
                return name
    return ""
