"""Workloads at a real API server: a warning when they are applied, and fixes in their pods."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, gpus, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import (
    PLACEMENT_FIXES,
    api_path,
    apply,
    fixing_rules,
    get_object,
    patch,
    wait_until_running,
)
from tests.testkit.paths import ROOT

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

# In the layout in which the linter writes YAML, so that its diff applies to the file.
REQUEST_ONLY = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: trainer
spec:
  selector:
    matchLabels:
      app: trainer
  template:
    metadata:
      labels:
        app: trainer
    spec:
      containers:
        - name: main
          image: registry.example.com/app:1
          resources:
            requests:
              nvidia.com/gpu: 1
"""
GPU_CONTAINER = container(**gpus(limits=1))


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the linter as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.usefixtures("gpu_node")
def test_a_deployment_that_only_requests_is_refused_with_a_hint_that_makes_it_run(
    plane: ControlPlane, enforced_namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "trainer.yaml"
    file.write_text(REQUEST_ONLY, encoding="utf-8")
    refused = apply(plane, enforced_namespace, REQUEST_ONLY, check=False)
    assert refused.returncode == 1
    warning, rest = refused.stderr.split("\n", 1)
    assert warning.startswith("Warning: gpuward [request-only] ")
    assert 'write "nvidia.com/gpu: 1" under resources.limits' in warning
    assert "Limit must be set for non overcommitable resources" in rest
    linted = lint("--diff", "--notes", str(file))
    assert linted.returncode == 1
    subprocess.run(["patch", str(file)], input=linted.stdout, text=True, check=True, timeout=60)
    assert file.read_text(encoding="utf-8").startswith(REQUEST_ONLY)
    accepted = apply(plane, enforced_namespace, file.read_text(encoding="utf-8"))
    assert accepted.stdout == "deployment.apps/trainer created\n"
    assert "gpuward" not in accepted.stderr
    [made] = wait_until_running(plane, enforced_namespace)
    assert made["metadata"]["generateName"].startswith("trainer-")
    assert fixing_rules(made) == set()


@pytest.mark.usefixtures("gpu_node")
def test_the_pods_of_a_job_are_fixed_and_run(plane: ControlPlane, enforced_namespace: str) -> None:
    spec = {**pod(GPU_CONTAINER)["spec"], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {"template": {"spec": spec}},
    }
    assert create(plane, enforced_namespace, job).status == 201
    [made] = wait_until_running(plane, enforced_namespace)
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert fixing_rules(made) == set(PLACEMENT_FIXES)
    eventually(
        lambda: (
            get_object(plane, "Job", enforced_namespace, "training")["status"].get("succeeded") == 1
        ),
        what="the job is done",
    )
    assert (
        "tolerations"
        not in get_object(plane, "Job", enforced_namespace, "training")["spec"]["template"]["spec"]
    )


@pytest.mark.usefixtures("gpu_node")
def test_the_pods_of_a_cron_job_are_fixed_and_run(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    spec = {**pod(GPU_CONTAINER)["spec"], "restartPolicy": "Never"}
    job = {"spec": {"template": {"spec": spec}}}
    monthly = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "monthly"},
        "spec": {"schedule": "0 0 1 * *", "jobTemplate": job},
    }
    assert create(plane, enforced_namespace, monthly).status == 201
    # As if it had last run two months ago, so that it runs at once, and not soon again.
    last_run = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=62)
    status = {"status": {"lastScheduleTime": last_run.strftime("%Y-%m-%dT%H:%M:%SZ")}}
    path = api_path("CronJob", enforced_namespace, "monthly", "status")
    assert patch(plane, path, status, patch_type="merge-patch").status == 200
    [made] = wait_until_running(plane, enforced_namespace)
    assert made["metadata"]["name"].startswith("monthly-")
    assert fixing_rules(made) == set(PLACEMENT_FIXES)


def test_a_deployment_is_warned_about_when_applied_and_its_pods_are_refused(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    all_gpus_deployment = deployment(container(**variable("all")))
    done = apply(plane, enforced_namespace, all_gpus_deployment)
    assert done.stdout == "deployment.apps/trainer created\n"
    [warning] = done.stderr.splitlines()
    assert warning.startswith("Warning: gpuward [visible-devices-env] ")

    def failure() -> str:
        conditions = get_object(plane, "Deployment", enforced_namespace, "trainer")["status"].get(
            "conditions", []
        )
        found: list[str] = [c["message"] for c in conditions if c["type"] == "ReplicaFailure"]
        return found[0] if found else ""

    message = eventually(failure, what="the status of the Deployment says why it has no pods")
    assert "denied the request: gpuward [visible-devices-env]" in message
    # A change of something else causes no second warning.
    label = {"metadata": {"labels": {"team": "vision"}}}
    assert patch(plane, api_path("Deployment", enforced_namespace, "trainer"), label).warnings == []


def test_a_workload_that_is_only_warned_about_is_stored_unchanged(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    manifest = deployment(GPU_CONTAINER)
    answer = create(plane, enforced_namespace, manifest)
    assert answer.status == 201
    template = answer.body["spec"]["template"]
    assert "tolerations" not in template["spec"]
    assert "annotations" not in template["metadata"]
    assert "annotations" not in answer.body["metadata"]
