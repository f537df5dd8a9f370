"""`gpuward why` names what is against each device that a pod could have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.source.files import FileSource
from cluster.why.devices.allocator import DeviceAllocator
from cluster.why.explanation import Answer, Explanation, Namespace, explain
from cluster.why.nodes import read_node
from rules.profile.platforms.records import parse_version
from tests.testkit.why_command import CAN, CANNOT, GPU, NOT_KNOWN, Asked, node, pod

DRIVER = "gpu.nvidia.com"
API = {"apiVersion": "resource.k8s.io/v1"}


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def device_class(*expressions: str, **spec: Any) -> dict[str, Any]:
    selectors = [
        {"cel": {"expression": one}} for one in expressions or (f"device.driver == '{DRIVER}'",)
    ]
    spec = {"selectors": selectors, **spec}
    return {**API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}


def device(name: str, model: str = "L40S", **content: Any) -> dict[str, Any]:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": model}}
    capacity = {"memory": {"value": "40Gi"}}
    return {"name": name, "attributes": attributes, "capacity": capacity, **content}


def offer(where: str, *devices: dict[str, Any], slices: int = 1, **spec: Any) -> dict[str, Any]:
    """A ResourceSlice of a node."""
    pool = {"name": where, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": where, "pool": pool, "devices": [*devices], **spec}
    return {**API, "kind": "ResourceSlice", "metadata": {"name": f"of-{where}"}, "spec": spec}


def claim(name: str = "k", *, has: tuple[str, ...] = (), **request: Any) -> dict[str, Any]:
    """A claim for one device, or one that has the devices `has`, such as `a/gpu-0`."""
    exactly = {"deviceClassName": DRIVER, **request}
    spec = {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}
    results = [
        {"request": "g", "driver": DRIVER, "pool": pool, "device": found}
        for pool, found in (one.split("/") for one in has)
    ]
    status = {"allocation": {"devices": {"results": results}}} if has else {}
    metadata = {"name": name, "namespace": "ml"}
    return {**API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec, "status": status}


WANTS_K: Any = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "k"}]}


def selects(expression: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": expression}}]}


TAINT = {"key": "nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
PRODUCT = f"device.attributes['{DRIVER}'].productName"


def test_a_free_device_is_enough(why: Asked) -> None:
    status, out = why(
        node("a", 0), device_class(), offer("a", device("gpu-0")), claim(), pod(**WANTS_K), name="p"
    )
    assert (status, "1 node can take it: a" in out) == (CAN, True)


@pytest.mark.parametrize(
    ("devices", "request_for", "reason"),
    [
        (
            [device("gpu-0", taints=[TAINT])],
            {},
            "gpu-0 has the taint nvidia.com/xid=79:NoSchedule, which the request does not tolerate",
        ),
        ([device("gpu-0")], selects(f"{PRODUCT} == 'H100'"), f"gpu-0 does not match {PRODUCT}"),
        ([device("gpu-0")], {"count": 2}, "2 devices of the class gpu.nvidia.com, and only 1 of"),
        (
            [device("gpu-0")],
            {"capacity": {"requests": {"memory": "80Gi"}}},
            "gpu-0 has 40Gi of memory and 80Gi is asked",
        ),
        (
            [device("gpu-0")],
            selects(f"device.attributes['{DRIVER}'].index == 0"),
            "gpu-0 lacks what a selector reads: device.attributes",
        ),
        ([], {}, "1 device of the class gpu.nvidia.com, which the nodes do not offer"),
    ],
    ids=["tainted", "selector", "too few", "capacity", "attribute", "none"],
)
def test_a_device_that_a_claim_cannot_have_says_why(
    why: Asked, devices: list[dict[str, Any]], request_for: dict[str, Any], reason: str
) -> None:
    status, out = why(
        *(node("a", 0), device_class(), offer("a", *devices)),
        *(claim(**request_for), pod(**WANTS_K)),
        name="p",
    )
    assert status == CANNOT
    assert reason in out


def test_a_device_that_another_claim_has_names_that_claim(why: Asked) -> None:
    taken, free = claim("other", has=("a/gpu-0",)), claim()
    objects = (node("a", 0), device_class(), taken, free, pod(**WANTS_K))
    status, out = why(*objects, offer("a", device("gpu-0")), name="p")
    assert status == CANNOT
    assert "taken: gpu-0 (claim ml/other) -> wait until a claim there is deleted" in out
    assert "0/1 nodes are available: 1 cannot allocate all claims." in out
    # A claim with admin access takes nothing.
    taken["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert why(*objects, offer("a", device("gpu-0")), name="p")[0] == CAN


def test_what_is_tolerated_or_administered_is_given(why: Asked) -> None:
    objects = (node("a", 0), device_class(), pod(**WANTS_K))
    tolerated = claim(tolerations=[{"key": "nvidia.com/xid", "operator": "Exists"}])
    assert why(*objects, offer("a", device("gpu-0", taints=[TAINT])), tolerated, name="p")[0] == CAN
    taken, watches = claim("other", has=("a/gpu-0",)), claim(adminAccess=True)
    assert why(*objects, offer("a", device("gpu-0")), taken, watches, name="p")[0] == CAN


def test_a_taint_rule_taints_like_a_driver(why: Asked) -> None:
    rule: Any = {**API, "kind": "DeviceTaintRule", "metadata": {"name": "repair"}}
    rule["spec"] = {"deviceSelector": {"device": "gpu-0"}, "taint": {**TAINT, "key": "repair"}}
    objects = (node("a", 0), device_class(), claim(), pod(**WANTS_K), rule)
    status, out = why(*objects, offer("a", device("gpu-0")), name="p")
    assert (status, "gpu-0 has the taint repair=79:NoSchedule" in out) == (CANNOT, True)
    assert why(*objects, offer("a", device("gpu-0"), device("gpu-1")), name="p")[0] == CAN
    # Before version v1 it may select in ways that are not read.
    rule["spec"]["deviceSelector"] = {"deviceClassName": DRIVER}
    status, out = why(*objects, offer("a", device("gpu-0")), name="p")
    assert (status, "which devices the DeviceTaintRule repair is about" in out) == (NOT_KNOWN, True)


def test_devices_of_other_nodes_and_of_incomplete_pools_are_not_given(why: Asked) -> None:
    objects = (node("a", 0), node("b", 0), device_class(), claim(), pod(**WANTS_K))
    status, out = why(*objects, offer("b", device("gpu-0")), name="p")
    assert (status, "1 node can take it: b" in out) == (CAN, True)
    status, out = why(*objects, offer("b", device("gpu-0"), slices=2), name="p")
    assert (status, "before 1.35, devices of a pool that is not complete" in out) == (
        NOT_KNOWN,
        True,
    )
    # While a driver writes them, two slices may say how many there are, and differ.
    other = offer("b", device("gpu-1"), slices=2)
    other["metadata"]["name"] = "other"
    status, out = why(*objects, offer("b", device("gpu-0")), other, name="p")
    assert (status, "how many ResourceSlices the pool 'b' has" in out) == (NOT_KNOWN, True)
    shared = offer("b", device("gpu-0"), nodeName=None, allNodes=True)
    assert "2 nodes can take it: a, b" in why(*objects, shared, name="p")[1]


def test_a_class_that_does_not_exist_comes_before_any_node(why: Asked) -> None:
    objects = (node("a", 0), device_class(), offer("a", device("gpu-0")), pod(**WANTS_K))
    status, out = why(*objects, claim(deviceClassName="gpu.nvidia.con"), name="p")
    assert status == CANNOT
    assert "Its claim k names the DeviceClass gpu.nvidia.con, which does not exist" in out


def test_a_selector_that_fails_for_one_node_ends_the_search_for_all(why: Asked) -> None:
    reads = claim(**selects(f"device.attributes['{DRIVER}'].index == 0"))
    indexed = device("gpu-0")
    indexed["attributes"]["index"] = {"int": 0}
    objects = (node("a", 0), node("b", 0), device_class(), reads, pod(**WANTS_K))
    status, out = why(*objects, offer("a", device("gpu-0")), offer("b", indexed), name="p")
    assert status == CANNOT
    assert "Kube-scheduler gives up for all nodes as it asks a: a selector" in out
    assert "-> let the selector test by has() that a device has an attribute" in out
    # kube-scheduler does not ask for the devices of a node that another filter refuses before.
    cordoned = {**node("a", 0), "spec": {"unschedulable": True}}
    offers = (offer("a", device("gpu-0")), offer("b", indexed))
    status, out = why(cordoned, *objects[1:], *offers, name="p")
    assert (status, "1 node can take it: b" in out) == (CAN, True)


def test_a_partition_needs_what_is_left_of_its_card(why: Asked) -> None:
    def part(name: str, slices: int) -> dict[str, Any]:
        drawn = {"counterSet": "card", "counters": {"slices": {"value": str(slices)}}}
        return device(name, consumesCounters=[drawn])

    counters = offer("a", sharedCounters=[{"name": "card", "counters": {"slices": {"value": "7"}}}])
    counters = {**counters, "metadata": {"name": "counters"}}
    counters["spec"]["pool"]["resourceSliceCount"] = 2
    parts = offer("a", part("mig-4", 4), part("mig-3", 3), part("gpu", 7), slices=2)
    objects = (node("a", 0), device_class(), counters, parts, pod(**WANTS_K))
    assert why(*objects, claim(), claim("other", has=("a/mig-4",)), name="p")[0] == CAN
    status, out = why(*objects, claim(), claim("other", has=("a/gpu",)), name="p")
    assert status == CANNOT
    assert "taken: gpu (claim ml/other) - mig-4, mig-3 needs more slices than its card has" in out


def test_shares_of_a_device_are_given_until_its_capacity_is_used(why: Asked) -> None:
    shared = offer("a", device("gpu-0", allowMultipleAllocations=True))
    asks = claim(capacity={"requests": {"memory": "20Gi"}})
    objects = (node("a", 0), device_class(), shared, asks, pod(**WANTS_K))
    for used, expected in (("20Gi", CAN), ("30Gi", CANNOT)):
        other = claim("other", has=("a/gpu-0",))
        (result,) = other["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": "s", "consumedCapacity": {"memory": used}}
        status, out = why(*objects, other, name="p")
        assert status == expected
    assert "gpu-0 has 40Gi of memory, of which others have some, and 20Gi is asked" in out


RANGE = {"min": "8Gi", "max": "32Gi", "step": "8Gi"}


@pytest.mark.parametrize(
    ("policy", "asked", "reason"),
    [
        ({"default": "8Gi", "validRange": RANGE}, "17Gi", ""),
        (
            {"default": "8Gi", "validRange": RANGE},
            "25Gi",
            "25Gi is asked, for which a claim takes 32",
        ),
        (
            {"default": "8Gi", "validRange": RANGE},
            "33Gi",
            "does not give 33Gi of memory, by its requestPolicy",
        ),
        ({"default": "20Gi", "validValues": ["10Gi", "20Gi"]}, "1Gi", ""),
        (
            {"default": "20Gi", "validValues": ["10Gi", "20Gi"]},
            "21Gi",
            "does not give 21Gi of memory",
        ),
        ({"default": "10Gi"}, None, ""),
        ({"default": "30Gi"}, None, "and a claim takes 30Gi"),
    ],
)
def test_a_device_gives_its_capacity_in_certain_amounts(
    why: Asked, policy: dict[str, Any], asked: str | None, reason: str
) -> None:
    memory = {"value": "40Gi", "requestPolicy": policy}
    shared = device("gpu-0", allowMultipleAllocations=True, capacity={"memory": memory})
    other = claim("other", has=("a/gpu-0",))
    (result,) = other["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "s", "consumedCapacity": {"memory": "16Gi"}}
    asks = claim(capacity={"requests": {"memory": asked}}) if asked else claim()
    objects = (node("a", 0), device_class(), offer("a", shared), asks, other, pod(**WANTS_K))
    status, out = why(*objects, name="p")
    assert status == (CANNOT if reason else CAN)
    assert reason in out


def test_fractions_of_a_step_are_not_known(why: Asked) -> None:
    """Releases of Kubernetes round them differently."""
    policy = {"default": "1", "validRange": {"min": "1", "step": "500m"}}
    cores = {"cores": {"value": "8", "requestPolicy": policy}}
    shared = offer("a", device("gpu-0", allowMultipleAllocations=True, capacity=cores))
    asks = claim(capacity={"requests": {"cores": "2"}})
    objects = (node("a", 0), device_class(), shared, asks, pod(**WANTS_K))
    status, out = why(*objects, name="p")
    assert status == NOT_KNOWN
    assert "which amounts of its capacity the device gpu-0 gives" in out


def test_constraints_choose_devices_that_go_together(why: Asked) -> None:
    asks = claim(count=2)
    asks["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/productName"}]
    objects = (node("a", 0), device_class(), asks, pod(**WANTS_K))
    same = offer("a", device("gpu-0"), device("gpu-1", "H100"), device("gpu-2"))
    assert why(*objects, same, name="p")[0] == CAN
    status, out = why(*objects, offer("a", device("gpu-0"), device("gpu-1", "H100")), name="p")
    assert status == CANNOT
    assert "no choice of them meets all requests together" in out
    assert "the claim k wants devices with the same value of gpu.nvidia.com/productName" in out


def test_what_a_selector_says_that_is_not_evaluated_is_not_known(why: Asked) -> None:
    loop = claim(**selects(f"device.attributes['{DRIVER}'].exists(k, k == 'type')"))
    objects = (node("a", 0), device_class(), offer("a", device("gpu-0")), loop, pod(**WANTS_K))
    status, out = why(*objects, name="p")
    assert status == NOT_KNOWN
    assert "Not known: which devices the selectors of its request g choose" in out


def test_a_claim_that_a_template_makes_asks_like_another(why: Asked) -> None:
    wants: Any = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    template = claim(**selects(f"{PRODUCT} == 'H100'"))
    template |= {"kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ml"}}
    template["spec"] = {"spec": template["spec"]}
    objects = (node("a", 0), device_class(), offer("a", device("gpu-0")))
    wants["metadata"] = {"uid": ""}
    status, out = why(*objects, template, manifest=pod(**wants))
    assert (status, "its claim gpu asks for 1 device" in out) == (CANNOT, True)
    status, out = why(*objects, manifest=pod(**wants))
    assert (status, "Not known: what its claim gpu asks for" in out) == (NOT_KNOWN, True)


def test_claims_and_templates_of_a_manifest_are_those_of_its_pods(why: Asked) -> None:
    wants: Any = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    by_template = pod(**wants, metadata={"uid": ""})
    by_claim = pod(**WANTS_K, metadata={"uid": ""})
    objects = (node("a", 0), device_class(), offer("a", device("gpu-0")))

    def asked(of: Any, *, product: str, namespace: str = "ml") -> int:
        made = claim(**selects(f"{PRODUCT} == '{product}'"))
        made["metadata"]["namespace"] = namespace
        if of is by_template:
            made |= {"kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}
            made["metadata"] = {"name": "t", "namespace": namespace}
        manifest = {"apiVersion": "v1", "kind": "List", "items": [of, made]}
        return why(*objects, manifest=manifest)[0]

    for of, elsewhere in ((by_template, NOT_KNOWN), (by_claim, CANNOT)):
        assert asked(of, product="L40S") == CAN
        assert asked(of, product="H100") == CANNOT
        assert asked(of, product="L40S", namespace="web") == elsewhere
    # A claim that exists counts as it is.
    taken = claim(has=("a/gpu-0",))
    assert why(*objects, taken, manifest={"kind": "List", "items": [by_claim, claim()]})[0] == CAN


def test_containers_ask_a_class_for_what_runs_at_the_same_time(why: Asked) -> None:
    serves = device_class(extendedResourceName=GPU)
    wanted = pod(limits={GPU: 2})
    (main,) = wanted["spec"]["containers"]
    wanted["spec"]["initContainers"] = [{**main, "name": "first"}]
    two = offer("a", device("gpu-0"), device("gpu-1"))
    assert why(node("a", 0), serves, two, manifest=wanted)[0] == CAN
    wanted["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    status, out = why(node("a", 0), serves, two, manifest=wanted)
    assert status == CANNOT
    assert "the pod asks for 4 nvidia.com/gpu, by the class gpu.nvidia.com, and only 2" in out


def test_the_newest_of_two_classes_serves_a_resource(why: Asked) -> None:
    none = device_class("false", extendedResourceName=GPU)
    none["metadata"] = {"name": "none", "creationTimestamp": "2026-01-01T00:00:00Z"}
    some = device_class(extendedResourceName=GPU)
    for created, expected in (("2025-01-01T00:00:00Z", CANNOT), ("2026-06-01T00:00:00Z", CAN)):
        some["metadata"]["creationTimestamp"] = created
        objects = (node("a", 0), none, some, offer("a", device("gpu-0")))
        assert why(*objects, manifest=pod(limits={GPU: 1}))[0] == expected


def test_nodes_that_refuse_for_the_same_are_one_group(why: Asked) -> None:
    names = [f"n{number}" for number in range(5)]
    offers = [offer(name, device("gpu-0")) for name in names]
    held = [claim(f"c{name}", has=(f"{name}/gpu-0",)) for name in names]
    nodes = [node(name, 0) for name in names]
    objects = (*nodes, device_class(), *offers, *held, claim(), pod(**WANTS_K), node("cpu", 0))
    status, out = why(*objects, name="p")
    assert status == CANNOT
    assert "5 nodes: n0, n1, n2 and 2 more" in out
    assert "on n0, taken: gpu-0 (claim ml/cn0)" in out
    assert "0/6 nodes are available: 6 cannot allocate all claims." in out


def test_claims_of_other_namespaces_have_no_names_for_who_may_not_see_them() -> None:
    others = [claim("secret", has=("a/gpu-0",))]
    allocator = DeviceAllocator(
        *([offer("a", device("gpu-0"))], [device_class()], others), shows=lambda where: where == "x"
    )
    found = explain(
        pod(**WANTS_K),
        [read_node(node("a", 0), None)],
        namespace=Namespace({"k": claim()}),
        devices=lambda: allocator,
    )
    assert "taken: gpu-0 (another namespace)" in found.groups[0].reasons


def explained(version: str, *offers: Any, rules: Any = (), **spec: Any) -> Explanation:
    """Return why a pod with this spec is Pending, in a cluster of a version."""
    known = parse_version(version)
    classes = [device_class(extendedResourceName="example.com/gpu")]
    allocator = DeviceAllocator(offers, classes, [], rules, version=known)
    nodes = [read_node(node("a", 0), None)]
    home = Namespace({"k": claim()})
    return explain(pod(**spec), nodes, namespace=home, devices=lambda: allocator)


def test_a_resource_that_a_class_serves_depends_on_a_feature_before_1_36() -> None:
    asks = {"limits": {"example.com/gpu": 1}}
    for version, unchecked in (("v1.35.3", True), ("v1.36.0", False), ("v1.37.2", False)):
        found = explained(version, offer("a", device("gpu-0")), **asks)
        assert found.fitting == ("a",)
        doubt = "whether the feature gate DRAExtendedResource is on: off by default"
        assert any(one.startswith(doubt) for one in found.unchecked) is unchecked


def test_rules_that_taint_devices_depend_on_a_feature_before_1_37() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"taint": taint, "deviceSelector": {"pool": "a"}}}
    for version, answer in (("v1.36.4", Answer.NOT_KNOWN), ("v1.37.2", Answer.CANNOT)):
        found = explained(version, offer("a", device("gpu-0")), rules=[rule], **WANTS_K)
        assert found.answer is answer, found.unchecked


def test_a_fault_of_shared_partitions_makes_no_answer() -> None:
    draws = [{"counterSet": "card", "counters": {"parts": {"value": "1"}}}]
    both = device("gpu-0", allowMultipleAllocations=True, consumesCounters=draws)
    for version, is_known in (("v1.36.1", False), ("v1.36.2", True)):
        found = explained(version, offer("a", both), **WANTS_K)
        doubts = [one for one in found.unchecked if one.endswith("kubernetes#139040")]
        assert bool(doubts) is not is_known


def test_a_search_that_takes_long_makes_no_answer(
    why: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who writes claims can ask for devices that are found only by trying very many."""
    alike = [device(f"gpu-{number}", f"model-{number % 3}") for number in range(9)]
    asked = claim(count=4)
    asked["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/productName"}]
    objects = (node("a", 0), device_class(), offer("a", *alike), asked, pod(**WANTS_K))
    assert why(*objects, name="p")[0] == CANNOT
    monkeypatch.setattr("cluster.why.devices.pod_devices._MAX_STEPS", 20)
    status, out = why(*objects, name="p")
    assert status == NOT_KNOWN
    assert "Not known: whether one of very many choices of devices does" in out


