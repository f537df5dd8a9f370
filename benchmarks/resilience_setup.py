"""The chart with two replicas on the control plane of the tests, for `resilience.py`."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from typing import Any

from certs.authority import LEAF_LIFETIME, new_authority, service_names, sign_leaf
from tests.testkit.admission.fault_installation import now
from tests.testkit.admission.fault_load import REFUSED_POD, is_refused
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT

HOME = "gpuward-system"
SECRET = "certificate"  # noqa: S105  # its name
REPLICAS = 2  # as the chart installs
WEBHOOK = ("-n", HOME, "-l", "app.kubernetes.io/component=webhook")


class Setup:
    """An installation in mode deny; the load runs in `namespace`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = plane.namespace()
        plane.create("/api/v1/namespaces", {"metadata": {"name": HOME}})
        self._names = service_names("gpuward", HOME)
        self._authority = new_authority(self._names, now())
        self.put_certificate()

    def put_certificate(self, lifetime: datetime.timedelta = LEAF_LIFETIME) -> str:
        """Write a new certificate into the Secret of the chart, and return it as PEM."""
        pair = sign_leaf(self._authority, self._names, now(), lifetime)
        files = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        self.plane.kubectl("apply", "-n", HOME, "-f", "-", input=json.dumps(secret))
        return pair.certificate_pem.decode()

    def wait_until_served(self, certificate: str) -> None:
        """Wait until new connections get `certificate` (PEM) from every replica."""
        service = json.loads(
            self.plane.kubectl("get", "service/gpuward", "-n", HOME, "-o", "json").stdout
        )
        address = service["spec"]["clusterIP"]

        def is_served() -> bool:
            # The replicas get the connections in turn.
            shown = {ssl.get_server_certificate((address, 443)) for _ in range(3 * REPLICAS)}
            return shown == {certificate}

        eventually(is_served, what="every replica has loaded the certificate")

    def install(self, policy: str) -> None:
        """Install or upgrade the chart, and wait until pods are refused and fixed."""
        certificates = {
            "mode": "existingSecret",
            "existingSecret": {"name": SECRET},
            "caBundle": self._authority.certificate_pem.decode(),
        }
        registration = {"failurePolicy": policy}
        values = {"mode": "deny", "registration": registration, "certificates": certificates}
        given = ("upgrade", "--install", "gpuward", str(ROOT / "charts" / "gpuward"), "-n", HOME)
        waits = ("--wait", "--timeout=120s", "--values", "-")
        done = self.plane.run("helm4", *given, *waits, input=json.dumps(values))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        self.settle()

    def settle(self) -> None:
        """Wait until two replicas are ready and the API server calls them."""
        target = ("rollout", "status", "deployment/gpuward", "-n", HOME, "--timeout=100s")
        self.plane.kubectl(*target)
        eventually(lambda: len(self.replicas()) == REPLICAS, what="two replicas are ready")
        eventually(
            lambda: is_refused(create(self.plane, self.namespace, REFUSED_POD, dry_run=True)),
            what="the webhook is called",
        )

    def replicas(self) -> list[Any]:
        """The ready pods of the webhook."""
        found = json.loads(self.plane.kubectl("get", "pods", *WEBHOOK, "-o", "json").stdout)
        return [
            pod
            for pod in found["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("containerStatuses", [{}])[0].get("ready")
        ]
