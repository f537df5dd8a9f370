"""All pods of the model with up to two features: docs/proof.md, proof by exhaustion."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rules.catalog.bypass.gated_device_env import DEVICES_AND_PREFIXES
from rules.gpu.visibility import ALTERNATIVE_VARIABLE, Visibility
from tests.testkit.container_runtime.node import Node
from tests.testkit.coverage.table import bypasses
from tests.testkit.proof.model import ROWS
from tests.testkit.proof.states import Proof, decide, features_of
from tests.testkit.proof.theorem import Result, noticed_faults, prove
from tests.testkit.proof.toolkits import SETTINGS, Toolkits, toolkits


def _without(variable: str) -> dict[str, tuple[str, str]]:
    """The variables of devices beside GPUs, but for one."""
    return {name: facts for name, facts in DEVICES_AND_PREFIXES.items() if name != variable}


pytestmark = pytest.mark.usefixtures("container_programs")
STOPPED = {"refused", "fixed", "kept off"}
NOTICED = {
    "cdi-annotation": {"annotation=cdi.k8s.io"},
    "device-list-mount": {
        *("list=all", "list=1", "list=cdi/nvidia.com/gpu/1", "list=x/../all"),
        *("list=another spelling", "list=/dev/./null", "list=of a claim"),
    },
    "gated-device-env": {
        *("NVIDIA_MOFED=enabled", "NVIDIA_NVSWITCH=enabled"),
        *("NVIDIA_GDS=enabled", "NVIDIA_GDRCOPY=enabled"),
        *("NVIDIA_MOFED=$(MY_NVIDIA_MOFED)", "NVIDIA_GDS=of a ConfigMap"),
        *("envFrom=prefix NVIDIA_MO", "envFrom=prefix NVIDIA_NV", "envFrom=prefix NVIDIA_GD"),
    },
    "image-default-all": {"image=known", "image=agent", "nodes=selected"},
    "legacy-cuda-version": {
        *("CUDA_VERSION=12.4", "CUDA_VERSION=$(MY_CUDA_VERSION)", "CUDA_VERSION=of a ConfigMap"),
        "envFrom=prefix CUDA_",
    },
    "privileged-gpu": {
        *("privilege=privileged", "asks=nvidia.com/gpu", "asks=amd.com/gpu", "asks=claim"),
        *("nodes=selected", "runtime class=nvidia", "image=known"),
    },
    "swarm-resource-env": {
        *("swarm=all", "swarm=1", "swarm=$(MY_DOCKER_RESOURCE_GPU)", "swarm=of a ConfigMap"),
    },
    "visible-devices-env": {
        *("visible=all", "visible=1", "visible=GPU-91d3", "visible=nvidia.com/gpu=1"),
        *("visible=0,all", "visible= all , ", "visible=$(WHICH)", "visible=void then all"),
        "visible=$(WHICH) of a ConfigMap",
    },
    "visible-devices-envfrom": {
        *("envFrom=prefix NVIDIA_VISIBLE_", "envFrom=prefix NVIDIA_", "envFrom=prefix DOCKER_"),
    },
    "visible-devices-valuefrom": {
        *("visible=of a ConfigMap", "visible=of a Secret", "visible=of an annotation"),
    },
}
"""The rules, and the features to which each must not be blind."""
_GATED = "catalog.bypass.gated_device_env"
CONSTANTS = (
    # A variable less.
    *(
        (f"{_GATED}.DEVICES_AND_PREFIXES", _without(name), f"{name}=enabled")
        for name in DEVICES_AND_PREFIXES
    ),
    ("gpu.visibility.CUDA_VERSION", "CUDA_RELEASE", "CUDA_VERSION=12.4"),
    # A class of values less.
    (f"{_GATED}.VISIBILITIES_WITH_DEVICES", (Visibility.GRANTED,), "visible=none"),
    (f"{_GATED}.ENABLED_VALUE", "true", "NVIDIA_MOFED=enabled"),
    (
        "gpu.visibility.ALTERNATIVE_VARIABLE",
        ALTERNATIVE_VARIABLE._replace(hides=("void", "none", "all")),
        "swarm=all",
    ),
    # A path, and the prefix of an annotation.
    (
        "catalog.bypass.device_list_mount.DEVICE_LIST_PATH",
        "/run/nvidia-container-devices",
        "list=all",
    ),
    ("catalog.bypass.cdi_annotation.CDI_PREFIX", "cdi.k8s.io/device", "annotation=cdi.k8s.io"),
)
"""Data of rules with faults, and a feature of the pods in which each is noticed."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkits]:
    with toolkits(tmp_path_factory.mktemp("toolkits")) as started:
        yield started


