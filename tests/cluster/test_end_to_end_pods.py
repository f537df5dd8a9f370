"""Pods at a real API server: fixed, scheduled by the real scheduler and run, or refused."""

from __future__ import annotations

import json
import ssl
import urllib.request

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod, review_body, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import (
    PLACEMENT_FIXES,
    apply,
    fixing_rules,
    get_object,
    wait_until_running,
    without_namespace,
)
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

GPU_POD = pod(container(**gpus(limits=1)))
# All warnings about a pod that only requests a GPU.
WARNINGS = (
    'Warning: gpuward [request-only] fixed in container "main": '
    "set the limit of nvidia.com/gpu as the request\n"
    "Warning: gpuward [toleration-default] fixed: tolerate nvidia.com/gpu:NoSchedule\n"
    "Warning: gpuward [affinity-default] fixed: "
    "add a node affinity for nvidia.com/gpu.present=true\n"
)


@pytest.mark.usefixtures("gpu_node")
def test_a_pod_that_would_stay_pending_is_scheduled_and_runs(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    other_namespace = plane.namespace()
    assert create(plane, other_namespace, GPU_POD).status == 201
    assert create(plane, enforced_namespace, GPU_POD).status == 201

    def is_unschedulable() -> bool:
        status = get_object(plane, "Pod", other_namespace, "trainer")["status"]
        return any(c.get("reason") == "Unschedulable" for c in status.get("conditions", []))

    eventually(is_unschedulable, what="nothing tolerates the taint without gpuward")
    [made] = wait_until_running(plane, enforced_namespace)
    assert fixing_rules(made) == set(PLACEMENT_FIXES)
    assert create(plane, other_namespace, GPU_POD, dry_run=True).warnings == []
    assert (
        plane.kubectl("delete", "pod", "trainer", "-n", other_namespace, "--force").returncode == 0
    )


@pytest.mark.usefixtures("gpu_node")
def test_a_pod_with_a_request_only_is_fixed_accepted_and_runs(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    manifest = pod(container(**gpus(requests=1)))
    refused = create(plane, plane.namespace(), manifest)
    assert refused.status == 422
    assert "Limit must be set" in refused.body["message"]
    done = apply(plane, enforced_namespace, manifest)
    assert done.stderr == WARNINGS
    assert done.stdout == "pod/trainer created\n"
    [made] = wait_until_running(plane, enforced_namespace)
    amounts = made["spec"]["containers"][0]["resources"]
    assert amounts["limits"] == amounts["requests"] == {"nvidia.com/gpu": "1"}
    assert fixing_rules(made) == {"request-only", *PLACEMENT_FIXES}


def test_a_privileged_gpu_container_is_refused_with_the_rule_message(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    done = apply(
        plane,
        enforced_namespace,
        pod(container(**gpus(limits=1), securityContext={"privileged": True})),
        check=False,
    )
    assert done.returncode == 1
    assert "denied the request: gpuward [privileged-gpu] " in done.stderr
    message = 'container "main" is privileged in a pod that asks for "nvidia.com/gpu"'
    assert message in done.stderr
    assert (
        plane.request("GET", f"/api/v1/namespaces/{enforced_namespace}/pods/trainer").status == 404
    )


def test_an_explicit_variable_is_refused_with_the_rule_message(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    bypass_pod = pod(
        container(**variable("all")), initContainers=[container("init", **variable("0"))]
    )
    answer = create(plane, enforced_namespace, bypass_pod)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    message = answer.body["message"]
    assert "denied the request: gpuward [visible-devices-env] init container " in message
    assert "; and 1 more fault:\n- [visible-devices-env] " in message
    assert 'init container "init" sets NVIDIA_VISIBLE_DEVICES="0" without asking' in message
    assert 'container "main" sets NVIDIA_VISIBLE_DEVICES="all" without asking' in message
    assert [(c["reason"], c["field"]) for c in answer.body["details"]["causes"]] == [
        ("visible-devices-env", "spec.initContainers[0].env[0].value"),
        ("visible-devices-env", "spec.containers[0].env[0].value"),
    ]


def test_a_fraction_is_refused_by_the_api_server_with_a_warning_that_explains_it(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    done = apply(plane, enforced_namespace, pod(container(**gpus(limits="0.5"))), check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    [message] = [line for line in lines if line.startswith("Warning: gpuward [fractional-gpu] ")]
    assert "500m" in message
    assert 'The Pod "trainer" is invalid: ' in done.stderr
    assert "must be an integer" in done.stderr
    assert "denied the request" not in done.stderr


def test_a_fraction_is_refused_by_gpuward_when_it_is_called_directly(
    plane: ControlPlane, server: Server
) -> None:
    review = json.dumps(review_body(pod(container(**gpus(limits="0.5"))))).encode()
    url = f"{server.url}/validate/deny"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, review, headers)  # noqa: S310  it is an https address
    trusted = ssl.create_default_context(cadata=plane.authority.bundle.decode())
    with urllib.request.urlopen(request, context=trusted) as answer:  # noqa: S310
        assert answer.status == 200
        response = json.load(answer)["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 403)
    assert "[fractional-gpu]" in response["status"]["message"]


@pytest.mark.usefixtures("gpu_node")
@pytest.mark.parametrize("value", ["all", "void"])
def test_the_variable_is_removed_from_a_container_that_requests_a_gpu(
    plane: ControlPlane, enforced_namespace: str, value: str
) -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}, {"name": "OTHER", "value": "1"}]
    answer = create(plane, enforced_namespace, pod(container(**gpus(limits=1), env=env)))
    assert answer.status == 201
    assert any("remove NVIDIA_VISIBLE_DEVICES" in warning for warning in answer.warnings)
    [made] = wait_until_running(plane, enforced_namespace)
    assert made["spec"]["containers"][0]["env"] == [{"name": "OTHER", "value": "1"}]


def test_a_pod_with_a_generated_name_is_fixed_or_refused_in_the_same_way(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    manifest = without_namespace(pod(container(**gpus(requests=1))))
    manifest["metadata"] = {"generateName": "trainer-"}
    answer = create(plane, enforced_namespace, manifest)
    assert answer.status == 201
    assert answer.body["metadata"]["name"].startswith("trainer-")
    assert "request-only" in fixing_rules(answer.body)
    bypass_pod = {**manifest, "spec": pod(container(**variable("all")))["spec"]}
    assert create(plane, enforced_namespace, bypass_pod).status == 403


def test_a_dry_run_gets_the_same_response_and_stores_nothing(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    done = apply(
        plane, enforced_namespace, pod(container(**gpus(requests=1))), "--dry-run=server", "-ojson"
    )
    assert "request-only" in fixing_rules(json.loads(done.stdout))
    assert "gpuward [request-only] fixed" in done.stderr
    assert (
        plane.request("GET", f"/api/v1/namespaces/{enforced_namespace}/pods/trainer").status == 404
    )
    bypass_pod = pod(container(**variable("all")))
    refused = apply(plane, enforced_namespace, bypass_pod, "--dry-run=server", check=False)
    assert "gpuward [visible-devices-env]" in refused.stderr


def test_kube_system_is_never_evaluated(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespaces = plane.request("GET", "/api/v1/namespaces/kube-system").body
    assert MODE_LABEL not in namespaces["metadata"]["labels"]
    answer = create(plane, "kube-system", pod(container(**variable("all"))), dry_run=True)
    assert (answer.status, answer.warnings) == (201, [])
