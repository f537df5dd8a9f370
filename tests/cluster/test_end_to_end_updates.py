"""Updates of existing pods and their ephemeral containers at a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create, is_enforced
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import api_path, get_object, patch
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

BYPASS_POD = pod(container(**variable("all")))
DEBUGGER = "registry.example.com/tools:1"


def ephemeral(*containers: dict[str, Any]) -> dict[str, Any]:
    """A patch for the subresource pods/ephemeralcontainers."""
    return {"spec": {"ephemeralContainers": list(containers)}}


def names_of(made: Any) -> list[str]:
    """The names of a pod's ephemeral containers, in their order."""
    return [container["name"] for container in made["spec"]["ephemeralContainers"]]


@pytest.fixture
def target(plane: ControlPlane, enforced_namespace: str) -> tuple[str, str]:
    """A namespace with a pod that requests a GPU, and the API path of its ephemeral containers."""
    assert create(plane, enforced_namespace, pod(container(**gpus(limits=1)))).status == 201
    return enforced_namespace, api_path("Pod", enforced_namespace, "trainer", "ephemeralcontainers")


def test_kubectl_debug_cannot_bypass_the_rules(
    plane: ControlPlane, target: tuple[str, str]
) -> None:
    namespace, _ = target
    common = ("debug", "trainer", "-n", namespace, "--image", DEBUGGER, "--attach=false")
    with_variable = plane.kubectl(*common, "--env=NVIDIA_VISIBLE_DEVICES=all", check=False)
    assert with_variable.returncode == 1
    assert "denied the request: gpuward [visible-devices-env]" in with_variable.stderr
    privileged = plane.kubectl(*common, "--profile=sysadmin", check=False)
    assert privileged.returncode == 1
    assert "denied the request: gpuward [privileged-gpu]" in privileged.stderr
    assert "ephemeralContainers" not in get_object(plane, "Pod", namespace, "trainer")["spec"]
    plane.kubectl(*common, "--container=harmless")
    assert names_of(get_object(plane, "Pod", namespace, "trainer")) == ["harmless"]


def test_a_patch_of_ephemeral_containers_cannot_bypass_the_rules(
    plane: ControlPlane, target: tuple[str, str]
) -> None:
    namespace, path = target
    assert patch(plane, path, ephemeral(container("first"))).status == 200
    bad = container("second", **variable("all"))
    # A strategic merge patch puts new containers first, so the index of the old one changes.
    merged = patch(plane, path, ephemeral(bad))
    added = {"op": "add", "path": "/spec/ephemeralContainers/-", "value": bad}
    appended = patch(plane, path, [added], patch_type="json-patch")
    for answer in (merged, appended):
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert '"second" sets NVIDIA_VISIBLE_DEVICES="all"' in answer.body["message"]
    assert names_of(get_object(plane, "Pod", namespace, "trainer")) == ["first"]


