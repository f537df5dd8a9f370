"""The readers of the cluster: the inventory, with which a pod is refused, and the doctor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.hooks import run_hook
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.permissions import may
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

VALUES: dict[str, Any] = merge_values(
    SLOW_MACHINE,
    {
        "mode": "deny",
        "clusterInventory": {
            "enabled": True,
            "configMaps": True,
            "nodes": True,
            "nodeNames": True,
            "queues": True,
            "namespaces": True,
        },
        "doctor": {"enabled": True},
    },
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/app:1",
                "envFrom": [{"configMapRef": {"name": "settings"}}],
            }
        ]
    },
}


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    """An installation with an inventory, which is compared every second."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(VALUES)
        path = "/spec/template/spec/containers/0/args/-"
        patch = json.dumps([{"op": "add", "path": path, "value": "--interval=1"}])
        target = ("deployment/gpuward-inventory", "-n", installation.namespace)
        chart_plane.kubectl("patch", *target, "--type=json", f"--patch={patch}")
        chart_plane.kubectl("rollout", "status", *target, TIMEOUT)
        yield installation


def test_a_pod_is_refused_for_what_its_config_map_says(installed: Installation) -> None:
    """The API server sends the pod although nothing in it names a GPU."""
    plane = installed.plane
    namespace = plane.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    data = {"NVIDIA_VISIBLE_DEVICES": "all"}
    plane.create(path, {"metadata": {"name": "settings"}, "data": data})

    def answer() -> tuple[int, str]:
        response = create(plane, namespace, POD, dry_run=True)
        return response.status, response.body.get("message", "")

    words = 'ConfigMap "settings", which sets NVIDIA_VISIBLE_DEVICES="all"'
    eventually(lambda: words in answer()[1], what="the webhook knows the ConfigMap")
    assert answer()[0] == 403
    plane.request("DELETE", f"{path}/settings")
    eventually(lambda: answer()[0] == 201, what="the webhook knows that it is gone")


def test_a_pod_for_which_no_node_fits_is_warned_about(installed: Installation) -> None:
    plane = installed.plane
    namespace = plane.namespace()
    limits = {"nvidia.com/gpu": 1}
    container = {"name": "main", "image": "example.com/app:1", "resources": {"limits": limits}}
    selector = {"nvidia.com/gpu.product": "no-such-card"}
    spec = {"containers": [container], "nodeSelector": selector}
    pod = {**POD, "spec": spec}

    def warnings() -> str:
        return str(create(plane, namespace, pod, dry_run=True).warnings)

    words = "no node has the label"
    eventually(lambda: words in (said := warnings()) and "no-fitting-node" in said, what=words)


