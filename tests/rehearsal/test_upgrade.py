"""From 0.1.0 to the next version and back, with what a cluster has of 0.1.0 in place."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.enforcement import BYPASS_POD
from tests.testkit.admission.pod_creator import PodCreator
from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.release.chart import PushedChart
from tests.testkit.release.repository import NEXT_VERSION, VERSION

RULE = "visible-devices-env"
VALUES: dict[str, Any] = {
    "mode": "deny",
    "policy": {
        "rules": {"privileged-gpu": {"action": "warn"}},
        "gpuExceptions": [
            {"rules": [RULE], "namespaces": "test-*", "longestDays": 30, "approval": "none"}
        ],
    },
    "gpuExceptions": {"enabled": True},
    "audit": {"enabled": True, "kind": "Deployment", "publish": "policyreport"},
    "registration": {"timeoutSeconds": 30},  # a slow request does not time out on a busy machine
}
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuexceptions.gpuward.io"
EXPIRES = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=7)
EXCEPTION = {
    "apiVersion": "gpuward.io/v1alpha1",
    "kind": "GpuException",
    "metadata": {"name": "bring-up"},
    "spec": {"rules": [RULE], "reason": "bring-up", "expires": str(EXPIRES)},
}


class State:
    """The objects that a cluster has of a release, beside what helm writes."""

    def __init__(self, released: Installation, excepted: str, audited: str) -> None:
        self._released, self._plane = released, released.plane
        self._exceptions = f"/apis/gpuward.io/v1alpha1/namespaces/{excepted}/gpuexceptions/bring-up"
        self._reports = f"/apis/wgpolicyk8s.io/v1alpha2/namespaces/{audited}/policyreports"

    def is_complete(self) -> bool:
        """Return whether the first audit has written its report, and the exception is accepted."""
        return bool(self._findings()) and self._acceptance() == [("Accepted", "True")]

    def read(self) -> dict[str, Any]:
        """All of it, to be compared: the same objects, with the same content."""
        secrets = ("gpuward-ca", "gpuward-tls")
        exception = self._plane.request("GET", self._exceptions).body
        return {
            "certificates": {
                name: self._released.get(f"secret/{name}")["data"] for name in secrets
            },
            "CA bundles": self._released.ca_bundles(),
            "policy": self._released.get("configmap/gpuward-policy")["data"],
            "exception": (exception["metadata"]["uid"], exception["spec"], self._acceptance()),
            "reports": self._findings(),
        }

    def _acceptance(self) -> list[tuple[str, str]]:
        body = self._plane.request("GET", self._exceptions).body
        conditions = body.get("status", {}).get("conditions", [])
        return [(one["type"], one["status"]) for one in conditions]

    def _findings(self) -> list[tuple[str, list[str]]]:
        """The identity and the rules of each report of the audited namespace."""
        items = self._plane.request("GET", self._reports).body.get("items", [])
        return [
            (item["metadata"]["uid"], sorted(one["rule"] for one in item["results"]))
            for item in items
        ]


@pytest.fixture
def in_use(
    released: Installation,
    charts: dict[str, PushedChart],
    trust: str,
    report_definitions: list[Path],
) -> Iterator[tuple[Installation, str, State]]:
    """The installed 0.1.0, the namespace with an exception, and what there is of this release."""
    plane = released.plane
    plane.kubectl("apply", "--server-side", *(f"--filename={file}" for file in report_definitions))
    audited = plane.namespace()
    assert create(plane, audited, BYPASS_POD).status == 201  # before there is a webhook
    reference = f"oci://{charts[VERSION].repository}"
    options = ("--create-namespace", "--wait", "--timeout=200s", f"--version={VERSION}", trust)
    released.helm("install", reference, *options, values=VALUES)
    excepted = plane.namespace()
    path = f"/apis/gpuward.io/v1alpha1/namespaces/{excepted}/gpuexceptions"
    eventually(lambda: plane.request("GET", path).status == 200, what="the kind is served")
    plane.create(path, EXCEPTION)
    state = State(released, excepted, audited)
    eventually(state.is_complete, seconds=100, what="the exception is accepted, a report written")
    wait_until_excepted(plane, excepted)
    yield released, excepted, state
    plane.request("DELETE", DEFINITION)


def wait_until_excepted(plane: ControlPlane, excepted: str) -> None:
    """Wait until the bypass passes where there is an exception, and nowhere else."""
    other = plane.namespace()

    def answers() -> bool:
        found = [create(plane, name, BYPASS_POD, dry_run=True) for name in (excepted, other)]
        return [answer.status for answer in found] == [201, REFUSED]

    eventually(answers, seconds=100, what="the exception is in use, and gpuward enforces")


def test_an_upgrade_keeps_what_is_in_place_and_a_rollback_returns_to_it(
    in_use: tuple[Installation, str, State], charts: dict[str, PushedChart], trust: str
) -> None:
    released, excepted, state = in_use
    before = state.read()
    assert RULE in before["reports"][0][1]
    upgrade = (f"--version={NEXT_VERSION}", "--reset-then-reuse-values", "--wait", trust)
    with PodCreator(released.plane, released.plane.namespace()) as creator:
        creator.wait_for_pods()
        released.helm("upgrade", f"oci://{charts[NEXT_VERSION].repository}", *upgrade)
        assert deployed_versions(released) == {NEXT_VERSION}
        wait_until_excepted(released.plane, excepted)
        assert state.read() == before
        released.rollback(1)
        assert deployed_versions(released) == {VERSION}
        wait_until_excepted(released.plane, excepted)
        creator.wait_for_pods()
    assert state.read() == before
    assert creator.not_evaluated == 0


def deployed_versions(released: Installation) -> set[str]:
    """The versions of the chart and of the images in all Deployments."""
    items = released.get("deployments")["items"]
    assert len(items) == 4  # webhook, certificates, exceptions, audit
    labels = {
        item["metadata"]["labels"]["helm.sh/chart"].removeprefix("gpuward-") for item in items
    }
    images = {
        container["image"].removeprefix("ghcr.io/gpuward/gpuward:")
        for item in items
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    return labels | images
