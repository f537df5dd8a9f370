"""What happens at the real API server to pods that exist already, and through their back doors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from registration.configurations import MODE_LABEL
from tests.testkit.admission.registered_webhook import Server, create, is_enforced
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import patch, path_of, stored

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

TAKER = pod(container(**variable("all")))
DEBUGGER = "registry.example.com/tools:1"


def ephemeral(*containers: dict[str, Any]) -> dict[str, Any]:
    """What is sent to pods/ephemeralcontainers."""
    return {"spec": {"ephemeralContainers": list(containers)}}


def names_of(made: Any) -> list[str]:
    """The ephemeral containers of a pod, as they stand in it."""
    return [container["name"] for container in made["spec"]["ephemeralContainers"]]


@pytest.fixture
def target(plane: ControlPlane, judged: str) -> tuple[str, str]:
    """A namespace with a pod that holds a GPU, and where its ephemeral containers are."""
    assert create(plane, judged, pod(container(**gpus(limits=1)))).status == 201
    return judged, path_of("Pod", judged, "trainer", "ephemeralcontainers")


def test_kubectl_debug_does_not_open_the_hole(plane: ControlPlane, target: tuple[str, str]) -> None:
    namespace, _ = target
    common = ("debug", "trainer", "-n", namespace, "--image", DEBUGGER, "--attach=false")
    granting = plane.kubectl(*common, "--env=NVIDIA_VISIBLE_DEVICES=all", check=False)
    assert granting.returncode == 1
    assert "denied the request: gpuward [visible-devices-env]" in granting.stderr
    privileged = plane.kubectl(*common, "--profile=sysadmin", check=False)
    assert privileged.returncode == 1
    assert "denied the request: gpuward [privileged-gpu]" in privileged.stderr
    assert "ephemeralContainers" not in stored(plane, "Pod", namespace, "trainer")["spec"]
    plane.kubectl(*common, "--container=harmless")
    assert names_of(stored(plane, "Pod", namespace, "trainer")) == ["harmless"]


def test_a_patch_of_ephemeral_containers_does_not_open_the_hole(
    plane: ControlPlane, target: tuple[str, str]
) -> None:
    namespace, path = target
    assert patch(plane, path, ephemeral(container("first"))).status == 200
    bad = container("second", **variable("all"))
    # By a strategic merge new containers come first, and the old one moves.
    merged = patch(plane, path, ephemeral(bad))
    added = {"op": "add", "path": "/spec/ephemeralContainers/-", "value": bad}
    appended = patch(plane, path, [added], how="json-patch")
    for answer in (merged, appended):
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert '"second" sets NVIDIA_VISIBLE_DEVICES="all"' in answer.body["message"]
    assert names_of(stored(plane, "Pod", namespace, "trainer")) == ["first"]


def test_a_new_ephemeral_container_is_fixed_and_the_old_one_is_not_touched(
    plane: ControlPlane, target: tuple[str, str]
) -> None:
    namespace, path = target
    assert patch(plane, path, ephemeral(container("first"))).status == 200
    legacy = container("second", **variable("12.4", "CUDA_VERSION"))
    answer = patch(plane, path, ephemeral(legacy))
    assert answer.status == 200
    assert any("gpuward [legacy-cuda-version] fixed" in said for said in answer.warnings)
    made = stored(plane, "Pod", namespace, "trainer")
    assert names_of(made) == ["second", "first"]
    second, first = made["spec"]["ephemeralContainers"]
    assert second["env"][-1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert "env" not in first


def test_the_ephemeral_containers_of_the_past_hold_nobody_up(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    assert create(plane, namespace, pod(container())).status == 201
    path = path_of("Pod", namespace, "trainer", "ephemeralcontainers")
    old = container("old", **variable("all"))
    assert patch(plane, path, ephemeral(old)).status == 200
    enforce(plane, namespace)
    assert patch(plane, path, ephemeral(container("new"))).status == 200
    refused = patch(plane, path, ephemeral(container("newer", **variable("all"))))
    assert refused.status == 403
    assert '"newer"' in refused.body["message"]
    assert '"old"' not in refused.body["message"]


def enforce(plane: ControlPlane, namespace: str) -> None:
    """Have a namespace judged from now on."""
    plane.kubectl("label", "--overwrite", "namespace", namespace, f"{MODE_LABEL}=deny")
    eventually(lambda: is_enforced(plane, namespace), what=f"{namespace} is judged")


@pytest.fixture
def old(plane: ControlPlane, server: Server) -> Iterator[str]:
    """A namespace that is judged since yesterday, with an older pod that takes every GPU."""
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    faulty = {**TAKER, "metadata": {**TAKER["metadata"], "finalizers": ["example.com/quota"]}}
    assert create(plane, namespace, faulty).status == 201
    enforce(plane, namespace)
    yield namespace
    freed = {"metadata": {"finalizers": None}}
    patch(plane, path_of("Pod", namespace, "trainer"), freed, how="merge-patch")


def test_an_old_faulty_pod_is_labelled_and_loses_its_finalizers(
    plane: ControlPlane, old: str
) -> None:
    labelled = plane.kubectl("label", "pod", "trainer", "team=vision", "-n", old)
    assert labelled.stderr == ""
    path = path_of("Pod", old, "trainer")
    deleted = plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
    assert deleted.body["metadata"]["finalizers"] == ["example.com/quota"]
    freed = patch(plane, path, {"metadata": {"finalizers": None}}, how="merge-patch")
    assert freed.status == 200
    eventually(lambda: plane.request("GET", path).status == 404, what="the pod is gone")


def test_an_update_is_refused_for_what_it_brings_alone(plane: ControlPlane, old: str) -> None:
    key = "nvidia.cdi.k8s.io/pod"
    wish = f"{key}=nvidia.com/gpu=all"
    done = plane.kubectl("annotate", "pod", "trainer", wish, "-n", old, check=False)
    assert done.returncode == 1
    assert "denied the request: gpuward [nri-cdi-annotation]" in done.stderr
    assert "visible-devices-env" not in done.stderr


def test_the_mirror_of_a_static_pod_passes_untouched(plane: ControlPlane, judged: str) -> None:
    mirror = {**TAKER, "spec": {**TAKER["spec"], "nodeName": "somewhere"}}
    mirror["metadata"] = {
        **TAKER["metadata"],
        "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"},
    }
    answer = create(plane, judged, mirror, dry_run=True)
    assert (answer.status, answer.warnings) == (201, [])
    assert answer.body["spec"]["containers"][0]["env"] == TAKER["spec"]["containers"][0]["env"]
