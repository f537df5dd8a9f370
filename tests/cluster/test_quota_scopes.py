"""The pods that the scopes of quotas count: the rule agrees with API servers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.gpu.quotas import DEVICE_CLASS_KEY_SUFFIX, PodChoices, uncounted_pods
from rules.inventory.inventory import QuotaScope, ResourceQuota
from rules.profile.context import Context
from rules.profile.profile import Profile
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.dry_runs import ACCEPTED, minor_version

KEY = "requests.nvidia.com/gpu"
HIGH, LOW = "system-cluster-critical", "system-node-critical"
OK = 200
LONGEST_DEADLINE = 2**31 - 1


def priority_class(operator: str, *values: str) -> dict[str, Any]:
    asked = {"scopeName": "PriorityClass", "operator": operator}
    return {
        "scopeSelector": {"matchExpressions": [asked | ({"values": [*values]} if values else {})]}
    }


SPECS: dict[str, list[dict[str, Any]]] = {
    "not-terminating": [{"scopes": ["NotTerminating"]}],
    "terminating": [{"scopes": ["Terminating"]}],
    "not-best-effort": [{"scopes": ["NotBestEffort"]}],
    "best-effort": [{"scopes": ["BestEffort"]}],
    "cross-namespace": [{"scopes": ["CrossNamespacePodAffinity"]}],
    "in": [priority_class("In", HIGH)],
    "not-in": [priority_class("NotIn", HIGH)],
    "exists": [priority_class("Exists")],
    "does-not-exist": [priority_class("DoesNotExist")],
    "both": [{"scopes": ["NotTerminating"], **priority_class("In", HIGH)}],
    "pair": [{"scopes": ["NotTerminating"]}, {"scopes": ["Terminating"]}],
    "uneven": [{"scopes": ["NotTerminating"]}, {"scopes": ["Terminating", "NotBestEffort"]}],
    "volumes": [{"scopes": ["VolumeAttributesClass"]}],
}
VOLUMES_SINCE = 34
"""The minor version of Kubernetes in which quotas got the scope VolumeAttributesClass."""


def pod_with(choices: PodChoices, namespace: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"limits": {"nvidia.com/gpu": "1"}}
    # A request of zero is none: a quota on CPU, which demands one, does not prevent it.
    asked["requests"] = {"cpu": "0" if choices.is_best_effort else "1"}
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["elsewhere"]}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made = pod(
        container("main", resources=asked),
        **({"activeDeadlineSeconds": LONGEST_DEADLINE} if choices.has_deadline else {}),
        **({"affinity": near} if choices.crosses_namespaces else {}),
        **({"priorityClassName": choices.priority_class} if choices.priority_class else {}),
    )
    made["metadata"]["namespace"] = namespace
    return made


@pytest.mark.parametrize("name", SPECS)
def test_a_pod_of_the_gap_is_admitted_and_all_are_refused_without_a_gap(
    plane: ControlPlane, name: str
) -> None:
    namespace = plane.namespace()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    for number, spec in enumerate(SPECS[name]):
        quota = {"metadata": {"name": f"q{number}"}, "spec": {"hard": {KEY: "0"}, **spec}}
        answered = plane.request("POST", path, quota)
        if name == "volumes" and minor_version(plane) < VOLUMES_SINCE:
            assert "unsupported scope" in answered.body["message"]
            pytest.skip("this Kubernetes has no scope of volumes")
        assert answered.status == ACCEPTED, answered
    await_quotas(plane, namespace)
    scopes = scopes_of(SPECS[name])
    every = [PodChoices._make(chosen) for chosen in product(*3 * [(False, True)], ("", HIGH, LOW))]
    pods_path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    answers = [plane.request("POST", pods_path, pod_with(choices, namespace)) for choices in every]
    admitted = {p for p, answer in zip(every, answers, strict=True) if answer.status == ACCEPTED}
    refused = {answer.body["message"] for answer in answers if answer.status != ACCEPTED}
    assert all("exceeded quota" in message for message in refused), refused
    gap = uncounted_pods(scopes)
    if gap is None:
        assert not admitted
        return
    chosen = gap.choices
    if chosen.priority_class == "OTHER":
        chosen = chosen._replace(priority_class=LOW)
    inside = {p for p in every if all(w in {None, h} for w, h in zip(chosen, p, strict=True))}
    assert inside, gap
    assert inside <= admitted
    # No choice less is enough.
    for field in (field for field, value in chosen._asdict().items() if value is not None):
        fewer = chosen._replace(**{field: None})
        wider = {p for p in every if all(w in {None, h} for w, h in zip(fewer, p, strict=True))}
        assert not wider <= admitted, field


@pytest.mark.parametrize("scopes", [[], ["NotTerminating"]], ids=["none", "not-terminating"])
def test_a_quota_with_scopes_counts_no_claim(plane: ControlPlane, scopes: list[str]) -> None:
    if plane.request("GET", "/apis/resource.k8s.io/v1").status != OK:
        pytest.skip("this Kubernetes does not serve claims for devices by default")
    namespace = plane.namespace()
    keys = ("count/resourceclaims.resource.k8s.io", f"gpu.example.com{DEVICE_CLASS_KEY_SUFFIX}")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": dict.fromkeys(keys, "0"), **({"scopes": scopes} if scopes else {})},
    }
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    plane.create(path, quota)
    await_quotas(plane, namespace)
    exactly = {"deviceClassName": "gpu.example.com"}
    claim = {
        "metadata": {"name": "card"},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}},
    }
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims?dryRun=All"
    is_created = plane.request("POST", claims, claim).status == ACCEPTED
    found = check(quota, default_policy().rule_set(), Context(TODAY)).findings
    inert = {f.path[-1] for f in found if f.rule == "quota-inert-key"}
    assert (is_created, inert) == (bool(scopes), {*keys} if scopes else set())


def scopes_of(specs: list[dict[str, Any]]) -> list[tuple[QuotaScope, ...]]:
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    quotas = [
        {**kind, "metadata": {"name": f"q{n}", "namespace": "team"}, "spec": {"hard": {}, **spec}}
        for n, spec in enumerate(specs)
    ]
    known = inventory_of(quotas, Profile("p")).all_in(ResourceQuota, "team")
    return [quota.scopes for quota in known.values()]
