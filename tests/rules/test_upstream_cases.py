"""Tests of the rules with the test cases of container runtimes and of other webhooks.

The tables are those of NVIDIA's container toolkit (`cuda_image_test.go`,
`container_config_test.go`), of KAI's `device_access_test.go` and of HAMi's `device_test.go`,
written anew as pods and findings. A comment gives the reason for each difference.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policies.loading import load_policy
from policies.profiles import built_in_profiles
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import RuleSet
from rules.gpu.images import is_cuda_image
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    Visibility,
    is_for_requested_gpu,
    parse_visibility,
)
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects

AMD, ASCEND, HABANA = "AMD_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"
CONTEXT = Context(today=dt.date(2030, 6, 15))
ENV, REFERENCE, FROM = (
    "visible-devices-env",
    "visible-devices-valuefrom",
    "visible-devices-envfrom",
)
SWARM, LEGACY, MOUNT, MIG = (
    "swarm-resource-env",
    "legacy-cuda-version",
    "device-list-mount",
    "mig-admin-env",
)
CHANNELS = (ENV, REFERENCE, FROM, SWARM, LEGACY, MOUNT, MIG)
ROOT = "/var/run/nvidia-container-devices"


def policy(**keys: Any) -> RuleSet:
    text = yaml.safe_dump({"apiVersion": "gpuward.io/v1", "kind": "Policy", **keys})
    return load_policy(text, "test").rule_set()


DEFAULT = policy()


def container(name: str = "main", /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/main:1", **fields}


def env(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    annotations = spec.pop("annotations", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sample", "annotations": annotations},
        "spec": {"containers": list(containers), **spec},
    }


def rules_found(manifest: Any, rules: RuleSet = DEFAULT, of: Iterable[str] = CHANNELS) -> set[str]:
    result = check(manifest, rules, CONTEXT)
    assert not result.failures
    return {finding.rule for finding in result.findings} & set(of)


def fixed(manifest: Any, rules: RuleSet) -> FixResult:
    result = fix(manifest, rules, CONTEXT)
    assert not result.remaining.failures
    return result


# --- NVIDIA's toolkit: the environment

GPU, OTHER, MIG_DEVICE = "GPU-12345", "GPU-67890", "MIG-12345"
DOCKER, DOCKER_2 = "DOCKER_RESOURCE_GPUS", "DOCKER_RESOURCE_GPUS_ADDITIONAL"
VERSION, REQUIRE = "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"
ALTERNATIVES = policy(profiles=["nvidia", {"name": "more", "alternativeVariables": [DOCKER_2]}])

# Variables for the toolkit, and the rules that report them. The toolkit injects a device in every
# row with a rule, except in the last rows; "none" injects only the driver, which is no device.
TOOLKIT_ENV: list[tuple[dict[str, str], set[str]]] = [
    ({}, set()),
    ({NVIDIA_VISIBLE_DEVICES: ""}, set()),
    ({NVIDIA_VISIBLE_DEVICES: "void"}, set()),
    ({NVIDIA_VISIBLE_DEVICES: "none"}, set()),
    ({NVIDIA_VISIBLE_DEVICES: GPU}, {ENV}),
    ({NVIDIA_VISIBLE_DEVICES: GPU, VERSION: "legacy"}, {ENV}),
    ({VERSION: "legacy"}, {LEGACY}),
    ({DOCKER: ""}, set()),
    ({DOCKER: "void"}, set()),
    ({DOCKER: "none"}, set()),
    ({DOCKER: GPU}, {SWARM}),
    ({DOCKER: OTHER}, {SWARM}),
    # The toolkit takes only the devices of the alternatives. gpuward also reports those of a
    # node on which no alternative is configured.
    ({NVIDIA_VISIBLE_DEVICES: GPU, DOCKER: OTHER}, {ENV, SWARM}),
    ({NVIDIA_VISIBLE_DEVICES: GPU, DOCKER_2: OTHER}, {ENV, SWARM}),
    ({NVIDIA_VISIBLE_DEVICES: GPU, DOCKER: MIG_DEVICE, DOCKER_2: OTHER}, {ENV, SWARM}),
    ({DOCKER: GPU, VERSION: "legacy"}, {SWARM, LEGACY}),
    # The toolkit ignores alternatives that are not configured. The pod does not tell how its node
    # is configured, so the alternatives of the profile count everywhere.
    ({NVIDIA_VISIBLE_DEVICES: "", DOCKER: OTHER}, {SWARM}),
    ({NVIDIA_VISIBLE_DEVICES: "void", DOCKER: OTHER}, {SWARM}),
    ({NVIDIA_VISIBLE_DEVICES: "none", DOCKER: OTHER}, {SWARM}),
    ({NVIDIA_VISIBLE_DEVICES: GPU, DOCKER: OTHER, VERSION: "legacy"}, {ENV, SWARM}),
]


@pytest.mark.parametrize(("variables", "expected"), TOOLKIT_ENV)
@pytest.mark.parametrize("role", ["containers", "initContainers", "ephemeralContainers"])
def test_the_toolkits_environment(variables: dict[str, str], expected: set[str], role: str) -> None:
    manifest = pod(container("app"), **{role: [container(env=env(variables))]})
    assert rules_found(manifest, ALTERNATIVES) == expected


def test_an_alternative_that_no_chosen_profile_names_is_only_announced() -> None:
    manifest = pod(container(env=env({DOCKER_2: GPU, "SWARM_GPU": GPU})))
    [finding] = check(manifest, DEFAULT.restricted_to(CHANNELS), CONTEXT).findings
    assert (finding.key, finding.action.word) == (DOCKER_2, "warn")


# --- NVIDIA's toolkit: mounts


def mounted(*mounts: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """A pod with mounts as (path of the host, path in the container)."""
    volumes = [
        {"name": f"volume-{number}", "hostPath": {"path": source}}
        for number, (source, _) in enumerate(mounts)
    ]
    named = [
        {"name": f"volume-{number}", "mountPath": target}
        for number, (_, target) in enumerate(mounts)
    ]
    return pod(container(volumeMounts=named, **fields), volumes=volumes)


NULL = "/dev/null"
TOOLKIT_MOUNTS: list[tuple[list[tuple[str, str]], int]] = [
    ([], 0),
    # The toolkit's table has no request here. The path may be a link to /dev/null on a node.
    ([("/not/dev/null", f"{ROOT}/GPU0")], 1),
    ([(NULL, "/other/prefix/GPU0")], 0),
    ([(NULL, ROOT)], 0),
    ([(NULL, f"{ROOT}/GPU0"), (NULL, f"{ROOT}/GPU1")], 2),
    ([(NULL, f"{ROOT}/GPU0-MIG0/0/1"), (NULL, f"{ROOT}/GPU1-MIG0/0/1")], 2),
    # The toolkit's table omits these two because other code reads them, as a CDI device and as
    # an IMEX channel. They are requests all the same.
    ([(NULL, f"{ROOT}/{name}") for name in ("GPU0", "cdi/nvidia.com/gpu=all", "GPU1")], 3),
    ([(NULL, f"{ROOT}/{name}") for name in ("GPU0", "imex/0", "GPU1")], 3),
]


@pytest.mark.parametrize(("mounts", "requests"), TOOLKIT_MOUNTS)
def test_the_toolkits_mounts(mounts: list[tuple[str, str]], requests: int) -> None:
    found = check(mounted(*mounts), DEFAULT.restricted_to([MOUNT]), CONTEXT).findings
    assert len(found) == requests


def test_one_destination_is_one_request_however_it_is_written() -> None:
    manifest = mounted((NULL, f"{ROOT}/GPU0"), ("/dev/../dev//null", f"{ROOT}//./GPU0/"))
    [finding] = check(manifest, DEFAULT.restricted_to([MOUNT]), CONTEXT).findings
    result = fixed(manifest, policy(rules={MOUNT: {"fix": True}}).restricted_to([MOUNT]))
    assert '"GPU0"' in finding.message
    assert "volumeMounts" not in result.manifest["spec"]["containers"][0]  # type: ignore[index, call-overload]


# --- NVIDIA's toolkit: which source wins

BOTH = [(NULL, f"{ROOT}/GPU0"), (NULL, f"{ROOT}/GPU1")]
ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}}
# Mounts, whether the container has SYS_ADMIN, and the rules that report it. By the configuration
# of the node the toolkit accepts mounts, the environment, or either only from containers with
# SYS_ADMIN. gpuward refuses the pod for what any node may grant it.
TOOLKIT_PRECEDENCE: list[tuple[list[tuple[str, str]], bool, set[str]]] = [
    (BOTH, False, {MOUNT, ENV}),  # mounts accepted: the mounts win over the environment
    ([], False, {ENV}),  # environment of the unprivileged not accepted: nothing is injected
    ([], True, {ENV}),
    (BOTH, True, {MOUNT, ENV}),  # mounts not accepted: the environment counts
]


@pytest.mark.parametrize(("mounts", "admin", "expected"), TOOLKIT_PRECEDENCE)
def test_the_toolkits_precedence(
    mounts: list[tuple[str, str]], expected: set[str], *, admin: bool
) -> None:
    context = {"securityContext": ADMIN} if admin else {}
    assert (
        rules_found(mounted(*mounts, env=env({NVIDIA_VISIBLE_DEVICES: "GPU2,GPU3"}), **context))
        == expected
    )


def test_void_does_not_hide_a_request_by_mount() -> None:
    assert rules_found(mounted(*BOTH, env=env({NVIDIA_VISIBLE_DEVICES: "void"}))) == {MOUNT}


# --- NVIDIA's hook: old and modern images, MIG, capabilities

OLD, MODERN = {VERSION: "9.0"}, {REQUIRE: "cuda>=9.0"}
REQUIREMENTS = {"NVIDIA_REQUIRE_REQ0": "req0=true", "NVIDIA_REQUIRE_REQ1": "req1=false"}
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
TWO = {NVIDIA_VISIBLE_DEVICES: "gpu0,gpu1"}
CONFIG, MONITOR = "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"
HOOK: list[tuple[dict[str, str], set[str]]] = [
    ({}, set()),
    (OLD, {LEGACY}),
    ({**OLD, NVIDIA_VISIBLE_DEVICES: "all"}, {ENV}),
    ({**OLD, NVIDIA_VISIBLE_DEVICES: ""}, set()),
    ({**OLD, NVIDIA_VISIBLE_DEVICES: "void"}, set()),
    ({**OLD, NVIDIA_VISIBLE_DEVICES: "none"}, set()),
    ({**OLD, **TWO}, {ENV}),
    ({**OLD, **TWO, CAPABILITIES: ""}, {ENV}),
    ({**OLD, **TWO, CAPABILITIES: "all"}, {ENV}),
    ({**OLD, **TWO, CAPABILITIES: "video,display"}, {ENV}),
    ({**OLD, **TWO, CAPABILITIES: "video,display", **REQUIREMENTS}, {ENV}),
    ({**OLD, **TWO, **REQUIREMENTS, "NVIDIA_DISABLE_REQUIRE": "true"}, {ENV}),
    # Only the requirement of CUDA makes an image modern.
    ({**OLD, **REQUIREMENTS}, {LEGACY}),
    (MODERN, set()),
    ({**OLD, **MODERN}, set()),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: "all"}, {ENV}),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: ""}, set()),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: "void"}, set()),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: "none"}, set()),
    ({**MODERN, **TWO}, {ENV}),
    ({**MODERN, **TWO, CAPABILITIES: ""}, {ENV}),
    ({**MODERN, **TWO, CAPABILITIES: "all"}, {ENV}),
    ({**MODERN, **TWO, CAPABILITIES: "video,display"}, {ENV}),
    ({**MODERN, **TWO, CAPABILITIES: "video,display", **REQUIREMENTS}, {ENV}),
    ({NVIDIA_VISIBLE_DEVICES: "all"}, {ENV}),
    ({NVIDIA_VISIBLE_DEVICES: "all", CAPABILITIES: "all"}, {ENV}),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: "all", CONFIG: "mig0,mig1"}, {ENV, MIG}),
    ({**MODERN, NVIDIA_VISIBLE_DEVICES: "all", MONITOR: "mig0,mig1"}, {ENV, MIG}),
]


@pytest.mark.parametrize(("variables", "expected"), HOOK)
@pytest.mark.parametrize("admin", [False, True], ids=["unprivileged", "privileged"])
def test_the_hooks_configuration(
    variables: dict[str, str], expected: set[str], *, admin: bool
) -> None:
    """The hook reads devices alike from both; it refuses unprivileged containers only for MIG."""
    context = {"securityContext": ADMIN} if admin else {}
    assert rules_found(pod(container(env=env(variables), **context))) == expected


@pytest.mark.parametrize("variable", [CONFIG, MONITOR])
@pytest.mark.parametrize(
    ("context", "allowed"),
    [
        ({}, False),  # the hook panics: the container never starts
        ({"capabilities": {"add": ["NET_ADMIN"]}}, False),
        ({"capabilities": {"drop": ["SYS_ADMIN"]}}, False),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, True),
        ({"capabilities": {"add": ["CAP_SYS_ADMIN"]}}, True),
        ({"capabilities": {"add": ["ALL"]}}, True),
        ({"privileged": True}, True),
    ],
)
def test_mig_is_an_escalation_only_with_the_capability(
    variable: str, context: dict[str, Any], *, allowed: bool
) -> None:
    manifest = pod(container(env=env({variable: "all"}), securityContext=context))
    [finding] = check(manifest, DEFAULT.restricted_to([MIG]), CONTEXT).findings
    assert ("lets it" in finding.message) is allowed
    assert ("refuses to start it" in finding.message) is not allowed


# --- The values that the runtimes know

GRANTED, HIDDEN, DRIVER = Visibility.GRANTED, Visibility.HIDDEN, Visibility.DRIVER_ONLY
WORDS: list[tuple[str, str, Visibility]] = [
    (NVIDIA_VISIBLE_DEVICES, "0,all", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "none,all", DRIVER),
    (NVIDIA_VISIBLE_DEVICES, "all,none", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "0,none", DRIVER),
    (NVIDIA_VISIBLE_DEVICES, "all,void", HIDDEN),
    (NVIDIA_VISIBLE_DEVICES, " void ", HIDDEN),
    (NVIDIA_VISIBLE_DEVICES, " , ", HIDDEN),
    (NVIDIA_VISIBLE_DEVICES, "VOID", GRANTED),  # the name of a device: the container cannot start
    (NVIDIA_VISIBLE_DEVICES, "0:1", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "nvidia.com/gpu=all", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "$(ANY)", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "void,$(ANY)", HIDDEN),  # whatever ANY is
    (NVIDIA_VISIBLE_DEVICES, "$(ANY,void)", GRANTED),  # one name of a variable
    (NVIDIA_VISIBLE_DEVICES, "$(ANY,void", HIDDEN),  # no reference
    # A name may have any printable character but `=`, so a comma in the reference is no separator.
    (NVIDIA_VISIBLE_DEVICES, "$(A,void,B)", GRANTED),
    (NVIDIA_VISIBLE_DEVICES, "$(A(,void,B)", GRANTED),
    # AMD's and Gaudi's runtimes take every index that they can read and skip the rest.
    (AMD, "void,0", GRANTED),
    (AMD, "ALL", GRANTED),
    (AMD, "0-3", GRANTED),
    (AMD, "none", HIDDEN),
    (HABANA, "none,1", GRANTED),
    (HABANA, "all", GRANTED),
    (HABANA, "none", HIDDEN),
    (HABANA, "", GRANTED),
    (HABANA, "void", GRANTED),
    (ASCEND, "0-2,4", GRANTED),
    (ASCEND, "Ascend910-1", GRANTED),
    (ASCEND, "void", HIDDEN),
    (ASCEND, "", HIDDEN),
    # What reads the first variable with this beginning reads any such variable.
    (f"{HABANA}_1", "all", GRANTED),
    (f"{HABANA}_1", "none", HIDDEN),
    # Made from NVIDIA's toolkit: `void` wins at any position.
    ("IX_VISIBLE_DEVICES", "0,void", HIDDEN),
    ("HCU_VISIBLE_DEVICES", "0", GRANTED),
    ("MTHREADS_VISIBLE_DEVICES", "all", GRANTED),
    ("MTHREADS_VISIBLE_DEVICES", "none", HIDDEN),
    ("AWS_NEURON_VISIBLE_DEVICES", "ALL", GRANTED),
    ("AWS_NEURON_VISIBLE_DEVICES", "", HIDDEN),
]


@pytest.mark.parametrize(("variable", "value", "expected"), WORDS)
def test_the_words_that_runtimes_know(variable: str, value: str, expected: Visibility) -> None:
    known = DEFAULT.profile.visible_variable(variable)
    assert known is not None
    assert parse_visibility(value, known) is expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nvidia/cuda", True),
        ("docker.io/nvidia/cuda:12.5.0-devel-ubuntu22.04", True),
        ("registry.example.com:5000/hub/nvidia/cuda@sha256:00", True),
        ("nvcr.io/nvidia/k8s/cuda-sample:nbody-cuda11.7.1-ubuntu18.04", True),
        ("nvcr.io/nim/meta/llama3-8b-instruct:1.0.0", True),
        ("nvcr.io:443/nvidia/pytorch:24.05-py3", True),
        ("nvcr.io:0443/nvidia/pytorch:24.05-py3", True),
        ("NVCR.IO/nvidia/pytorch:24.05-py3", True),
        ("NvCr.Io:443/nvidia/pytorch:24.05-py3", True),
        # NVIDIA's agents set it, except for those that say void.
        ("nvcr.io:443/nvidia/dcgm-exporter:4.1", True),
        ("nvcr.io/nvidia/cloud-native/dcgm:4.2.0-1-ubuntu22.04", True),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.13.1", True),
        ("nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0", True),
        ("nvcr.io/nvidia/gpu-operator:v25.10.0", False),
        ("nvcr.io/nvidia/cloud-native/gpu-operator-validator:v25.3.0", False),
        ("nvcr.io/nvidia/k8s/container-toolkit:v1.18.0", False),
        ("nvcr.io/nvidia/driver:580.95.05-ubuntu24.04", False),
        ("nvcr.io/nvidia/cloud-native/nvidia-fs:2.26.6", True),
        ("nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.9.0", False),
        ("nvcr.io/nvidia/mellanox/doca-driver:25.07-0.6.1.0-0", False),
        ("mirror.example.com/nvcr.io/nvidia/doca/doca_telemetry:1.22.5", False),
        ("nvcr.io/nvidia/doca/doca:3.1.0-full-rt-cuda12.8.0-host", True),
        ("nvcr.io/nvidia/mellanox/cuda:1", True),
        # With a digest the tag does not matter.
        ("nvidia/cuda:cpu@sha256:00", True),
        ("pytorch/pytorch:cpu@sha256:00", True),
        ("rayproject/ray:2.46.0-gpu@sha256:00", True),
        ("rayproject/ray:2.46.0-cpu@sha256:00", False),
        ("nvidia/cuda:cpu", False),
        ("mirror.example.com/nvcr.io/nvidia/pytorch:24.05-py3", True),
        ("pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime", True),
        ("pytorch/pytorch", True),
        ("rayproject/ray-llm:2.52.0-py311-cu128", True),
        ("rayproject/ray-ml:2.46.0.0e19ea-py39-gpu", True),
        ("ghcr.io/huggingface/text-generation-inference:3.0.1", True),
        ("ghcr.io/huggingface/text-generation-inference:3.0.1-rocm", False),
        ("rocm/pytorch:latest", False),
        ("rayproject/ray:2.46.0", False),
        ("tensorflow/tensorflow:2.16.1", False),
        ("example.com/cuda:12", False),
        ("example.com/my-nvidia/cuda:12", False),
        ("nvcr.io.example.com/nvidia/cuda-docs:1", False),
        ("", False),
        (":", False),
        ("@", False),
    ],
)
def test_images_that_set_the_variable_themselves(image: str, *, expected: bool) -> None:
    assert is_cuda_image(image) is expected


# --- KAI's device access plug-in

KAI = {"profiles": ["kai"]}
CONFIG_MAP = {"configMapKeyRef": {"name": "some-configmap"}}
CPU = {"requests": {"cpu": "100m"}}
KAI_VALIDATES: list[tuple[Any, set[str]]] = [
    (None, set()),
    ({"value": "void"}, set()),
    ({"value": "none"}, set()),
    ({"value": "all"}, {ENV}),
    ({"value": "7"}, {ENV}),
    ({"value": "3,6"}, {ENV}),
    ({"valueFrom": CONFIG_MAP}, {REFERENCE}),
]


@pytest.mark.parametrize(("entry", "expected"), KAI_VALIDATES)
@pytest.mark.parametrize("role", ["containers", "initContainers"])
def test_what_kai_refuses(entry: Any, expected: set[str], role: str) -> None:
    variables = [] if entry is None else [{"name": NVIDIA_VISIBLE_DEVICES, **entry}]
    manifest = pod(**{role: [container(env=variables, resources=CPU)]})
    assert rules_found(manifest, policy(**KAI)) == expected


def requesting(name: str, resource: str) -> dict[str, Any]:
    return container(name, resources={"requests": {resource: "1"}})


ONE, TWO_CPU = container("container-0", resources=CPU), container("container-1", resources=CPU)
BEFORE = container("init-container-0", resources=CPU)
FRACTION = {"gpu-fraction": "0.5"}
KAI_MUTATES: list[tuple[dict[str, Any], list[str]]] = [
    (
        pod(ONE, TWO_CPU, initContainers=[BEFORE]),
        ["init-container-0", "container-0", "container-1"],
    ),
    (pod({**ONE, "env": env({NVIDIA_VISIBLE_DEVICES: "7"})}), ["container-0"]),
    (pod(requesting("container-0", "nvidia.com/gpu")), []),
    (
        pod(
            requesting("container-0", "nvidia.com/gpu"), requesting("container-1", "nvidia.com/gpu")
        ),
        [],
    ),
    (pod(requesting("container-0", "nvidia.com/gpu"), TWO_CPU), ["container-1"]),
    (
        pod(requesting("container-0", "nvidia.com/gpu"), initContainers=[BEFORE]),
        ["init-container-0"],
    ),
    (pod(ONE, annotations=FRACTION), []),
    (pod(ONE, TWO_CPU, annotations=FRACTION), ["container-1"]),
    (pod(ONE, initContainers=[BEFORE], annotations=FRACTION), ["init-container-0"]),
    (pod(requesting("container-0", "nvidia.com/mig-3g.20gb")), []),
    # KAI knows no other resource names and hides the GPU from these two.
    (pod(requesting("container-0", "nvidia.com/gpu.shared")), []),
    (pod(requesting("container-0", "aliyun.com/gpu-mem")), []),
    # The devices of a claim do not depend on the variable.
    (pod(container("container-0", resources={"claims": [{"name": "gpu"}]})), ["container-0"]),
    # A pod without containers is no reason to fail.
    ({**pod(annotations=FRACTION), "spec": {"initContainers": [BEFORE]}}, ["init-container-0"]),
]


@pytest.mark.parametrize(("manifest", "blocked"), KAI_MUTATES)
def test_the_containers_that_kai_blocks(manifest: dict[str, Any], blocked: list[str]) -> None:
    """KAI voids containers that request no GPU; gpuward does so with these two settings."""
    rules = policy(**KAI, voidEveryContainer=True, rules={ENV: {"fix": True}})
    result: Any = fixed(manifest, rules).manifest
    all_containers = [
        *result["spec"].get("initContainers", ()),
        *result["spec"].get("containers", ()),
    ]
    entry = {"name": NVIDIA_VISIBLE_DEVICES, "value": "void"}
    assert [c["name"] for c in all_containers if entry in c.get("env", ())] == blocked


def test_a_voided_reference_loses_its_value_from() -> None:
    """KAI sets the value beside `valueFrom`, and the API server refuses the pod."""
    manifest = pod(container(env=[{"name": NVIDIA_VISIBLE_DEVICES, "valueFrom": CONFIG_MAP}]))
    result: Any = fixed(manifest, policy(rules={REFERENCE: {"fix": True}})).manifest
    assert result["spec"]["containers"][0]["env"] == [
        {"name": NVIDIA_VISIBLE_DEVICES, "value": "void"}
    ]


@pytest.mark.parametrize("number", ["0", "12", "i0"])
def test_the_reference_that_kai_injects_is_accepted(number: str) -> None:
    reference = {
        "configMapKeyRef": {"name": f"sample-shared-gpu-{number}", "key": NVIDIA_VISIBLE_DEVICES}
    }
    annotations = {**FRACTION, "runai/shared-gpu-configmap": "sample-shared-gpu"}
    manifest = pod(
        container(env=[{"name": NVIDIA_VISIBLE_DEVICES, "valueFrom": reference}]),
        annotations=annotations,
    )
    assert not rules_found(manifest, policy(**KAI))
    assert rules_found(manifest) == {REFERENCE}


# --- HAMi's overwriteEnv

HAMI = {"profiles": ["hami"], "voidEveryContainer": True}


def test_a_container_without_a_device_sees_none() -> None:
    """HAMi appends `none`, which still mounts the driver's files; `void` mounts nothing."""
    result: Any = fixed(pod(container(resources={"limits": {}})), policy(**HAMI)).manifest
    assert result["spec"]["containers"][0]["env"] == [
        {"name": NVIDIA_VISIBLE_DEVICES, "value": "void"}
    ]


