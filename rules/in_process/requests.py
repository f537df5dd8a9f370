"""Twins of `rules.gpu.devices` and of `Pod._fraction_target`: what containers request, in CEL."""

from collections.abc import Iterator, Mapping

from rules.gpu.devices import DEVICE_CLASS_PREFIX, NO_GPU, RDMA_PATTERN
from rules.in_process.patterns import regex_of, stem_of
from rules.in_process.statement import any_of, cel, shown
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.profile.profile import Fraction, Profile


def resource_facts(profile: Profile) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the profile's facts about each resource, with the resource's name."""
    for name, resource in profile.resources.items():
        yield (
            name,
            {
                "name": name,
                "vendor": resource.vendor,
                "sharing": resource.sharing,
                "part": "" if resource.unit == "device" else "part",
                "exclusive": "exclusive" if resource.exclusive else "",
                **({"pattern": regex_of(name), "prefix": stem_of(name)} if "*" in name else {}),
            },
        )


def _givers(fraction: Fraction, profile: Profile) -> list[str]:
    """The schedulers that give a fraction; empty if any does."""
    givers = [
        s for s in profile.schedulers if not set(s.annotations).isdisjoint(fraction.annotations)
    ]
    return sorted({name for s in givers for name in (s.name, *s.alternatives)})


def fraction_target(profile: Profile) -> str:
    """`Pod._fraction_target`: the name of the container that annotations ask for; else empty."""
    text = '""'
    for fraction in reversed(profile.fractions):
        first = '$base.filter(b, b.role == "app")[0].raw.name'
        target = first
        if fraction.target:
            name = f'$annotations[?{cel(fraction.target)}].orValue("")'
            named = f'$base.exists(b, b.role != "ephemeral" && b.raw.name == {name})'
            target = f"({named} ? {name} : {first})"
        text = f"{_grants_fraction(fraction, profile)} ? {target} : ({text})"
    return text


def fraction_resources(profile: Profile) -> str:
    """The resources of the nodes with the parts of GPUs that annotations ask for."""
    texts = (
        f"({_grants_fraction(fraction, profile)} ? [{cel(fraction.resource)}] : [])"
        for fraction in profile.fractions
        if fraction.resource
    )
    return " + ".join(texts) or "[]"


def _grants_fraction(fraction: Fraction, profile: Profile) -> str:
    """`Profile.grants_fraction` of the pod."""
    asks = any_of(f"{cel(key)} in $annotations" for key in fraction.annotations)
    names = _givers(fraction, profile)
    scheduler = f"$spec.?schedulerName.orValue({cel(DEFAULT_SCHEDULER)})"
    return f"({asks})" + (f" && {scheduler} in {cel(names)}" if names else "")


def requesting() -> str:
    """For each container the GPU resources that it requests, each with its facts."""
    limits = "b.raw.?resources.?limits.orValue({})"
    requests = "b.raw.?resources.?requests.orValue({})"
    names = (
        f'{limits}.filter(n, n.contains("/") && {limits}[n] != "0")'
        f' + {requests}.filter(n, n.contains("/") && {requests}[n] != "0"'
        f' && {limits}[?n].orValue("0") == "0")'
    )
    return (
        '$tooLarge ? [] : $base.map(b, {"b": dyn(b), "devices": dyn('
        f"[{names}].map(names, names.map(n, {{"
        f'"name": dyn(n), "facts": dyn({facts_of("n")})}}))[0].filter(d, d.facts.size() > 0)'
        ")})"
    )


def facts_of(name: str) -> str:
    """A list with the facts about the resource with the CEL `name`; empty if none is known."""
    return (
        f"({name} in variables.resources ? [variables.resources[{name}]]"
        " : variables.resourcePatterns"
        f".filter(p, {name}.startsWith(p.prefix) && {name}.matches(p.pattern)))"
    )


def is_class(name: str) -> str:
    """Return, as CEL, whether `name` is that of a device class as a resource."""
    return f"{name}.startsWith({cel(DEVICE_CLASS_PREFIX)})"


def unknown_devices() -> str:
    """The names that `name_of_unknown_device` of the container `c` chooses from."""
    limits = "c.raw.?resources.?limits.orValue({})"
    requests = "c.raw.?resources.?requests.orValue({})"
    return (
        f'({limits}.filter(n, {limits}[n] != "0") + {requests}.filter(n, {requests}[n] != "0"))'
        '.filter(n, n.contains("/") && !(n in variables.resources)'
        " && !variables.resourcePatterns.exists(p, n.startsWith(p.prefix) && n.matches(p.pattern))"
        f" && !n.lowerAscii().matches({cel(RDMA_PATTERN.pattern)})"
        f" && !n.lowerAscii().matches({cel(NO_GPU.pattern)})).map(n, string(n))"
    )


def describe_request() -> str:
    """`describe_request` of the container `c`."""
    first = shown("names.min()")
    return (
        f"(c.requestsGpu ? string(c.request) : [{unknown_devices()}].map(names, names.size() == 0"
        f' ? "asks for no GPU" : "asks for " + {first} + " (perhaps a GPU)")[0])'
    )
