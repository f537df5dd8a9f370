"""The devices, parts of GPUs and capabilities that containers request, in CEL.

Twins of `rules.gpu.devices`, of `Pod._fraction_target` and of `Container.added_capabilities`.
"""

from collections.abc import Iterator, Mapping

from rules.gpu.devices import DEVICE_CLASS_PREFIX, NO_GPU_PATTERN, RDMA_PATTERN
from rules.gpu.visibility import NVIDIA_VISIBLE_DEVICES
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    concat,
    entry,
    expression,
    get,
    is_in,
    let,
    not_,
    record,
    string,
    text,
)
from rules.in_process.images import parts_of_image
from rules.in_process.patterns import regex_of, stem_of
from rules.in_process.statement import CONTAINER, shown
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.profile.profile import Fraction, Profile


def resource_facts(profile: Profile) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the profile's facts about each resource, with the resource's name."""
    for name_, resource in profile.resources.items():
        yield (
            name_,
            {
                "name": name_,
                "vendor": resource.vendor,
                "sharing": resource.sharing,
                "part": "" if resource.unit == "device" else "part",
                "exclusive": "exclusive" if resource.exclusive else "",
                **({"pattern": regex_of(name_), "prefix": stem_of(name_)} if "*" in name_ else {}),
            },
        )


def _givers(fraction: Fraction, profile: Profile) -> list[str]:
    """Return the schedulers that give a fraction; none if any does."""
    givers = [
        s for s in profile.schedulers if not set(s.annotations).isdisjoint(fraction.annotations)
    ]
    return sorted({word for s in givers for word in (s.name, *s.alternatives)})


def fraction_target(profile: Profile) -> Expression:
    """`Pod._fraction_target`: the name of the container that annotations ask for; else empty."""
    found = expression("")
    for fraction in reversed(profile.fractions):
        first = OBJECT.base.filter(lambda b: b.role == "app")[0].raw.name
        target = first
        if fraction.target:
            target = _named_container(entry(OBJECT.annotations, fraction.target, ""), first)
        found = choose((_grants_fraction(fraction, profile), target), otherwise=found)
    return found


def _named_container(word: Expression, otherwise: Expression) -> Expression:
    is_there = OBJECT.base.exists(lambda b: all_of(b.role != "ephemeral", b.raw.name == word))
    return choose((is_there, word), otherwise=otherwise)


def fraction_resources(profile: Profile) -> Expression:
    """Return the resources of the nodes with the parts of GPUs that annotations ask for."""
    found = [
        choose((_grants_resource(fraction, profile), [fraction.resource]), otherwise=[])
        for fraction in profile.fractions
        if fraction.resource
    ]
    return concat(found)


def _grants_resource(fraction: Fraction, profile: Profile) -> Expression:
    """Return whether the pod gets a fraction and `Fraction.resource_for` it is not empty."""
    needed = fraction.resource_annotations.items()
    vendor = entry(OBJECT.annotations, fraction.vendor_annotation, "").lowerAscii()
    return all_of(
        _grants_fraction(fraction, profile),
        *([is_in(vendor, ["", fraction.vendor])] if fraction.vendor_annotation else []),
        *([any_of(*(entry(OBJECT.annotations, k, "") == v for k, v in needed))] if needed else []),
    )


def _grants_fraction(fraction: Fraction, profile: Profile) -> Expression:
    """`Profile.grants_fraction` of the pod."""
    asks = any_of(*(is_in(key, OBJECT.annotations) for key in fraction.annotations))
    givers = _givers(fraction, profile)
    scheduler = get(OBJECT.spec, "schedulerName", DEFAULT_SCHEDULER)
    return all_of(asks, is_in(scheduler, givers)) if givers else asks


def requesting() -> Expression:
    """Return for each container its GPU resources, each with its facts, and `parts_of_image`."""

    def names_of(b: Expression) -> Expression:
        limits = get(b.raw, "resources.limits", {})
        requests = get(b.raw, "resources.requests", {})
        limited = limits.filter(lambda n: all_of(n.contains("/"), limits[n] != "0"))
        return limited + requests.filter(
            lambda n: all_of(n.contains("/"), requests[n] != "0", entry(limits, n, "0") == "0")
        )

    def devices_of(b: Expression) -> Expression:
        devices = let(
            names_of(b),
            lambda names: names.map(lambda n: record(name=n, facts=facts_of(n))),
        )
        return devices.filter(lambda d: d.facts.size() > 0)

    containers = OBJECT.base.map(
        lambda b: record(
            b=b, devices=devices_of(b), imageParts=parts_of_image(get(b.raw, "image", ""))
        )
    )
    return choose((OBJECT.tooLarge, []), otherwise=containers)


def facts_of(name: Expression) -> Expression:
    """Return a list with the facts about the resource `name`; empty if none is known."""
    fitting = POLICY.resourcePatterns.filter(lambda p: fits(name, p))
    return choose((is_in(name, POLICY.resources), [POLICY.resources[name]]), otherwise=fitting)


def fits(name: Expression, pattern: Expression) -> Expression:
    """Return whether `name` fits `pattern`, which has the `prefix` of all names that do."""
    return all_of(name.startsWith(pattern.prefix), name.matches(pattern.pattern))


def may_be_given_by_variable(container: Expression = CONTAINER) -> Expression:
    """`may_be_given_by_variable` of `container`."""

    def is_of_nvidia(d: Expression) -> Expression:
        vendors = POLICY.visible[NVIDIA_VISIBLE_DEVICES].vendors
        return all_of(not_(is_class(d.name)), is_in(d.facts[0].vendor, vendors))

    return choose(
        (not_(is_in(NVIDIA_VISIBLE_DEVICES, POLICY.visible)), container.fromPlugin),
        otherwise=any_of(container.isTarget, container.devices.exists(is_of_nvidia)),
    )


def is_class(name: Expression) -> Expression:
    """Return whether `name` is that of a device class as a resource."""
    return name.startsWith(DEVICE_CLASS_PREFIX)


def unknown_devices() -> Expression:
    """Return the names that `name_of_unknown_device` of the container chooses from."""
    limits = get(CONTAINER.raw, "resources.limits", {})
    requests = get(CONTAINER.raw, "resources.requests", {})

    def may_be_gpu(n: Expression) -> Expression:
        return all_of(
            n.contains("/"),
            not_(is_in(n, POLICY.resources)),
            not_(POLICY.resourcePatterns.exists(lambda p: fits(n, p))),
            not_(n.lowerAscii().matches(RDMA_PATTERN)),
            not_(n.lowerAscii().matches(NO_GPU_PATTERN)),
        )

    named = limits.filter(lambda n: limits[n] != "0") + requests.filter(
        lambda n: requests[n] != "0"
    )
    return named.filter(may_be_gpu).map(lambda n: string(n))


def describe_request() -> Expression:
    """`describe_request` of the container."""
    unknown = let(
        unknown_devices(),
        lambda names: choose(
            (names.size() == 0, "asks for no GPU"),
            otherwise=text(f"asks for {shown(names.min())} (perhaps a GPU)"),
        ),
    )
    return choose((CONTAINER.requestsGpu, string(CONTAINER.request)), otherwise=unknown)


def added_capabilities(container: Expression) -> Expression:
    """`Container.added_capabilities` of `container`, as it was written, without the indices.

    Runtimes write names in upper case as Unicode has it, where two more letters become I and S;
    CEL knows only ASCII.
    """
    written = get(container, "securityContext.capabilities.add", [])
    in_capitals = written.map(
        lambda x: x.replace("\u0131", "I").replace("\u017f", "S").upperAscii()
    )
    return in_capitals.map(lambda x: choose((x.startsWith("CAP_"), x.substring(4)), otherwise=x))