def test_a_second_run_changes_nothing() -> None:
    """An earlier HAMi appended its entry at every run (issue 2929)."""
    rules = policy(**HAMI, rules={ENV: {"fix": True}})
    for entries in (
        [],
        env({NVIDIA_VISIBLE_DEVICES: "all"}),
        [*env({NVIDIA_VISIBLE_DEVICES: "all"}), *env({NVIDIA_VISIBLE_DEVICES: "none"})],
    ):
        once = fixed(pod(container(env=entries)), rules).manifest
        assert fixed(once, rules).operations == []


def test_a_conflicting_value_is_refused_rather_than_overridden() -> None:
    """HAMi keeps the user's `all` and appends `none`; gpuward's refusal names the problem."""
    assert rules_found(
        pod(container(env=env({NVIDIA_VISIBLE_DEVICES: "all"}))), policy(**HAMI)
    ) == {ENV}


def test_the_variables_that_hami_appends_are_accepted() -> None:
    appended = [
        *env({NVIDIA_VISIBLE_DEVICES: "all"}),
        *env({NVIDIA_VISIBLE_DEVICES: "none"}),
        *env({ASCEND: ""}),
    ]
    assert not rules_found(pod(container(env=appended)), policy(**HAMI))
    share = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096, "nvidia.com/priority": 5}}
    policies = env({"CUDA_TASK_PRIORITY": "5", "GPU_CORE_UTILIZATION_POLICY": "force", ASCEND: ""})
    sharing = ("share-limit-override", "share-visible-devices", "gpu-container-hidden")
    manifest = pod(container(resources=share, env=policies))
    assert not rules_found(manifest, policy(**HAMI), of=(*CHANNELS, *sharing))


