"""Workloads at the real API server: spoken of when applied; their pods are what is fixed."""

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
    ALL_FIXES,
    apply,
    fixed_by,
    patch,
    path_of,
    running,
    stored,
)
from tests.testkit.paths import ROOT

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")

# Laid out as the linter writes YAML, so that its diff fits the file.
ASKING = """\
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
HOLDING = container(**gpus(limits=1))


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The linter as its users run it."""
    return subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.usefixtures("gpu_node")
def test_a_deployment_that_only_requests_is_refused_with_the_remedy_which_then_works(
    plane: ControlPlane, judged: str, tmp_path: Path
) -> None:
    file = tmp_path / "trainer.yaml"
    file.write_text(ASKING, encoding="utf-8")
    refused = apply(plane, judged, ASKING, check=False)
    assert refused.returncode == 1
    warning, rest = refused.stderr.split("\n", 1)
    assert warning.startswith("Warning: gpuward [request-only] ")
    assert 'write "nvidia.com/gpu: 1" under resources.limits' in warning
    assert "Limit must be set for non overcommitable resources" in rest
    announced = lint("--diff", str(file))
    assert announced.returncode == 1
    subprocess.run(["patch", str(file)], input=announced.stdout, text=True, check=True, timeout=60)
    assert file.read_text(encoding="utf-8").startswith(ASKING)
    accepted = apply(plane, judged, file.read_text(encoding="utf-8"))
    assert accepted.stdout == "deployment.apps/trainer created\n"
    assert "gpuward" not in accepted.stderr
    [made] = running(plane, judged)
    assert made["metadata"]["generateName"].startswith("trainer-")
    assert fixed_by(made) == set()


@pytest.mark.usefixtures("gpu_node")
def test_the_pods_of_a_job_are_fixed_and_run(plane: ControlPlane, judged: str) -> None:
    spec = {**pod(HOLDING)["spec"], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {"template": {"spec": spec}},
    }
    assert create(plane, judged, job).status == 201
    [made] = running(plane, judged)
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert fixed_by(made) == set(ALL_FIXES)
    eventually(
        lambda: stored(plane, "Job", judged, "training")["status"].get("succeeded") == 1,
        what="the job is done",
    )
    assert "tolerations" not in stored(plane, "Job", judged, "training")["spec"]["template"]["spec"]


@pytest.mark.usefixtures("gpu_node")
def test_the_pods_of_a_cron_job_are_fixed_and_run(plane: ControlPlane, judged: str) -> None:
    spec = {**pod(HOLDING)["spec"], "restartPolicy": "Never"}
    job = {"spec": {"template": {"spec": spec}}}
    nightly = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 * * * *", "jobTemplate": job},
    }
    assert create(plane, judged, nightly).status == 201
    # As if it had last run three hours ago, so that nobody has to wait for the next hour.
    ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=3)
    status = {"status": {"lastScheduleTime": ago.strftime("%Y-%m-%dT%H:%M:%SZ")}}
    path = path_of("CronJob", judged, "nightly", "status")
    assert patch(plane, path, status, how="merge-patch").status == 200
    [made] = running(plane, judged)
    assert made["metadata"]["name"].startswith("nightly-")
    assert fixed_by(made) == set(ALL_FIXES)


def test_a_deployment_is_warned_about_when_applied_and_its_pods_are_refused(
    plane: ControlPlane, judged: str
) -> None:
    taker = deployment(container(**variable("all")))
    done = apply(plane, judged, taker)
    assert done.stdout == "deployment.apps/trainer created\n"
    [warning] = done.stderr.splitlines()
    assert warning.startswith("Warning: gpuward [visible-devices-env] ")

    def failure() -> str:
        conditions = stored(plane, "Deployment", judged, "trainer")["status"].get("conditions", [])
        found: list[str] = [c["message"] for c in conditions if c["type"] == "ReplicaFailure"]
        return found[0] if found else ""

    said = eventually(failure, what="the Deployment tells why it has no pods")
    assert "denied the request: gpuward [visible-devices-env]" in said
    # A change of something else is not spoken of again.
    label = {"metadata": {"labels": {"team": "vision"}}}
    assert patch(plane, path_of("Deployment", judged, "trainer"), label).warnings == []


def test_what_is_only_spoken_of_is_stored_as_it_was_sent(plane: ControlPlane, judged: str) -> None:
    sent = deployment(HOLDING)
    answer = create(plane, judged, sent)
    assert answer.status == 201
    template = answer.body["spec"]["template"]
    assert "tolerations" not in template["spec"]
    assert "annotations" not in template["metadata"]
    assert "annotations" not in answer.body["metadata"]
