"""Everything together, as processes: controller, webhook, API server, and a Service between."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api import ConfigurationKind
from registration.configurations import MODE_LABEL, RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.admission.registered_webhook import Server, create, is_enforced
from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.chart.permissions import (
    ACCOUNT,
    AUTHORITY_SECRET,
    LEASE,
    SERVING_SECRET,
    prepare,
)
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.paths import ROOT

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SERVICE, PORT = "gpuward", 8443


class Kubelet:
    """Mounts the serving Secret into `folder` as a kubelet does: by swapping a link."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{SERVING_SECRET}"
        self._folder = folder
        self._rounds = 0

    def sync(self) -> bool:
        """Bring the folder up to date; whether there is anything in it."""
        data = self._plane.request("GET", self._path).body.get("data") or {}
        self._rounds += 1
        fresh = self._folder / f"..{self._rounds}"
        fresh.mkdir(parents=True)
        for name, text in data.items():
            (fresh / name).write_bytes(base64.b64decode(text))
            link = self._folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        swapped = self._folder / "..data_tmp"
        swapped.symlink_to(fresh.name)
        swapped.replace(self._folder / "..data")
        return "tls.crt" in data


def bundles(plane: ControlPlane, name: str) -> set[str]:
    """What the API server trusts the webhook by."""
    found: set[str] = set()
    for kind in ConfigurationKind:
        body = plane.request("GET", f"{ADMISSION}/{kind.value}/{name}").body
        found |= {entry["clientConfig"].get("caBundle", "") for entry in body["webhooks"]}
    return found


def certificate_controller(
    plane: ControlPlane, processes: Processes, namespace: str, name: str
) -> None:
    """Start `gpuward certs run` with a token of its account, and nothing else."""
    kubeconfig = plane.kubeconfig_for(plane.token(ACCOUNT, namespace))
    command = [sys.executable, "-m", "gpuward", "certs", "run", "--namespace", namespace]
    command += ["--service", SERVICE, "--headless-service", f"{SERVICE}-replicas"]
    command += ["--secret", SERVING_SECRET, "--ca-secret", AUTHORITY_SECRET, "--lease", LEASE]
    command += ["--mutating-configuration", name, "--validating-configuration", name]
    command += ["--kubeconfig", str(kubeconfig), "--interval", "1", "--status-port", "0"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    processes.start(f"certs-{namespace}", command, environment)


@pytest.fixture
def name(plane: ControlPlane) -> Iterator[str]:
    """The name of the webhook configurations, which are gone afterwards."""
    yield "gpuward-whole"
    for kind in ConfigurationKind:
        plane.request("DELETE", f"{ADMISSION}/{kind.value}/gpuward-whole")


def test_an_installation_comes_up_by_itself_and_heals(
    plane: ControlPlane, processes: Processes, tmp_path: Path, name: str
) -> None:
    home = plane.namespace()
    prepare(plane, home, name)
    address = plane.expose(SERVICE, home, PORT)

    def client_config(path: str) -> dict[str, Any]:
        return {"service": {"name": SERVICE, "namespace": home, "port": PORT, "path": path}}

    choices = RegistrationOptions(Action.OFF, failure_policy="Fail", excluded_namespaces=(home,))
    for kind, made in zip(
        ConfigurationKind, configurations(name, client_config, choices), strict=True
    ):
        plane.create(f"{ADMISSION}/{kind.value}", made)
    certificate_controller(plane, processes, home, name)
    kubelet = Kubelet(plane, home, tmp_path / "tls")
    eventually(kubelet.sync, what="the first certificate is made")
    serving = Server(
        processes,
        tmp_path,
        tmp_path / "tls",
        name="gpuward-whole",
        listen=f"{address}:{PORT}",
        arguments=("--server-name", f"{SERVICE}.{home}.svc", "--drain-seconds", "0"),
    )

    judged = plane.namespace({MODE_LABEL: "deny"})
    eventually(lambda: is_enforced(plane, judged), what="the webhook is called by its Service")
    created = create(plane, judged, pod(container(**gpus(requests=1))))
    assert created.status == 201
    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert serving.metric("gpuward_certificate_expiry_seconds") > 0

    # Somebody re-applies the configurations as they were at first.
    (good,) = bundles(plane, name)
    path = f"{ADMISSION}/{ConfigurationKind.VALIDATING.value}/{name}"
    wiped = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    content_type = "application/json-patch+json"
    assert plane.request("PATCH", path, wiped, content_type=content_type).status == 200
    eventually(lambda: bundles(plane, name) == {good}, what="the bundle is written again")
    eventually(lambda: is_enforced(plane, judged), what="the webhook is trusted again")
    serving.stop()
    processes.end(f"certs-{home}")