def test_long_selectors_count_by_their_length(why: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.why.devices.pod_devices._MAX_STEPS", 60)
    selector = "device.driver != ''"
    for length, expected in ((1, CAN), (400, NOT_KNOWN)):
        asked = claim(selectors=[{"cel": {"expression": " && ".join([selector] * length)}}])
        objects = (node("a", 0), device_class(), offer("a", device("gpu-0")), asked, pod(**WANTS_K))
        assert why(*objects, name="p")[0] == expected


def test_a_taint_rule_without_a_selector_depends_on_the_release(
    why: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    rule = {**API, "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": {"taint": taint}}
    objects = (node("a", 0), device_class(), offer("a", device("gpu-0")), claim(), pod(**WANTS_K))
    assert why(*objects, name="p")[0] == CAN
    status, out = why(*objects, rule, name="p")
    assert status == NOT_KNOWN
    assert "which devices the DeviceTaintRule r is about" in out
    monkeypatch.setattr(FileSource, "server_version", lambda _: "v1.37.0")
    status, out = why(*objects, rule, name="p")
    assert (status, "gpu-0 has the taint broken:NoSchedule" in out) == (CANNOT, True)
    monkeypatch.setattr(FileSource, "server_version", lambda _: "v1.37.1")
    assert why(*objects, rule, name="p")[0] == CAN
