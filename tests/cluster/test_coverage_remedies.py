"""What closes a gap, as docs/coverage.md says where it says that it has been tried."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from registration.configurations import MODE_LABEL
from tests.testkit.admission.registered_webhook import Server, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.coverage.table import channels
from tests.testkit.end_to_end.steps import judging, patch, path_of, stored
from tests.testkit.paths import ROOT

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

CUDA = "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
CLOSING = """\
profiles:
  - name: ours
    extends: [nvidia]
    resources:
      example.com/a100: {vendor: nvidia}
    alternativeVariables: ["DOCKER_RESOURCE_*"]
voidEveryContainer: true
rules:
  ephemeral-gpu: {action: deny}
"""


@pytest.fixture(scope="module")
def closed(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace whose policy closes what a policy can close."""
    folder = tmp_path_factory.mktemp("closing")
    with judging(plane, processes, folder, "gpuward-closing", CLOSING) as namespace:
        yield namespace


def test_a_policy_may_refuse_cuda_images_in_ephemeral_containers(
    plane: ControlPlane, closed: str
) -> None:
    holder = {**pod(container(**gpus(limits=1))), "metadata": {"name": "holder"}}
    assert create(plane, closed, holder).status == 201
    path = path_of("Pod", closed, "holder", "ephemeralcontainers")
    added = {"spec": {"ephemeralContainers": [container("debug", image=CUDA)]}}
    answer = patch(plane, path, added)
    assert answer.status == 403
    assert "[ephemeral-gpu]" in answer.body["message"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("privileged-unknown", "privileged-gpu"), ("swarm-other", "swarm-resource-env")],
)
def test_a_profile_makes_a_name_known(
    plane: ControlPlane, closed: str, name: str, rule: str
) -> None:
    [unknown] = [channel for channel in channels() if channel.name == name]
    answer = create(plane, closed, unknown.pod, dry_run=True)
    assert answer.status == 403
    assert f"[{rule}]" in answer.body["message"]


def test_what_is_void_from_the_start_stays_void_under_a_new_image(
    plane: ControlPlane, closed: str
) -> None:
    plain = {**pod(container()), "metadata": {"name": "plain"}}
    assert create(plane, closed, plain).status == 201
    change = {"spec": {"containers": [{"name": "main", "image": CUDA}]}}
    assert patch(plane, path_of("Pod", closed, "plain"), change).status == 200
    [main] = stored(plane, "Pod", closed, "plain")["spec"]["containers"]
    assert (main["image"], main["env"]) == (CUDA, [VOID])


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_who_may_edit_a_namespace_may_not_do_what_administrators_do(
    plane: ControlPlane, role: str
) -> None:
    namespace = plane.namespace()
    subject = f"--serviceaccount={namespace}:default"
    plane.kubectl("create", "rolebinding", role, f"--clusterrole={role}", subject, "-n", namespace)
    user = f"system:serviceaccount:{namespace}:default"
    asked = ["auth", "can-i", "--as", user, "-n", namespace]
    allowed = plane.kubectl(*asked, "create", "pods", check=False).stdout
    refused = {
        plane.kubectl(*asked, *words, check=False).stdout
        for words in (
            ("create", "pods", "--subresource=binding"),
            ("create", "persistentvolumes"),
            ("update", "namespaces"),
            ("patch", "namespaces"),
            ("update", "mutatingwebhookconfigurations"),
        )
    }
    assert (allowed, refused) == ("yes\n", {"no\n"})


def test_the_linter_finds_what_was_there_before(plane: ControlPlane, server: Server) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "off"})
    assert create(plane, namespace, pod(container(**variable("all")))).status == 201
    there = plane.kubectl("get", "pods", "-n", namespace, "-o", "yaml").stdout
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "-"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        input=there,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "visible-devices-env" in done.stdout