# --- The profiles


NVIDIAS = DEFAULT.profile.visible_devices[NVIDIA_VISIBLE_DEVICES]


def test_nvidias_variable_concerns_the_cards_of_nvidia_by_every_name() -> None:
    """A vendor spelt differently in a profile would leave its shares without protection."""
    domains = ("nvidia.com/", "aliyun.com/", "volcano.sh/", "koordinator.sh/", "tencent.com/")
    for profile in built_in_profiles().values():
        for resource in profile.get("resources", {}):
            name = resource.replace("*", "1g.5gb")
            manifest = pod(container(resources={"limits": {name: 1}}))
            [subject] = find_subjects(manifest, policy(profiles=[profile["name"]]).profile)
            assert isinstance(subject, Pod)
            [only] = subject.containers
            is_another_makers = name == "aliyun.com/ppu"  # T-Head's
            is_nvidias = name.startswith(domains) and not is_another_makers
            assert is_for_requested_gpu(NVIDIAS, only) or not is_nvidias


# --- An oracle

NAMES = (NVIDIA_VISIBLE_DEVICES, AMD, "DOCKER_RESOURCE_GPU", VERSION, REQUIRE, "MODE")
tokens = st.sampled_from(["void", "none", "all", "0", GPU, "", " ", " void ", "VOID", "$(MODE)"])
values = st.lists(tokens, max_size=3).map(",".join)
entries = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES)},
    optional={"value": values, "valueFrom": st.just({"fieldRef": {"fieldPath": "spec.nodeName"}})},
)
sources = st.sampled_from(
    ["", "N", "NVIDIA_VISIBLE_", NVIDIA_VISIBLE_DEVICES, "DOCKER_", "CUDA_", "nvidia_", "A"]
).map(lambda prefix: {"prefix": prefix, "configMapRef": {"name": "settings"}})