def test_a_privileged_pod_that_names_a_gpu_node_is_refused(installed: Installation) -> None:
    """The API server sends such a pod: no label in it is one of GPU nodes."""
    plane = installed.plane
    namespace = plane.namespace()
    mark = {"nvidia.com/gpu.present": "true"}
    with_gpus, without_gpus = f"with-gpus-{namespace}", f"without-gpus-{namespace}"
    for name, labels in ((with_gpus, mark), (without_gpus, {})):
        hostname = {"kubernetes.io/hostname": name}
        node = {"metadata": {"name": name, "labels": {**labels, **hostname}}}
        plane.create("/api/v1/nodes", node)
    privileged = {"privileged": True}
    container = {"name": "main", "image": "example.com/app:1", "securityContext": privileged}

    def answer(**selection: Any) -> tuple[int, str]:
        pod = {**POD, "spec": {"containers": [container], **selection}}
        response = create(plane, namespace, pod, dry_run=True)
        return response.status, response.body.get("message", "")

    def by_label(name: str) -> dict[str, Any]:
        return {"nodeSelector": {"kubernetes.io/hostname": name}}

    def by_field(name: str) -> dict[str, Any]:
        field = {"key": "metadata.name", "operator": "In", "values": [name]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        return {"affinity": {"nodeAffinity": wanted}}

    eventually(lambda: answer(**by_label(with_gpus))[0] == 403, what="the webhook knows the node")
    assert (
        f'for the node "{with_gpus}", which has "nvidia.com/gpu.present"'
        in answer(**by_label(with_gpus))[1]
    )
    assert answer(**by_field(with_gpus))[0] == 403
    assert answer(nodeName=with_gpus)[0] == 403
    for allowed in (by_label(without_gpus), by_field(without_gpus)):
        assert answer(**allowed)[0] == 201
    assert answer(nodeName=without_gpus)[0] == 201
    assert answer()[0] == 201


def test_the_controller_may_do_what_it_needs_and_no_more(installed: Installation) -> None:
    """By the API server's own authorizer, as the account of the controller."""
    own = installed.namespace
    allowed = {
        ("list", "node.k8s.io", "runtimeclasses", "", "", ""),
        ("list", "", "nodes", "", "", ""),
        ("list", "resource.k8s.io", "deviceclasses", "", "", ""),
        ("list", "resource.k8s.io", "resourceclaims", "", "other", ""),
        ("list", "resource.k8s.io", "resourceclaimtemplates", "", "other", ""),
        ("list", "", "configmaps", "", "other", ""),
        *(
            (verb, "", "configmaps", "", own, f"gpuward-inventory-{part}")
            for verb in ("get", "update")
            for part in (0, 1)
        ),
    }
    refused = {
        ("get", "", "configmaps", "", "other", "x"),
        ("update", "", "configmaps", "", own, "gpuward-policy"),
        ("update", "", "configmaps", "", "other", "gpuward-inventory-0"),
        ("create", "", "configmaps", "", own, ""),
        ("delete", "", "configmaps", "", own, "gpuward-inventory-0"),
        ("list", "", "secrets", "", own, ""),
        ("get", "", "nodes", "", "", "x"),
        ("patch", "", "nodes", "", "", "x"),
        ("list", "resource.k8s.io", "resourceslices", "", "", ""),
        ("update", "resource.k8s.io", "resourceclaims", "", "other", "x"),
        ("list", "", "pods", "", "other", ""),
        ("watch", "", "configmaps", "", "other", ""),
    }
    found = {a for a in allowed | refused if may(installed.plane, own, "gpuward-inventory", a)}
    assert found == allowed


def test_the_doctor_sees_everything_and_may_do_no_more(installed: Installation) -> None:
    """By the API server's own authorizer. Names of Services cannot be resolved here."""
    installed.publish_ca_bundle()
    _, log = run_hook(installed, "doctor")
    needed = {line.strip() for line in log.splitlines() if "grant" in line}
    assert needed == {f"grant the right to get secrets in namespace {installed.namespace}"}
    for check in (
        "registration  .* as the chart recorded it",
        "policy  .* gpuward can use it",
        "release  .* of the release are there",
        "CA bundle  .* the CA is valid until",
        "namespaces  .* mode deny",
        "failed calls",
    ):
        assert re.search(f"^ok +{check}", log, re.MULTILINE), log
    plane, own = installed.plane, installed.namespace
    allowed = {
        ("list", "", "nodes", "", "", ""),
        ("list", "", "pods", "", "other", ""),
        ("list", "discovery.k8s.io", "endpointslices", "", "other", ""),
        ("get", "", "configmaps", "", own, "gpuward-registration"),
        ("get", "apps", "deployments", "", own, "gpuward-inventory"),
    }
    refused = {
        ("get", "", "nodes", "proxy", "", "x"),
        ("list", "", "secrets", "", own, ""),
        ("list", "", "configmaps", "", own, ""),
        ("get", "", "configmaps", "", own, "x"),
        ("get", "", "secrets", "", own, "gpuward-tls"),
        ("create", "", "pods", "", own, ""),
        ("delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "", "x"),
    }
    assert {a for a in allowed | refused if may(plane, own, "gpuward-doctor", a)} == allowed
