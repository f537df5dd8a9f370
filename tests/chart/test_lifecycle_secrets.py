"""The cluster stays guarded, even if the Secrets of the certificate controller are damaged.

The kubelet shows running pods no new content of their volumes meanwhile, as kubelets do for a
minute or more, so the pods serve the certificate that they have.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from certs.keypairs import parse_certificates
from certs.validity import utc_now
from tests.testkit.admission.bad_pods import BadPods
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.certs.authorities import foreign_authority
from tests.testkit.chart.installation import Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import DOCS

pytest_plugins = ["tests.testkit.chart.fixtures"]

NAMES = ("gpuward-ca", "gpuward-tls")
DENY = {"mode": "deny", "registration": {"timeoutSeconds": 30}}


class Secrets:
    """The two Secrets of an installation, and their content before a test."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        # An earlier test may still change the bundle, in one configuration after the other.
        bundle = eventually(self._bundle, what="all webhooks trust the same")
        self.before = self.data()
        self.authorities = {*parse_certificates(bundle)}
        (leaf, *_) = parse_certificates(base64.b64decode(self.before["gpuward-tls"]["tls.crt"]))
        # Those of certificates before it may be withdrawn at any time.
        self.needed = {each for each in self.authorities if each.subject == leaf.issuer}

    def _bundle(self) -> bytes:
        """The bundle of all webhooks; empty while they have several."""
        bundles = self.installation.ca_bundles()
        return bundles.pop() if len(bundles) == 1 else b""

    def data(self) -> dict[str, dict[str, str]]:
        """The data of each Secret that exists."""
        found = {}
        for name in NAMES:
            answer = self.installation.plane.request("GET", self.path(name))
            if answer.status == 200:
                found[name] = answer.body.get("data") or {}
        return found

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.installation.namespace}/secrets/{name}"

    def delete(self) -> None:
        for name in NAMES:
            self.installation.plane.request("DELETE", self.path(name))

    def replace(self, data: dict[str, dict[str, str]]) -> None:
        """Replace the data of both Secrets, or create them, as a restored backup does."""
        for name in NAMES:
            manifest = {"metadata": {"name": name}, "data": data.get(name, {})}
            answer = self.installation.plane.request("PUT", self.path(name), manifest)
            if answer.status == 404:
                folder = self.path(name).rpartition("/")[0]
                answer = self.installation.plane.request("POST", folder, manifest)
            assert answer.status in (200, 201), answer

    def published(self) -> set[x509.Certificate]:
        """The authorities that all webhooks trust."""
        found = [{*parse_certificates(bundle)} for bundle in self.installation.ca_bundles()]
        return set.intersection(*found)

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Run the block while there is no certificate controller, which could remember anything."""
        scale = ("scale", "deployment/gpuward-certs", "-n", self.installation.namespace)
        plane = self.installation.plane
        plane.kubectl(*scale, "--replicas=0")
        eventually(lambda: not self.installation.pods("certs"), what="the controller has ended")
        yield
        plane.kubectl(*scale, "--replicas=1")
        eventually(lambda: self.installation.pods("certs"), what="the controller runs again")


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(DENY)
        yield installation


@pytest.fixture
def secrets(installed: Installation, kubelet: Kubelet) -> Iterator[Secrets]:
    """The Secrets, while bad pods are created; none may be admitted until the end of the test."""
    namespace = installed.plane.namespace()
    eventually(
        lambda: enforcement_in(installed.plane, namespace) == "enforced",
        what="the webhook enforces",
    )
    found = Secrets(installed)
    with kubelet.holding_volumes(), BadPods(installed.plane, namespace) as bad_pods:
        bad_pods.wait_for_pods()
        yield found
        bad_pods.wait_for_pods(8)
        assert bad_pods.admitted == 0, f"{bad_pods.unguarded_seconds} seconds"
    if found.data() != found.before:
        found.replace(found.before)
        eventually(lambda: found.data() == found.before, what="the Secrets are as before")


def test_deleted_secrets_get_back_what_they_had(secrets: Secrets) -> None:
    secrets.delete()
    eventually(lambda: secrets.data() == secrets.before, what="both are there again")
    assert secrets.needed <= secrets.published() <= secrets.authorities


def test_emptied_secrets_get_back_what_they_had(secrets: Secrets) -> None:
    secrets.replace({})
    eventually(lambda: secrets.data() == secrets.before, what="both are filled again")
    assert secrets.needed <= secrets.published() <= secrets.authorities


def test_without_their_memory_the_old_authority_stays_trusted_beside_a_new_one(
    secrets: Secrets,
) -> None:
    with secrets.without_controller():
        secrets.delete()
    eventually(lambda: "gpuward-ca" in secrets.data(), what="there is a new authority")
    eventually(lambda: secrets.published() - secrets.authorities, what="it is trusted too")
    assert secrets.published() >= secrets.needed
    # A backup of before is no reason to withdraw one either.
    secrets.replace(secrets.before)
    eventually(lambda: secrets.data() == secrets.before, what="the backup stays")
    assert secrets.published() >= secrets.needed


def test_an_authority_without_its_key_stays_trusted_beside_a_new_one(secrets: Secrets) -> None:
    path, kind = secrets.path("gpuward-ca"), "application/merge-patch+json"
    edit = {"data": {"ca.key": None}}
    secrets.installation.plane.request("PATCH", path, edit, content_type=kind)
    eventually(
        lambda: "next.crt" in secrets.data()["gpuward-ca"], what="a new authority is prepared"
    )
    eventually(lambda: secrets.published() - secrets.authorities, what="it is trusted")
    assert secrets.published() >= secrets.needed


def test_an_authority_of_somebody_else_is_left_alone_and_reported(secrets: Secrets) -> None:
    foreign = foreign_authority(utc_now())
    given = {
        "ca.crt": base64.b64encode(foreign.certificate_pem).decode(),
        "ca.key": base64.b64encode(foreign.key_pem).decode(),
    }
    secrets.replace({**secrets.before, "gpuward-ca": given})
    fields = ("--field-selector=reason=ForeignObject", "-o", "jsonpath={.items[*].note}")
    events = ("get", "events.events.k8s.io", "-n", secrets.installation.namespace, *fields)
    note = eventually(
        lambda: secrets.installation.plane.kubectl(*events).stdout, what="an Event says so"
    )
    assert "secret/gpuward-ca is left alone: ca.crt is not a certificate of gpuward" in note
    assert secrets.data()["gpuward-ca"] == given
    assert secrets.published() >= secrets.needed


def test_the_commands_of_the_manual_distrust_an_authority(
    installed: Installation, tmp_path: Path
) -> None:
    trusted = Secrets(installed).authorities
    text = (DOCS / "certificates.md").read_text(encoding="utf-8")
    _, _, text = text.partition("**To distrust a CA at once**")
    block = text.split("```")[1].replace("gpuward-system", installed.namespace)
    (tmp_path / "kubectl").symlink_to(installed.plane.programs["kubectl"])
    path = f"{tmp_path}:{os.environ['PATH']}"
    # Without a home kubectl writes its cache into the working directory.
    environment = {
        "HOME": str(tmp_path),
        "PATH": path,
        "KUBECONFIG": str(installed.plane.kubeconfig),
    }
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        shell = ["bash", "-e", "-o", "pipefail", "-c", command]
        subprocess.run(shell, check=True, env=environment)
        if command.endswith("--replicas=0"):
            eventually(lambda: not installed.pods("certs"), what="the controller has ended")
    namespace = installed.plane.namespace()
    eventually(
        lambda: enforcement_in(installed.plane, namespace) == "enforced",
        what="the webhook enforces with another authority",
    )
    assert not Secrets(installed).published() & trusted