VARIABLES = {
    NVIDIA_VISIBLE_DEVICES,
    AMD,
    ASCEND,
    HABANA,
    "DOCKER_RESOURCE_GPU",
    "DOCKER_RESOURCE_GPUS",
}


def may_see_gpu(entries: list[dict[str, Any]], prefixes: list[str]) -> bool:
    """Return whether a container without a GPU request may get a GPU through its environment."""
    last = {e["name"]: "$(?)" if "valueFrom" in e else e.get("value", "") for e in entries}
    if any(re.match(f"{p}.", name) for p in prefixes if p for name in VARIABLES - last.keys()):
        return True
    for name in VARIABLES & last.keys():
        words = re.findall(r"[^\s,]+", last[name])
        special = [word for word in words if word in ("all", "none")]
        hidden = not set(words) - {"void", "none"}
        if name == NVIDIA_VISIBLE_DEVICES:
            # Whatever a reference becomes, `void` beside it hides all GPUs.
            literal = re.sub(r"\$\([^)]*\)", "?", last[name])
            if "void" in map(str.strip, literal.split(",")):
                continue
            hidden = not words or "void" in words or special[:1] == ["none"]
        if "$(" in last[name] or not hidden:
            return True
    required = last.get(REQUIRE, "")
    formed = any(p and VERSION.startswith(p) for p in prefixes)
    version = last[VERSION] if VERSION in last else "$(?)" * formed
    return (
        NVIDIA_VISIBLE_DEVICES not in last and version != "" and (not required or "$(" in required)
    )


