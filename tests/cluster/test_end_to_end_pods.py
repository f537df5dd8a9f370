"""Pods at the real API server: fixed, scheduled by the real scheduler, run, or refused."""

from __future__ import annotations

import json
import ssl
import urllib.request

import pytest

from registration.configurations import MODE_LABEL
from tests.testkit.admission.registered_webhook import Server, create
from tests.testkit.admission.reviews import call, container, gpus, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import (
    ALL_FIXES,
    apply,
    fixed_by,
    running,
    stored,
    without_namespace,
)

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

HOLDER = pod(container(**gpus(limits=1)))
# All that a user reads of a pod that requests a GPU and does no more.
GOLDEN = (
    'Warning: gpuward [request-only] fixed in container "main": '
    "set the limit of nvidia.com/gpu as the request\n"
    "Warning: gpuward [toleration-default] fixed: tolerate nvidia.com/gpu:NoSchedule\n"
    "Warning: gpuward [affinity-default] fixed: add a node affinity for nvidia.com/gpu.present\n"
)


@pytest.mark.usefixtures("gpu_node")
def test_a_pod_that_would_stay_pending_is_scheduled_and_runs(
    plane: ControlPlane, judged: str
) -> None:
    alone = plane.namespace()
    assert create(plane, alone, HOLDER).status == 201
    assert create(plane, judged, HOLDER).status == 201

    def unschedulable() -> bool:
        status = stored(plane, "Pod", alone, "trainer")["status"]
        return any(c["reason"] == "Unschedulable" for c in status.get("conditions", []))

    eventually(unschedulable, what="nothing tolerates the taint without gpuward")
    [made] = running(plane, judged)
    assert fixed_by(made) == set(ALL_FIXES)
    assert create(plane, alone, HOLDER, dry_run=True).warnings == []
    assert plane.kubectl("delete", "pod", "trainer", "-n", alone, "--force").returncode == 0


@pytest.mark.usefixtures("gpu_node")
def test_a_pod_with_a_request_only_is_fixed_accepted_and_runs(
    plane: ControlPlane, judged: str
) -> None:
    asking = pod(container(**gpus(requests=1)))
    refused = create(plane, plane.namespace(), asking)
    assert refused.status == 422
    assert "Limit must be set" in refused.body["message"]
    done = apply(plane, judged, asking)
    assert done.stderr == GOLDEN
    assert done.stdout == "pod/trainer created\n"
    [made] = running(plane, judged)
    amounts = made["spec"]["containers"][0]["resources"]
    assert amounts["limits"] == amounts["requests"] == {"nvidia.com/gpu": "1"}
    assert fixed_by(made) == {"request-only", *ALL_FIXES}


def test_a_privileged_gpu_container_is_refused_with_our_message(
    plane: ControlPlane, judged: str
) -> None:
    done = apply(
        plane,
        judged,
        pod(container(**gpus(limits=1), securityContext={"privileged": True})),
        check=False,
    )
    assert done.returncode == 1
    assert "denied the request: gpuward [privileged-gpu] " in done.stderr
    assert 'container "main" is privileged in a pod that holds a GPU' in done.stderr
    assert plane.request("GET", f"/api/v1/namespaces/{judged}/pods/trainer").status == 404


def test_an_explicit_grant_is_refused_with_our_message(plane: ControlPlane, judged: str) -> None:
    taker = pod(container(**variable("all")), initContainers=[container("init", **variable("0"))])
    answer = create(plane, judged, taker)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    said = answer.body["message"]
    assert "gpuward found 2 faults" in said
    assert 'init container "init" sets NVIDIA_VISIBLE_DEVICES="0" without asking' in said
    assert 'container "main" sets NVIDIA_VISIBLE_DEVICES="all" without asking' in said
    assert [(c["reason"], c["field"]) for c in answer.body["details"]["causes"]] == [
        ("visible-devices-env", "spec.initContainers[0].env[0].value"),
        ("visible-devices-env", "spec.containers[0].env[0].value"),
    ]


def test_a_fraction_is_refused_by_the_api_server_with_our_explanation_beside_it(
    plane: ControlPlane, judged: str
) -> None:
    done = apply(plane, judged, pod(container(**gpus(limits="0.5"))), check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    [said] = [line for line in lines if line.startswith("Warning: gpuward [fractional-gpu] ")]
    assert "500m" in said
    assert 'The Pod "trainer" is invalid: ' in done.stderr
    assert "must be an integer" in done.stderr
    assert "denied the request" not in done.stderr


def test_a_fraction_is_refused_by_our_own_answer_when_asked_directly(
    plane: ControlPlane, server: Server
) -> None:
    asked = json.dumps(call(pod(container(**gpus(limits="0.5"))))).encode()
    url = f"{server.url}/validate/deny"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, asked, headers)  # noqa: S310  it is an https address
    trusted = ssl.create_default_context(cadata=plane.authority.bundle.decode())
    with urllib.request.urlopen(request, context=trusted) as answer:  # noqa: S310
        assert answer.status == 200
        told = json.load(answer)["response"]
    assert (told["allowed"], told["status"]["code"]) == (False, 403)
    assert "[fractional-gpu]" in told["status"]["message"]


@pytest.mark.usefixtures("gpu_node")
@pytest.mark.parametrize("value", ["all", "void"])
def test_the_variable_is_stripped_from_a_container_that_holds_a_gpu(
    plane: ControlPlane, judged: str, value: str
) -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}, {"name": "KEPT", "value": "1"}]
    answer = create(plane, judged, pod(container(**gpus(limits=1), env=env)))
    assert answer.status == 201
    assert any("remove NVIDIA_VISIBLE_DEVICES" in warning for warning in answer.warnings)
    [made] = running(plane, judged)
    assert made["spec"]["containers"][0]["env"] == [{"name": "KEPT", "value": "1"}]


def test_a_pod_without_a_name_of_its_own_is_fixed_and_refused_alike(
    plane: ControlPlane, judged: str
) -> None:
    asking = without_namespace(pod(container(**gpus(requests=1))))
    asking["metadata"] = {"generateName": "trainer-"}
    answer = create(plane, judged, asking)
    assert answer.status == 201
    assert answer.body["metadata"]["name"].startswith("trainer-")
    assert "request-only" in fixed_by(answer.body)
    taker = {**asking, "spec": pod(container(**variable("all")))["spec"]}
    assert create(plane, judged, taker).status == 403


def test_a_dry_run_is_answered_in_full_and_leaves_nothing(plane: ControlPlane, judged: str) -> None:
    done = apply(plane, judged, pod(container(**gpus(requests=1))), "--dry-run=server", "-ojson")
    assert "request-only" in fixed_by(json.loads(done.stdout))
    assert "gpuward [request-only] fixed" in done.stderr
    assert plane.request("GET", f"/api/v1/namespaces/{judged}/pods/trainer").status == 404
    taker = pod(container(**variable("all")))
    refused = apply(plane, judged, taker, "--dry-run=server", check=False)
    assert "gpuward [visible-devices-env]" in refused.stderr


def test_kube_system_is_never_ours(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespaces = plane.request("GET", "/api/v1/namespaces/kube-system").body
    assert MODE_LABEL not in namespaces["metadata"]["labels"]
    answer = create(plane, "kube-system", pod(container(**variable("all"))), dry_run=True)
    assert (answer.status, answer.warnings) == (201, [])
