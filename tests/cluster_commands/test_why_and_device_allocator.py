"""`gpuward why` says of devices what kube-scheduler's own device allocator says of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.why.devices.pools import Device
from cluster.why.devices.selectors import Selection, select
from tests.testkit.control_plane.build import device_allocator
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.device_allocation.allocators import Answers, ask_both
from tests.testkit.device_allocation.random_cases import Cases
from tests.testkit.paths import DATA
from tests.testkit.skipping import skip_missing


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return device_allocator()
    except BuildError as error:
        skip_missing(str(error))


@pytest.mark.parametrize("seed", range(10))
def test_no_answer_differs_and_few_are_not_known(program: Path, seed: int) -> None:
    cases = Cases(seed)
    answers = [*ask_both(program, [cases.question() for _ in range(200)])]
    assert [one for one in answers if one.differ] == []
    assert sum(not one.is_known for one in answers) < 0.15 * len(answers)
    seen = Counter(one.kubernetes for one in answers)
    assert min(seen["can"], seen["cannot"], seen["error"]) > 10


def ask(program: Path, **changed: Any) -> Answers:
    """Both answers about a node with two devices, of which a claim asks for one."""
    question = {
        "node": {"metadata": {"name": "n0"}},
        "claims": [claim(request())],
        "others": [],
        "classes": [{"metadata": {"name": "one"}, "spec": {}}],
        "slices": [device_slice()],
        **changed,
    }
    return next(iter(ask_both(program, [question])))


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


def test_the_order_of_devices_decides_whether_a_selector_ends_the_search(program: Path) -> None:
    reads = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'A100'"}}
    found = ask(program, claims=[claim(request(selectors=[reads]))])
    assert (found.kubernetes, found.gpuward) == ("can", "can")
    # The second device lacks the attribute, and is looked at before a second one is found.
    found = ask(program, claims=[claim(request(selectors=[reads], count=2))])
    assert (found.kubernetes, found.gpuward) == ("error", "error")
    # With two slices, releases of Kubernetes differ in what they look at first.
    slices = [device_slice("p"), device_slice("q")]
    found = ask(program, claims=[claim(request(selectors=[reads]))], slices=slices)
    assert found.gpuward.startswith("in which order the devices are tried")


def test_what_is_not_read_is_named(program: Path) -> None:
    loop = {"cel": {"expression": "device.attributes['gpu.example.com'].exists(k, k == 'model')"}}
    found = ask(program, claims=[claim(request(selectors=[loop]))])
    assert (found.kubernetes, found.gpuward) == (
        "can",
        "which devices the selectors of its request r choose",
    )
    waits: Any = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    found = ask(program, claims=[claim(request(count=2))], slices=[device_slice(**waits)])
    assert found.gpuward == "whether its driver makes it ready for the node"
    # The first device is enough.
    assert ask(program, slices=[device_slice(**waits)]).gpuward == "can"
    found = ask(program, claims=[claim(request(futureField={}))])
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