@given(st.lists(entries, max_size=5), st.lists(sources, max_size=2))
def test_the_rules_agree_with_an_oracle(
    variables: list[dict[str, Any]], origins: list[dict[str, Any]]
) -> None:
    manifest = pod(container(env=variables, envFrom=origins))
    assert bool(rules_found(manifest)) is may_see_gpu(variables, [o["prefix"] for o in origins])


FIX_ALL = policy(rules={name: {"fix": True} for name in CHANNELS})


@given(st.lists(entries, max_size=5), st.lists(sources, max_size=2))
def test_a_fixed_container_sees_no_gpu(
    variables: list[dict[str, Any]], origins: list[dict[str, Any]]
) -> None:
    result: Any = fixed(pod(container(env=variables, envFrom=origins)), FIX_ALL).manifest
    after = result["spec"]["containers"][0].get("env", [])
    assert not may_see_gpu(after, [o["prefix"] for o in origins])
    assert [e for e in after if e["name"] in ("MODE", VERSION, REQUIRE)] == [
        e for e in variables if e["name"] in ("MODE", VERSION, REQUIRE)
    ]


gpu_requests = st.sampled_from(
    [
        {"limits": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
        {"limits": {"nvidia.com/gpu.shared": 1}},
        {"limits": {"aliyun.com/gpu-mem": 4}},
        {"limits": {"amd.com/gpu": 1}},
        {"requests": {"nvidia.com/gpu": "{{ .gpus }}"}},
        {"claims": [{"name": "gpu"}]},
    ]
)


@given(st.lists(entries, max_size=5), st.lists(sources, max_size=2), gpu_requests)
def test_a_container_with_a_card_of_nvidia_is_never_given_a_variable(
    variables: list[dict[str, Any]], origins: list[dict[str, Any]], resources: dict[str, Any]
) -> None:
    given_gpu = container(env=variables, envFrom=origins, resources=resources, image="nvidia/cuda")
    rules = policy(voidEveryContainer=True, rules={name: {"fix": True} for name in CHANNELS})
    result: Any = fixed(pod(given_gpu, container("proxy")), rules).manifest
    after = result["spec"]["containers"][0].get("env", [])
    void = {"name": NVIDIA_VISIBLE_DEVICES, "value": "void"}
    # A card of another maker stays where the cards of NVIDIA are hidden.
    is_of_others = "claims" in resources or "amd.com/gpu" in resources.get("limits", {})
    hidden = [void] if is_of_others else []
    assert all(
        entry in (*variables, *hidden) or entry["name"] != NVIDIA_VISIBLE_DEVICES for entry in after
    )
    left = [entry.get("value", "") for entry in after if entry["name"] == NVIDIA_VISIBLE_DEVICES]
    if "claims" in resources:
        # A claim may be for a network card, and `void` does not stop the devices of a claim.
        value = parse_visibility(left[-1], NVIDIAS) if left else None
        assert value in (Visibility.HIDDEN, Visibility.DRIVER_ONLY, None)
    elif "amd.com/gpu" not in resources.get("limits", {}):
        assert not left
