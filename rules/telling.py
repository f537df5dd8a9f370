"""Tells which traits a pod has: from the plain data where it can, else from the view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from rules.container import Container
from rules.devices import NATIVE, Device, device_of
from rules.images import is_cuda_image
from rules.layout import POD_SPEC
from rules.lazy import remembered
from rules.patterns import matches_any
from rules.pod import DEFAULT_SCHEDULER, Pod
from rules.profile import Profile
from rules.quota import Quota
from rules.reading import items, mapping, text
from rules.traits import (
    ADMINISTRATOR,
    CLAIM,
    CUDA_IMAGE,
    DEVICE,
    EPHEMERAL,
    FIELDS,
    FRACTION,
    HOST_PATH,
    KEY,
    KEY_WORDS,
    LOADER,
    LOADER_PREFIX,
    NATIVE_TAINT,
    ODD_AMOUNT,
    QUOTA,
    SCHEDULER,
    SHARE,
    SHARED_CARDS,
    STRANGE,
    TOLERATION,
    VARIABLE,
    VARIABLE_WORDS,
)

_FIELDS = frozenset(FIELDS)
_OF_ROLES = tuple((f, EPHEMERAL if role == "ephemeral" else 0) for (f,), role in POD_SPEC.lists)
_NAME = itemgetter("name")
# Names of variables come from tenants: what is remembered of them must stay bounded.
_REMEMBERED, _LONGEST = 4096, 64


def traits_of(subject: Pod | Quota) -> int:
    """The traits of `subject`, which keeps them."""
    if isinstance(subject, Quota):
        return QUOTA
    if subject.traits is None:
        traits = _of_a_spec(subject.spec) | _of_keys(subject)
        for container in subject.containers:
            traits |= _of_a_container(container)
        subject.traits = traits
    return subject.traits


def traits_at_a_glance(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], profile: Profile
) -> tuple[int, list[int]]:
    """The traits of a plain pod, and those of each of its containers, without a view of it."""
    traits = _of_a_spec(spec) | _of_metadata(metadata, profile)
    told = []
    for field, own in _OF_ROLES:
        for raw in spec.get(field) or ():
            its = own | _of_variables(raw.get("env"), profile) | _of_the_rest(raw)
            resources = raw.get("resources")
            if resources:
                limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
                its |= _of_resources(limits, requests, resources.get("claims"), profile)
            traits |= its
            told.append(its)
    return traits, told


def keep(pod: Pod, traits: int, told: Iterable[int]) -> None:
    """Keep with the view of a pod what a glance has told of it."""
    pod.traits = traits
    for container, its in zip(pod.containers, told, strict=True):
        container.traits = its


def _of_a_spec(spec: Mapping[str, Any]) -> int:
    traits = 0
    for field in _FIELDS.intersection(spec):
        if spec[field]:
            traits |= FIELDS[field]
    scheduler = spec.get("schedulerName")
    if scheduler and scheduler != DEFAULT_SCHEDULER:
        traits |= SCHEDULER
    for _, toleration in items(spec.get("tolerations")):
        if not text(toleration.get("key")).startswith(NATIVE_TAINT):
            traits |= TOLERATION
    for _, volume in items(spec.get("volumes")):
        if "hostPath" in volume:
            traits |= HOST_PATH
    return traits


def _of_keys(pod: Pod) -> int:
    if pod.key_traits is None:
        pod.key_traits = _of_metadata(pod.metadata, pod.profile)
    return pod.key_traits


def _of_metadata(metadata: Mapping[str, Any], profile: Profile) -> int:
    annotations = mapping(metadata.get("annotations"))
    traits = 0 if profile.asking_annotations.isdisjoint(annotations) else FRACTION
    for keys in (annotations, mapping(metadata.get("labels"))):
        for key in keys:
            traits |= _of_a_key(key)
    return traits


@remembered
def _of_a_key(key: str) -> int:
    small = key.lower()
    return KEY if any(word in small for word in KEY_WORDS) else 0


def _of_a_container(container: Container) -> int:
    if container.traits is None:
        raw, profile = container.raw, container.profile
        if container.resource_traits is None:
            asked = container.limits, container.requests, container.claims
            container.resource_traits = _of_resources(*asked, profile)
        if container.variable_traits is None:
            container.variable_traits = _of_variables(raw.get("env"), profile)
        own = container.resource_traits | container.variable_traits | _of_the_rest(raw)
        container.traits = own | EPHEMERAL if container.role == "ephemeral" else own
    return container.traits


def _of_the_rest(raw: Mapping[str, Any]) -> int:
    traits = 0
    sources = raw.get("envFrom")
    if sources and any(source.get("prefix") for _, source in items(sources)):
        traits |= VARIABLE
    if is_cuda_image(text(raw.get("image"))):
        traits |= CUDA_IMAGE
    security = mapping(raw.get("securityContext"))
    if security.get("privileged") is True or mapping(security.get("capabilities")).get("add"):
        traits |= ADMINISTRATOR
    return traits


def _of_resources(
    limits: Mapping[str, Any], requests: Mapping[str, Any], claims: Any, profile: Profile
) -> int:
    traits = CLAIM if claims else 0
    if not (NATIVE.issuperset(limits) and NATIVE.issuperset(requests)):
        for name in {*limits, *requests} - NATIVE:
            traits |= _of_a_resource(name, device_of(name, limits, requests, profile))
    return traits


def _of_a_resource(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(SHARED_CARDS) else 0
    if device is None:
        return traits | STRANGE
    if device.resource.sharing == "share":
        traits |= SHARE
    return traits | DEVICE if device.is_ordinary else traits | DEVICE | ODD_AMOUNT


def _of_variables(env: Any, profile: Profile) -> int:
    traits = 0
    for name in _variables(env):
        known = profile.variable_traits.get(name)
        traits |= _of_a_variable(name, profile) if known is None else known
    return traits


def _variables(env: Any) -> Iterable[str]:
    """The names in `env`; in the usual case at a tenth of what it costs to look at each entry."""
    try:
        return set(map(_NAME, env or ()))
    except (LookupError, TypeError):  # not all are entries with a name
        return {text(entry.get("name")) for _, entry in items(env)}


def _of_a_variable(name: Any, profile: Profile) -> int:
    name = text(name)
    traits = LOADER if name.startswith(LOADER_PREFIX) else 0
    telling = any(word in name for word in VARIABLE_WORDS)
    if telling or matches_any(profile.alternative_variables, name):
        traits |= VARIABLE
    if len(profile.variable_traits) < _REMEMBERED and len(name) <= _LONGEST:
        profile.variable_traits[name] = traits
    return traits
