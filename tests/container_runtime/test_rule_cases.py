"""The answers of a rule about its cases are what NVIDIA's container runtime does to them.

The node reads everything that NVIDIA's toolkit can be told to read. A reference of a pod is as bad
as it can be: see `tests/testkit/container_runtime/pods.py`.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rules.finding import Action, Finding
from rules.gpu.images import is_agent_image, is_cuda_image
from tests.testkit.cases import Case, cases
from tests.testkit.container_runtime.executed import pods
from tests.testkit.container_runtime.node import NVIDIA, Answer, Node, Settings
from tests.testkit.container_runtime.pods import Asked, containers

# The rules about what NVIDIA's container runtime reads.
RULES = frozenset(
    {
        *("cdi-annotation", "claim-and-resource", "device-list-mount", "ephemeral-gpu"),
        *("gated-device-env", "gpu-container-hidden", "image-default-all", "imex-channels"),
        *("legacy-cuda-version", "mig-admin-env", "nodename-pinned", "runtimeclass-nvidia-no-gpu"),
        *("share-visible-devices", "share-without-card", "swarm-resource-env"),
        *("undeclared-claim", "unknown-driver-capability", "unused-claim"),
        *("visible-devices-configmap", "visible-devices-env", "visible-devices-envfrom"),
        *("visible-devices-none", "visible-devices-valuefrom", "zero-gpu"),
    }
)
SWARM = "DOCKER_RESOURCE_GPU,DOCKER_RESOURCE_GPUS,DOCKER_RESOURCE_CARD"
OPEN = [Settings(mode=mode, volume_mounts=True, swarm_resource=SWARM) for mode in ("cdi", "legacy")]
CASES = [case for case in cases() if case.rule in RULES]
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
ELSEWHERE = "it does not run where cards of NVIDIA are"
SILENT = {
    "ephemeral-gpu/clean-neuron": ELSEWHERE,
    "ephemeral-gpu/clean-no-gpu": ELSEWHERE,
    "image-default-all/clean-agent-of-nvidia": "an agent of the node needs all GPUs",
    "image-default-all/clean-exporter-of-the-chart": "an agent of the node needs all GPUs",
    "image-default-all/clean-ephemeral": "the pod has no node yet",
    "image-default-all/clean-runtimes": "another object asks for the GPUs",
    "legacy-cuda-version/clean-tpu": ELSEWHERE,
    "visible-devices-configmap/clean-other-namespace": "the ConfigMap is not the pod's",
    "visible-devices-env/clean-component": "a component of the GPU platform needs all GPUs",
    "visible-devices-valuefrom/clean-injected-by-the-platform": "the platform writes the reference",
}
"""Cases whose containers get devices that are not counted, of which no rule speaks: why."""
IMAGE_DECIDES = frozenset({"share-without-card"})
"""Rules that say so: their cases have an image that sets the variable."""
OTHER_MAKERS = re.compile(r"\b((?!NVIDIA)[A-Z_]+_VISIBLE_DEVICES|SWARM_GPU_)")
UNPROVEN = {
    "device-list-mount/other-file-of-the-node": "/dev/zero is not /dev/null on this node",
    "device-list-mount/through-a-process": "the kubelet resolves the link",
    "mig-admin-env/prefix": "no key completes the prefix here",
    "swarm-resource-env/pattern-of-a-profile": "only AMD's runtime reads a pattern",
}
"""Cases with errors of which the runtime shows nothing: why."""


def asked(case: Case, manifest: Any) -> Iterator[Asked]:
    """The containers of a case, with the ConfigMaps and Secrets that it knows."""
    known = case.circumstances.get("inventory", ())
    config = {
        entry["metadata"]["name"]: variables_of(entry)
        for entry in known
        if entry["kind"] in {"ConfigMap", "Secret"}
    }
    for pod in pods(manifest, case.policy.profile):
        plain, default_all = (containers(pod, image, config) for image in ({}, {NVIDIA: "all"}))
        for found, with_gpus in zip(plain, default_all, strict=True):
            image = found.view.image
            sets_all = is_cuda_image(image) or is_agent_image(image) or case.rule in IMAGE_DECIDES
            yield with_gpus if sets_all else found


def variables_of(entry: Any) -> dict[str, str]:
    """The variables of a ConfigMap or Secret as the kubelet reads them.

    What is no base64 is left out: the API server refuses such a Secret.
    """
    data = entry.get("data", {})
    if entry["kind"] == "ConfigMap":
        return dict(data)
    decoded = {}
    for key, text in data.items():
        with contextlib.suppress(ValueError):
            decoded[key] = base64.b64decode(text, validate=True).decode(errors="replace")
    return {**decoded, **entry.get("stringData", {})}


def answers(node: Node, found: Asked) -> list[Answer]:
    return [node.ask(found.container, settings) for settings in OPEN]


def grants(answer: Answer, found: Asked) -> bool:
    """Return whether a container got a device that was not counted for it."""
    return bool(answer.others or answer.gpus - found.counted)


def is_harmed(node: Node, found: Asked) -> bool:
    """Return whether the container gets other devices than those counted for it, or does not start.

    If its image decides, the image is one that sets the variable.
    """
    if any(a.error or a.others or a.gpus != found.counted for a in answers(node, found)):
        return True
    env = dict(found.container.env)
    with_gpu = found.container._replace(env=tuple({NVIDIA: "0", **env}.items()))
    return any(a.error or a.others for a in answers(node, found._replace(container=with_gpu)))


def is_about(finding: Finding, found: Asked) -> bool:
    """Return whether a finding is about the container, or about the whole pod."""
    return finding.container is None or finding.container.path == found.view.path


@EACH_CASE
def test_no_container_gets_uncounted_devices_in_silence(case: Case, node: Node) -> None:
    """With all rules, as the policy of the case says."""
    findings = case.check(case.manifest, case.rules).findings
    silent = [
        f"{found.view}: {answer}"
        for found in asked(case, case.manifest)
        if not any(is_about(finding, found) for finding in findings)
        for answer in answers(node, found)
        if grants(answer, found)
    ]
    assert bool(silent) == (case.name in SILENT), silent


@EACH_CASE
def test_an_error_is_about_what_the_runtime_does(case: Case, node: Node) -> None:
    errors = [
        finding
        for finding in case.check(case.manifest).findings
        if finding.action is Action.DENY and not OTHER_MAKERS.search(finding.message)
    ]
    unproven = [
        f"{found.view}: {[finding.message for finding in errors]}"
        for found in asked(case, case.manifest)
        if any(finding.container and is_about(finding, found) for finding in errors)
        if not is_harmed(node, found)
    ]
    assert bool(unproven) == (case.name in UNPROVEN), unproven


@EACH_CASE
def test_a_fixed_container_gets_what_is_counted(case: Case, node: Node) -> None:
    """If the fix leaves nothing to report."""
    fixed = case.fix(case.manifest)
    if not fixed.operations or fixed.remaining.findings:
        return
    wrong = [
        f"{found.view}: {answer}"
        for found in asked(case, fixed.manifest)
        for answer in answers(node, found)
        if grants(answer, found) or (answer.gpus != found.counted and not answer.error)
    ]
    assert not wrong
