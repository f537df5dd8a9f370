"""`gpuward why` says of devices what kube-scheduler's own device allocator says of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from cluster.why.devices.pools import Device
from cluster.why.devices.selectors import Selection, select
from rules.profile.platforms.records import parse_version
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.device_allocation.allocators import (
    ENABLED,
    Answers,
    KubernetesAllocator,
    allocator_of,
    ask_both,
    ask_gpuward,
)
from tests.testkit.paths import DATA
from tests.testkit.random_seeds import random_seeds
from tests.testkit.skipping import skip_missing

_ALLOCATORS = {
    **{release: (release, ()) for release in ENABLED},
    "1.34 with taints": ("1.34", ("DeviceTaints",)),
}


def allocator(name: str) -> KubernetesAllocator:
    release, more = _ALLOCATORS[name]
    try:
        made = allocator_of(release)
    except BuildError as error:
        skip_missing(str(error))
    return made._replace(enabled=(*made.enabled, *more))


@pytest.fixture(scope="module")
def newest() -> KubernetesAllocator:
    return allocator("1.37")


@pytest.mark.parametrize("seed", random_seeds(0, 10, fast=2))
@pytest.mark.parametrize("release", ENABLED)
def test_no_answer_differs_and_few_are_not_known(release: str, seed: int) -> None:
    one = allocator(release)
    cases = one.cases(seed)
    answers = [*ask_both(one, [cases.question() for _ in range(200)])]
    assert [one for one in answers if one.differ] == []
    most = 0.25 if release == "1.34" else 0.15
    assert sum(not one.is_known for one in answers) < most * len(answers)
    seen = Counter(one.kubernetes for one in answers)
    assert min(seen["can"], seen["cannot"], seen["error"]) > 10


@pytest.mark.parametrize("name", ["1.34 with taints", "1.36", "1.37"])
def test_an_answer_without_the_version_is_right_for_each(name: str) -> None:
    one = allocator(name)
    cases = one.cases(20)
    questions = [cases.question() for _ in range(200)]
    answers = [*ask_both(one, questions, is_version_known=False)]
    assert [one for one in answers if one.differ] == []
    assert sum(not one.is_known for one in answers) < 0.2 * len(answers)


_ROWS = yaml.safe_load((DATA / "device_allocators.yaml").read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row["says"].replace(" ", "-"))
def test_releases_differ_as_the_table_says(row: dict[str, Any]) -> None:
    asked = question(
        claims=[claim(*row["requests"], constraints=row.get("constraints", []))],
        classes=[{"metadata": {"name": "any"}, "spec": {}}],
        slices=[
            {"metadata": {"name": f"s{number}"}, "spec": spec}
            for number, spec in enumerate(row["slices"])
        ],
        others=[other_claim(*row.get("taken", []))],
    )
    assert len({*row["answers"].values(), *row.get("enabled", ())}) > 1  # else it is no difference
    for release, said in row["answers"].items():
        one = allocator(release)
        one = one._replace(enabled=(*one.enabled, *row.get("enabled", {}).get(release, ())))
        (found,) = ask_both(one, [asked])
        assert found.kubernetes == said, release
        assert found.gpuward.startswith(row.get("gpuward", {}).get(release, said)), release
    assert ask_gpuward(asked, None).startswith(row["without_version"])


def other_claim(*results: dict[str, Any]) -> dict[str, Any]:
    """A claim that has devices of the pool `p`."""
    where = {"request": "r", "driver": "gpu.example.com", "pool": "p"}
    devices = {"results": [{**where, **result} for result in results]}
    metadata = {"name": "o", "namespace": "d"}
    return {"metadata": metadata, "spec": {}, "status": {"allocation": {"devices": devices}}}


_SHARED: dict[str, Any] = {"allowMultipleAllocations": True}
_DRAWING: dict[str, Any] = {"consumesCounters": [{"counterSet": "c", "counters": {}}]}


@pytest.mark.parametrize(
    ("changed", "gate"),
    [
        ({"slices": "shared"}, "DRAConsumableCapacity"),
        ({"slices": "drawing"}, "DRAPartitionableDevices"),
    ],
)
def test_nothing_is_said_of_shares_and_partitions_before_1_36(changed: Any, gate: str) -> None:
    device = _SHARED if changed["slices"] == "shared" else _DRAWING
    asked = question(slices=[device_slice(**device)])
    assert ask_gpuward(asked, parse_version("v1.35.4")).startswith(
        f"whether the feature gate {gate} is on"
    )
    assert ask_gpuward(asked, parse_version("v1.36.0")) in {"can", "cannot"}


def ask(newest: KubernetesAllocator, **changed: Any) -> Answers:
    """Both answers to a question."""
    return next(iter(ask_both(newest, [question(**changed)])))


def question(**changed: Any) -> dict[str, Any]:
    """A node with two devices, of which a claim asks for one."""
    return {
        "node": {"metadata": {"name": "n0"}},
        "claims": [claim(request())],
        "others": [],
        "classes": [{"metadata": {"name": "one"}, "spec": {}}],
        "slices": [device_slice()],
        **changed,
    }


def request(**changed: Any) -> dict[str, Any]:
    exact = {"deviceClassName": "one", "allocationMode": "ExactCount", "count": 1}
    return {"name": "r", "exactly": {**exact, **changed}}


def claim(*requests: Any, **changed: Any) -> dict[str, Any]:
    devices = {"requests": [*requests], **changed}
    return {"metadata": {"name": "c", "namespace": "d"}, "spec": {"devices": devices}}


def device_slice(pool: str = "p", **of_second: Any) -> dict[str, Any]:
    first = {"name": "d0", "attributes": {"model": {"string": "A100"}}}
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    devices = [first, {"name": "d1", **of_second}]
    spec = {"driver": "gpu.example.com", "nodeName": "n0", "pool": of_pool, "devices": devices}
    return {"metadata": {"name": pool}, "spec": spec}


def test_the_order_of_devices_decides_whether_a_selector_ends_it(
    newest: KubernetesAllocator,
) -> None:
    reads = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'A100'"}}
    found = ask(newest, claims=[claim(request(selectors=[reads]))])
    assert (found.kubernetes, found.gpuward) == ("can", "can")
    # The second device lacks the attribute, and is looked at before a second one is found.
    found = ask(newest, claims=[claim(request(selectors=[reads], count=2))])
    assert (found.kubernetes, found.gpuward) == ("error", "error")
    # With two slices, releases of Kubernetes differ in what they look at first.
    slices = [device_slice("p"), device_slice("q")]
    found = ask(newest, claims=[claim(request(selectors=[reads]))], slices=slices)
    assert found.gpuward.startswith("in which order the devices are tried")


def test_what_is_not_read_is_named(newest: KubernetesAllocator) -> None:
    loop = {"cel": {"expression": "device.attributes['gpu.example.com'].exists(k, k == 'model')"}}
    found = ask(newest, claims=[claim(request(selectors=[loop]))])
    assert (found.kubernetes, found.gpuward) == (
        "can",
        "which devices the selectors of its request r choose",
    )
    waits: Any = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    found = ask(newest, claims=[claim(request(count=2))], slices=[device_slice(**waits)])
    assert found.gpuward == "whether its driver makes it ready for the node"
    # The first device is enough.
    assert ask(newest, slices=[device_slice(**waits)]).gpuward == "can"
    found = ask(newest, claims=[claim(request(futureField={}))])
    assert found.gpuward == "what futureField of its request r means"


def test_selectors_say_of_a_card_what_the_scheduler_says() -> None:
    """The expressions and answers of the table that the rules about selectors are tested by."""
    texts = {"type": "gpu", "uuid": "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c", "brand": "Nvidia"}
    texts |= {"productName": "NVIDIA A100-SXM4-80GB", "architecture": "Ampere"}
    texts |= {"addressingMode": "HMM"}
    versions = {"cudaComputeCapability": "8.0.0", "driverVersion": "580.65.6"}
    versions |= {"cudaDriverVersion": "13.0.0"}
    attributes = {name: {"string": text} for name, text in texts.items()}
    attributes |= {name: {"version": text} for name, text in versions.items()}
    root = {"pcieRoot": {"string": "pci0000:00"}}
    driver, memory = "gpu.nvidia.com", {"memory": {"value": "80Gi"}}
    domains = {driver: attributes, "resource.kubernetes.io": root}
    card = Device((driver, "p", "d"), domains, {driver: memory}, memory)
    answers = {"true": Selection.MATCHES, "false": Selection.DIFFERS, "fails": Selection.FAILS}
    known = 0
    for line in (DATA / "device_selectors.tsv").read_text(encoding="utf-8").splitlines():
        text, compiled, said = line.split("\t")
        found = select(json.loads(text), card)
        expected = answers[said] if compiled == "ok" else Selection.NOT_KNOWN
        assert found in {expected, Selection.NOT_KNOWN}, text
        known += found is not Selection.NOT_KNOWN
    assert known > 60