def test_a_new_ephemeral_container_is_fixed_and_the_old_one_is_not_touched(
    plane: ControlPlane, target: tuple[str, str]
) -> None:
    namespace, path = target
    assert patch(plane, path, ephemeral(container("first"))).status == 200
    legacy = container("second", **variable("12.4", "CUDA_VERSION"))
    answer = patch(plane, path, ephemeral(legacy))
    assert answer.status == 200
    assert any("gpuward [legacy-cuda-version] fixed" in warning for warning in answer.warnings)
    made = get_object(plane, "Pod", namespace, "trainer")
    assert names_of(made) == ["second", "first"]
    second, first = made["spec"]["ephemeralContainers"]
    assert second["env"][-1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert "env" not in first


def test_existing_ephemeral_containers_do_not_block_new_ones(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    assert create(plane, namespace, pod(container())).status == 201
    path = api_path("Pod", namespace, "trainer", "ephemeralcontainers")
    old = container("old", **variable("all"))
    assert patch(plane, path, ephemeral(old)).status == 200
    enforce(plane, namespace)
    assert patch(plane, path, ephemeral(container("new"))).status == 200
    refused = patch(plane, path, ephemeral(container("newer", **variable("all"))))
    assert refused.status == 403
    assert '"newer"' in refused.body["message"]
    assert '"old"' not in refused.body["message"]


def enforce(plane: ControlPlane, namespace: str) -> None:
    """Put a namespace into mode deny."""
    plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=deny")
    eventually(lambda: is_enforced(plane, namespace), what=f"{namespace} is enforced")


@pytest.fixture
def old(plane: ControlPlane, server: Server) -> Iterator[str]:
    """A namespace in mode deny with a pod from before, which sets the variable."""
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    faulty = {
        **BYPASS_POD,
        "metadata": {**BYPASS_POD["metadata"], "finalizers": ["example.com/quota"]},
    }
    assert create(plane, namespace, faulty).status == 201
    enforce(plane, namespace)
    yield namespace
    freed = {"metadata": {"finalizers": None}}
    patch(plane, api_path("Pod", namespace, "trainer"), freed, patch_type="merge-patch")


def test_an_old_faulty_pod_can_be_labeled_and_its_finalizers_removed(
    plane: ControlPlane, old: str
) -> None:
    labelled = plane.kubectl("label", "pod", "trainer", "team=vision", "-n", old)
    assert labelled.stderr == ""
    path = api_path("Pod", old, "trainer")
    deleted = plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
    assert deleted.body["metadata"]["finalizers"] == ["example.com/quota"]
    freed = patch(plane, path, {"metadata": {"finalizers": None}}, patch_type="merge-patch")
    assert freed.status == 200
    eventually(lambda: plane.request("GET", path).status == 404, what="the pod is gone")


def test_an_update_is_refused_only_for_what_it_adds(plane: ControlPlane, old: str) -> None:
    key = "nvidia.cdi.k8s.io/pod"
    annotation = f"{key}=nvidia.com/gpu=all"
    done = plane.kubectl("annotate", "pod", "trainer", annotation, "-n", old, check=False)
    assert done.returncode == 1
    assert "denied the request: gpuward [nri-cdi-annotation]" in done.stderr
    assert "visible-devices-env" not in done.stderr


def test_the_mirror_of_a_static_pod_is_admitted_unchanged(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    mirror = {**BYPASS_POD, "spec": {**BYPASS_POD["spec"], "nodeName": "somewhere"}}
    mirror["metadata"] = {
        **BYPASS_POD["metadata"],
        "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"},
    }
    kubelet = "system:node:somewhere"
    answer = create(plane, enforced_namespace, mirror, dry_run=True, user=kubelet)
    assert (answer.status, answer.warnings) == (201, [])
    assert answer.body["spec"]["containers"][0]["env"] == BYPASS_POD["spec"]["containers"][0]["env"]


def _as(plane: ControlPlane, user: str, path: str, change: Any) -> Any:
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    return plane.request("PATCH", path, change, headers, "application/merge-patch+json")


def test_kueue_admits_a_pod_that_its_user_cannot_take_out_of_the_queue(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    namespace = enforced_namespace
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]
    queued = pod(container(**gpus(limits=1)), schedulingGates=gates)
    queued["metadata"] |= {
        "labels": {"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/managed": "true"},
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    assert create(plane, namespace, queued).status == 201
    path = api_path("Pod", namespace, "trainer")
    finished = {"metadata": {"finalizers": None}}
    released = {"spec": {"schedulingGates": None}}
    alone = {"metadata": {"labels": None, "finalizers": None}, **released}
    for change in (finished, released, alone, {"metadata": {"labels": None}}):
        refused = _as(plane, "alice", path, change)
        assert refused.status == 403
        assert "[left-queue]" in refused.body["message"]
    moved = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "b", "team": "vision"}}}
    assert _as(plane, "alice", path, moved).status == 200
    kueue = "system:serviceaccount:batch-platform:queueing"
    assert _as(plane, kueue, path, released).status == 200
    assert plane.request("DELETE", f"{path}?gracePeriodSeconds=0").status == 200
    assert _as(plane, "alice", path, finished).status == 200, "nothing keeps a deleted pod"
    eventually(lambda: plane.request("GET", path).status == 404, what="the pod is gone")


def test_controllers_adopt_a_faulty_pod(plane: ControlPlane, old: str) -> None:
    path = api_path("Pod", old, "trainer")
    tracked = {"metadata": {"finalizers": ["example.com/quota", "example.com/more"]}}
    assert _as(plane, "alice", path, tracked).status == 200
    status = {"status": {"reason": "seen"}}
    assert _as(plane, "system:node:gpu-1", f"{path}/status", status).status == 200
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1"}
    owned = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    assert _as(plane, controller, path, owned).status == 200
    # There is no such owner, so the garbage collector deletes the pod now.
    assert _as(plane, "alice", path, {"metadata": {"ownerReferences": None}}).status == 200
