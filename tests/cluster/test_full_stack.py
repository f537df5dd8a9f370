"""Certificate controller, webhook and API server together, as processes, with a real Service."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api.errors import ConfigurationKind
from rules.finding import Action
from tests.testkit.admission.registered_webhook import create, is_enforced
from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.admission.server_process import Server
from tests.testkit.chart.permissions import (
    ACCOUNT,
    AUTHORITY_SECRET,
    LEASE,
    SERVING_SECRET,
    create_controller_account,
)
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.paths import ROOT
from webhook.registration import MODE_LABEL, RegistrationOptions, configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SERVICE, PORT = "gpuward", 8443


class Kubelet:
    """Mounts the serving Secret into `folder` as a kubelet does, by replacing a symbolic link."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{SERVING_SECRET}"
        self._folder = folder
        self._rounds = 0

    def sync(self) -> bool:
        """Update the folder; return whether it has a certificate."""
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
    """The CA bundles by which the API server trusts the webhook."""
    found: set[str] = set()
    for kind in ConfigurationKind:
        body = plane.request("GET", f"{ADMISSION}/{kind.value}/{name}").body
        found |= {entry["clientConfig"].get("caBundle", "") for entry in body["webhooks"]}
    return found


def certificate_controller(
    plane: ControlPlane, processes: Processes, namespace: str, name: str
) -> None:
    """Start `gpuward certs run` with only a token of its service account."""
    kubeconfig = plane.kubeconfig_for(plane.token(ACCOUNT, namespace))
    command = [sys.executable, "-m", "gpuward", "certs", "run", "--namespace", namespace]
    command += ["--service", SERVICE, "--headless-service", f"{SERVICE}-replicas"]
    command += ["--secret", SERVING_SECRET, "--ca-secret", AUTHORITY_SECRET, "--lease", LEASE]
    command += ["--mutating-configuration", name, "--validating-configuration", name]
    command += ["--kubeconfig", str(kubeconfig), "--interval", "3600", "--status-port", "0"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    processes.start(f"certs-{namespace}", command, environment)


@pytest.fixture
def name(plane: ControlPlane) -> Iterator[str]:
    """The name of the webhook configurations; they are deleted after the test."""
    yield "gpuward-full-stack"
    for kind in ConfigurationKind:
        plane.request("DELETE", f"{ADMISSION}/{kind.value}/gpuward-full-stack")


def test_an_installation_starts_and_restores_its_ca_bundle(
    plane: ControlPlane, processes: Processes, tmp_path: Path, name: str
) -> None:
    home = plane.namespace()
    create_controller_account(plane, home, name)
    address = plane.expose(SERVICE, home, PORT)

    def client_config(path: str) -> dict[str, Any]:
        return {"service": {"name": SERVICE, "namespace": home, "port": PORT, "path": path}}

    options = RegistrationOptions(
        Action.OFF, failure_policy="Fail", timeout_seconds=30, excluded_namespaces=(home,)
    )
    for kind, made in zip(
        ConfigurationKind, configurations(name, client_config, options), strict=True
    ):
        plane.create(f"{ADMISSION}/{kind.value}", made)
    certificate_controller(plane, processes, home, name)
    kubelet = Kubelet(plane, home, tmp_path / "tls")
    eventually(kubelet.sync, what="the first certificate is issued")
    server = Server(
        processes,
        tmp_path,
        tmp_path / "tls",
        name="gpuward-full-stack",
        listen=f"{address}:{PORT}",
        arguments=("--server-name", f"{SERVICE}.{home}.svc", "--drain-seconds", "0"),
    )

    enforced = plane.namespace({MODE_LABEL: "deny"})
    eventually(lambda: is_enforced(plane, enforced), what="the webhook is called by its Service")
    created = create(plane, enforced, pod(container(**gpus(requests=1))))
    assert created.status == 201
    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert server.metric("gpuward_certificate_expiry_seconds") > 0

    # A user re-applies the configurations as they were before the controller ran. It does not wait
    # for its next regular pass, which is an hour away.
    (bundle,) = bundles(plane, name)
    path = f"{ADMISSION}/{ConfigurationKind.VALIDATING.value}/{name}"
    removal = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    content_type = "application/json-patch+json"
    assert plane.request("PATCH", path, removal, content_type=content_type).status == 200
    eventually(lambda: bundles(plane, name) == {bundle}, what="the bundle is written again")
    eventually(lambda: is_enforced(plane, enforced), what="the webhook is trusted again")
    server.stop()
    processes.end(f"certs-{home}")
