"""The mitigations in docs/coverage.md that are marked as tested."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.control_plane.quotas import await_quotas
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.coverage import annotation_attempts
from tests.testkit.coverage.table import bypasses
from tests.testkit.end_to_end.steps import api_path, get_object, namespace_with_policy, patch
from tests.testkit.paths import ROOT
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

CUDA = "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
MITIGATING_POLICY = """\
profiles:
  - name: own
    extends: [nvidia, koordinator]
    resources:
      example.com/a100: {vendor: nvidia}
    alternativeVariables: ["DOCKER_RESOURCE_*"]
voidEveryContainer: true
rules:
  reserved-gpushare-keys:
    options: {writers: ["system:serviceaccount:hami-system:hami-scheduler"]}
  left-queue:
    options: {controllers: ["system:serviceaccount:kueue-system:*"]}
"""


@pytest.fixture(scope="module")
def mitigated(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace whose policy has every mitigation that a policy can have."""
    folder = tmp_path_factory.mktemp("mitigations")
    with namespace_with_policy(
        plane, processes, folder, "gpuward-closing", MITIGATING_POLICY
    ) as namespace:
        yield namespace


@pytest.mark.parametrize("image", [CUDA, "registry.example.com/built-on-cuda:1"])
def test_a_policy_may_void_every_new_ephemeral_container(
    plane: ControlPlane, mitigated: str, image: str
) -> None:
    name = "debugged" if image == CUDA else "debugged-too"
    gpu_pod = {**pod(container(**gpus(limits=1))), "metadata": {"name": name}}
    assert create(plane, mitigated, gpu_pod).status == 201
    path = api_path("Pod", mitigated, name, "ephemeralcontainers")
    added = {"spec": {"ephemeralContainers": [container("debug", image=image)]}}
    assert patch(plane, path, added).status == 200
    [debug] = get_object(plane, "Pod", mitigated, name)["spec"]["ephemeralContainers"]
    assert debug["env"] == [VOID]
    # A container that exists cannot be changed; only the new one is.
    added["spec"]["ephemeralContainers"].append(container("second", image=image))
    assert patch(plane, path, added).status == 200
    both = get_object(plane, "Pod", mitigated, name)["spec"]["ephemeralContainers"]
    assert [debug["env"] for debug in both] == [[VOID], [VOID]]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("privileged-unknown", "privileged-gpu"), ("swarm-other-list", "swarm-resource-env")],
)
def test_a_profile_with_the_name_stops_the_bypass(
    plane: ControlPlane, mitigated: str, name: str, rule: str
) -> None:
    [bypass] = [bypass for bypass in bypasses() if bypass.name == name]
    answer = create(plane, mitigated, bypass.pod, dry_run=True)
    assert answer.status == 403
    assert f"[{rule}]" in answer.body["message"]


def test_the_profile_koordinator_names_the_scheduler(plane: ControlPlane, mitigated: str) -> None:
    [bypass] = [bypass for bypass in bypasses() if bypass.name == "koordinator-elsewhere"]
    answer = create(plane, mitigated, bypass.pod, dry_run=True)
    assert answer.body["spec"]["schedulerName"] == "koord-scheduler"


def test_a_policy_may_name_the_writers_of_annotations(plane: ControlPlane, mitigated: str) -> None:
    users = (f"system:serviceaccount:{mitigated}:default", "system:serviceaccount:ci:builder")
    for user in users:
        answer = annotation_attempts.annotate(plane, mitigated, user=user)
        assert answer.status == 403
        assert "[reserved-gpushare-keys]" in answer.body["message"]
    scheduler = annotation_attempts.OTHER_ACCOUNT
    assert annotation_attempts.annotate(plane, mitigated, user=scheduler).status == 200


def test_a_policy_may_name_the_controllers_of_queues(plane: ControlPlane, mitigated: str) -> None:
    queued = annotation_attempts.queued_pod(annotation_attempts.ADMISSION_GATE)
    queued["metadata"] |= {"name": "queued", "finalizers": []}
    assert create(plane, mitigated, queued).status == 201
    path = api_path("Pod", mitigated, "queued")
    for user, status in (
        ("system:serviceaccount:ci:builder", 403),
        (annotation_attempts.KUEUE, 200),
    ):
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        merge = "application/merge-patch+json"
        answer = plane.request("PATCH", path, annotation_attempts.NO_GATES, headers, merge)
        assert answer.status == status
        assert status == 200 or "[left-queue]" in answer.body["message"]