@pytest.fixture(scope="module")
def proof(asked: Toolkits) -> Proof:
    return Proof(asked)


@pytest.fixture(scope="module")
def default(proof: Proof) -> Result:
    return prove(proof, "default", 2)


def test_no_admitted_pod_gets_a_device_in_silence(default: Result) -> None:
    assert default.unexplained == []
    assert len(default.decided) > 3_000
    assert default.admitted > 1_000


def test_nor_under_the_strict_policy(proof: Proof, default: Result) -> None:
    strict = prove(proof, "strict", 2)
    assert strict.unexplained == []
    assert strict.decided.keys() == default.decided.keys()
    expected = {row.name for row in ROWS if len(row.has) < 3}
    assert proof.explained_by == expected, "a row that explains nothing is in the way"


def test_a_planted_fault_is_noticed(proof: Proof, default: Result) -> None:
    found = noticed_faults(proof, default.decided, "default")
    missing = {
        rule: values - set(map(str, found.get(rule, ()))) for rule, values in NOTICED.items()
    }
    assert not any(missing.values()), missing
    assert found.keys() == NOTICED.keys()


@pytest.mark.parametrize(("constant", "fault", "blind_to"), CONSTANTS)
def test_a_fault_in_a_constant_is_noticed(
    proof: Proof,
    default: Result,
    monkeypatch: pytest.MonkeyPatch,
    constant: str,
    fault: object,
    blind_to: str,
) -> None:
    pods = [chosen for chosen in default.decided if blind_to in map(str, chosen)]
    monkeypatch.setattr(f"rules.{constant}", fault)
    faulty = {chosen: decide(chosen, "default") for chosen in pods}
    proof.learn(faulty.values())
    assert any(proof.unexplained(faulty, "default", default.decided.__getitem__))


@pytest.mark.parametrize("name", sorted({row.name for row in ROWS}))
def test_a_row_is_of_the_page_and_says_that_it_is_not_stopped(name: str) -> None:
    (bypass,) = [each for each in bypasses() if each.name == name]
    assert bypass.cell("pods") not in STOPPED or name in PARTLY


PARTLY = frozenset({"prefix-of-an-alternative", "legacy"})
"""Rows whose description says in which pods gpuward does not stop them."""


def test_containers_that_are_started_get_the_same(
    default: Result, proof: Proof, node: Node
) -> None:
    """A sample, started by runc in control groups of whatever version this machine has."""
    containers = sorted(
        {
            each.container
            for decision in default.decided.values()
            for each in decision.asked
            if not each.container.is_privileged
        }
    )
    chosen = random.Random(52)  # noqa: S311 - the same sample every time
    for container in chosen.sample(containers, 24):
        settings = chosen.choice(SETTINGS)
        predicted, started = proof.answer(container, settings), node.ask(container, settings)
        assert str(predicted) == str(started), (container, settings)


def test_a_container_gets_what_those_like_it_get(proof: Proof, asked: Toolkits) -> None:
    """A sample of pods of three features, whose containers are asked about as they are."""
    pods = random.Random(52).sample(list(features_of(3)), 200)  # noqa: S311 - always the same
    decisions = [decide(chosen, "default") for chosen in pods]
    proof.learn(decisions)
    containers = sorted(
        {
            each.with_annotations
            for decision in decisions
            for each in decision.asked
            if not each.container.is_privileged
        }
    )
    assert len(containers) > 30
    for settings in SETTINGS:
        for container, answer in zip(containers, asked.ask(containers, settings), strict=True):
            assert str(answer) == str(proof.answer(container, settings)), (container, settings)
