"""The enforcement of gpuward's rules in a namespace."""

from __future__ import annotations

from typing import Any

from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.end_to_end.steps import fixing_rules

# Without a token volume, because its name differs each time. BYPASS_POD sees all GPUs without
# requesting one; GPU_POD requests one GPU.
BYPASS_POD = pod(container(**variable("all")), automountServiceAccountToken=False)
GPU_POD = pod(container(**gpus(limits=1)), automountServiceAccountToken=False)
FIXES = {"affinity-default", "toleration-default"}
# gpuward never evaluates these namespaces.
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")


def enforcement_in(plane: Cluster, namespace: str) -> str:
    """Return what becomes of BYPASS_POD and of GPU_POD, as a dry run.

    `enforced`: the first is refused and the second is fixed. `warned`: both are admitted
    unchanged, with a warning that mode deny would refuse the first; what the second lacks is only
    a default, which is not worth a warning. `silent`: both are admitted unchanged and without a
    warning. AssertionError for anything else.
    """
    bypass, gpu = (
        create(plane, namespace, manifest, dry_run=True) for manifest in (BYPASS_POD, GPU_POD)
    )
    assert gpu.status == 201, gpu
    if bypass.status == REFUSED:
        assert "gpuward [visible-devices-env]" in bypass.body["message"], bypass
        assert fixing_rules(gpu.body) == FIXES, gpu
        assert any("[toleration-default] fixed" in line for line in gpu.warnings), gpu
        return "enforced"
    assert bypass.status == 201, bypass
    for manifest, answer in ((BYPASS_POD, bypass), (GPU_POD, gpu)):
        assert _as_stored(answer) == _as_stored(create(plane, SYSTEM[1], manifest, dry_run=True))
    assert gpu.warnings == [], gpu
    if not bypass.warnings:
        return "silent"
    line = "[visible-devices-env] would be refused in mode deny: "
    assert any(line in warning for warning in bypass.warnings), bypass
    return "warned"


def _as_stored(answer: Response) -> tuple[Any, Any]:
    metadata = answer.body["metadata"]
    return answer.body["spec"], (metadata.get("labels"), metadata.get("annotations"))