def test_a_container_created_with_void_keeps_it_with_a_new_image(
    plane: ControlPlane, mitigated: str
) -> None:
    plain = {**pod(container()), "metadata": {"name": "plain"}}
    assert create(plane, mitigated, plain).status == 201
    change = {"spec": {"containers": [{"name": "main", "image": CUDA}]}}
    assert patch(plane, api_path("Pod", mitigated, "plain"), change).status == 200
    [main] = get_object(plane, "Pod", mitigated, "plain")["spec"]["containers"]
    assert (main["image"], main["env"]) == (CUDA, [VOID])


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_the_roles_edit_and_admin_do_not_allow_the_bypasses(plane: ControlPlane, role: str) -> None:
    namespace = plane.namespace()
    subject = f"--serviceaccount={namespace}:default"
    plane.kubectl("create", "rolebinding", role, f"--clusterrole={role}", subject, "-n", namespace)
    await_rights(plane)
    user = f"system:serviceaccount:{namespace}:default"
    can_i = ["auth", "can-i", "--as", user, "-n", namespace]
    allowed = plane.kubectl(*can_i, "create", "pods", check=False).stdout
    refused = {
        plane.kubectl(*can_i, *words, check=False).stdout
        for words in (
            ("create", "pods", "--subresource=binding"),
            ("patch", "pods", "--subresource=status"),
            ("update", "pods", "--subresource=status"),
            ("patch", "resourceclaims", "--subresource=status"),
            ("update", "resourceclaims", "--subresource=status"),
            ("update", "resourceclaims", "--subresource=binding"),
            ("create", "persistentvolumes"),
            ("update", "namespaces"),
            ("patch", "namespaces"),
            ("update", "mutatingwebhookconfigurations"),
        )
    }
    assert (allowed, refused) == ("yes\n", {"no\n"})


def test_the_linter_reports_pods_that_exist_already(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    assert create(plane, namespace, pod(container(**variable("all")))).status == 201
    pods_yaml = plane.kubectl("get", "pods", "-n", namespace, "-o", "yaml").stdout
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "-"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        input=pods_yaml,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "visible-devices-env" in done.stdout


def test_a_quota_on_a_class_of_devices_counts_every_claim(plane: ControlPlane) -> None:
    if plane.request("GET", "/apis/resource.k8s.io/v1").status != 200:
        pytest.skip("this Kubernetes does not serve claims for devices by default")
    namespace = plane.namespace()
    key = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    plane.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {key: "0"}}})
    await_quotas(plane, namespace)
    paid = {"resource.kubernetes.io/extended-resource-claim": "true"}
    request = {"name": "card", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {
        "metadata": {"name": "second", "annotations": paid},
        "spec": {"devices": {"requests": [request]}},
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    answer = plane.request("POST", f"{path}?dryRun=All", claim)
    assert answer.status == 403, answer.body
    assert f"requested: {key}=1" in answer.body["message"]


def test_a_quota_keeps_pods_from_naming_the_pods_of_other_namespaces(plane: ControlPlane) -> None:
    namespace = plane.namespace({MODE_LABEL: "off"})
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    spec = {"hard": {"pods": "0"}, "scopes": ["CrossNamespacePodAffinity"]}
    plane.create(quotas, {"metadata": {"name": "q"}, "spec": spec})
    await_quotas(plane, namespace)
    pods = {bypass.name: bypass.pod for bypass in bypasses()}
    answer = create(plane, namespace, pods["privileged-near-the-device-plugin"], dry_run=True)
    assert answer.status == 403
    assert "exceeded quota: q" in answer.body["message"]
    near_its_own = create(plane, namespace, pods["privileged-near-a-gpu-pod"], dry_run=True)
    assert near_its_own.status == 201
