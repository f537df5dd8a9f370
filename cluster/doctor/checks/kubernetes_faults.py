"""Faults of the running version of Kubernetes, as far as they concern what a cluster uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.accounting.claims import content_of
from cluster.doctor.facts import DoctorFacts, by_name, name_of, server_version
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.kubernetes_faults import (
    CLAIMS_RACE,
    DISTINCT_DEVICES,
    DISTINCT_VALUES,
    EXTENDED_RESOURCES_STAY,
    FAULTS,
    PLUGIN_RACE,
    RULE_WITHOUT_SELECTOR,
    SHARED_COUNTERS,
    KubernetesFault,
)
from cluster.source.objects import CLAIMS, SLICES, TAINT_RULES, Object
from rules.base.claim_requests import alternatives_of
from rules.base.json_values import as_object, as_objects, as_text
from rules.profile.platforms.records import Version

_CHECK = "Kubernetes"
_FILES = "run it against the cluster"
_SERVER = "see whether this works: kubectl get --raw /version"
_OF_EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"
_NUMBERS = 3  # as in 1.37.2
_URL = "https://github.com/kubernetes/kubernetes/pull"


def check_kubernetes_faults(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each known fault of the running version that concerns what the cluster uses.

    Or one row if none does. A cluster that uses nothing of what a fault is about has no row.
    """
    concerned = {fault: names for fault in FAULTS if (names := _USES[fault](facts))}
    if not concerned:
        return
    version = server_version(facts)
    if isinstance(version, Version) and len(version.numbers) < _NUMBERS:
        version = "it says no more than its series"
    if not isinstance(version, Version):
        message = (
            "whether Kubernetes has these faults, which concern what the cluster uses, is not "
            f"known without its version: {version}"
        )
        remedy = _SERVER if facts.request else _FILES
        yield not_known(_CHECK, [*map(str, concerned)], message, remedy)
        return
    shown = ".".join(map(str, version.numbers))
    affecting = {fault: names for fault, names in concerned.items() if fault.affects(version)}
    for fault, names in affecting.items():
        remedy = (
            f"upgrade Kubernetes to {fault.fix_for(version)} or newer; until then "
            f"{fault.instead}: {_URL}/{fault.number}"
        )
        yield wrong(_CHECK, names, f"{fault.effect} ({shown}, {fault})", remedy)
    if not affecting:
        message = f"{shown} has no known fault about devices that concerns what the cluster uses"
        yield ok(_CHECK, "devices", message)


def _claims(facts: DoctorFacts) -> list[str]:
    return [_of_claim(claim) for claim in facts.objects(CLAIMS)]


def _shared_partitions(facts: DoctorFacts) -> list[str]:
    """The slices with devices of several allocations that draw on counters."""
    return [f"resourceslice/{name}" for name, item in _slices(facts) if any(map(_is_both, item))]


def _is_both(device: Mapping[str, Any]) -> bool:
    is_shared = device.get("allowMultipleAllocations") is True
    return is_shared and bool(device.get("consumesCounters"))


def _slices(facts: DoctorFacts) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Each slice with what its devices have."""
    for name, item in by_name(facts.objects(SLICES)):
        devices = as_objects(as_object(item.get("spec")).get("devices"))
        yield name, [content_of(device) for _, device in devices]


def _claims_for_distinct_values(facts: DoctorFacts) -> list[str]:
    return [_of_claim(claim) for claim in facts.objects(CLAIMS) if _wants_distinct_values(claim)]


def _claims_for_distinct_devices(facts: DoctorFacts) -> list[str]:
    """The claims with a request for several devices that differ in an attribute."""
    claims = filter(_wants_distinct_values, facts.objects(CLAIMS))
    return [_of_claim(claim) for claim in claims if any(map(_is_for_several, _requests(claim)))]


def _wants_distinct_values(claim: Object) -> bool:
    constraints = as_objects(_devices_of(claim).get("constraints"))
    return any(one.get("distinctAttribute") for _, one in constraints)


def _devices_of(claim: Object) -> Mapping[str, Any]:
    return as_object(as_object(claim.get("spec")).get("devices"))


def _requests(claim: Object) -> Iterator[Mapping[str, Any]]:
    """The requests of a claim, each alternative as one."""
    for _, request in as_objects(_devices_of(claim).get("requests")):
        yield from alternatives_of(request)


def _is_for_several(request: Mapping[str, Any]) -> bool:
    return request.get("count", 1) != 1 or request.get("allocationMode") == "All"


def _rules_without_selector(facts: DoctorFacts) -> list[str]:
    return [
        f"devicetaintrule/{name}"
        for name, rule in by_name(facts.objects(TAINT_RULES))
        if as_object(rule.get("spec")).get("deviceSelector") is None
    ]


def _claims_for_extended_resources(facts: DoctorFacts) -> list[str]:
    """The claims that kube-scheduler has made for extended resources, if a taint ends pods."""
    taints = [
        as_object(as_object(rule.get("spec")).get("taint")) for rule in facts.objects(TAINT_RULES)
    ]
    for _, devices in _slices(facts):
        taints += [taint for each in devices for _, taint in as_objects(each.get("taints"))]
    if all(taint.get("effect") != "NoExecute" for taint in taints):
        return []
    return [_of_claim(claim) for claim in facts.objects(CLAIMS) if _is_for_resource(claim)]


def _is_for_resource(claim: Object) -> bool:
    annotations = as_object(as_object(claim.get("metadata")).get("annotations"))
    return annotations.get(_OF_EXTENDED_RESOURCE) == "true"


def _of_claim(claim: Object) -> str:
    namespace = as_text(as_object(claim.get("metadata")).get("namespace"))
    return f"resourceclaim/{name_of(claim)} in {namespace}"


def _pods_with_one_device(facts: DoctorFacts) -> list[str]:
    given = facts.usage.given_twice if facts.usage else ()
    pods = (pod for each in given if not each.device.is_of_driver for pod in each.holders)
    return [*dict.fromkeys(f"pod/{pod.name} in {pod.namespace}" for pod in pods)]


_USES: Mapping[KubernetesFault, Callable[[DoctorFacts], list[str]]] = {
    CLAIMS_RACE: _claims,
    SHARED_COUNTERS: _shared_partitions,
    DISTINCT_VALUES: _claims_for_distinct_values,
    DISTINCT_DEVICES: _claims_for_distinct_devices,
    RULE_WITHOUT_SELECTOR: _rules_without_selector,
    EXTENDED_RESOURCES_STAY: _claims_for_extended_resources,
    PLUGIN_RACE: _pods_with_one_device,
}
"""Functions that list the parts of a cluster that a fault concerns."""
