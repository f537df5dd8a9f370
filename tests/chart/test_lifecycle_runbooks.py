"""The manual's advice after a change by hand, with each version of Helm after each other."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.installation import ADMISSION, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import DOCS, ROOT

pytest_plugins = ["tests.testkit.chart.fixtures"]

VALUES = merge_values(SLOW_MACHINE, {"mode": "deny"})
# Who has made the last release, and who is to undo what was done to it since.
SEQUENCES = [(last, now) for last in ("helm3", "helm4") for now in ("helm3", "helm4")]
CONFIGURATIONS = ("validatingwebhookconfiguration/gpuward", "mutatingwebhookconfiguration/gpuward")
KEPT = {
    "configmap/gpuward-policy": "data",
    "configmap/gpuward-policy-fallback": "data",
    "configmap/gpuward-registration": "data",
    "role/gpuward-certs": "rules",
    "clusterrole/gpuward-certs": "rules",
    "networkpolicy/gpuward": "spec",
    "service/gpuward-replicas": "spec",
}


def documented(heading: str, namespace: str) -> list[str]:
    """The commands below a heading of docs/install.md, for a release in `namespace`."""
    text = (DOCS / "install.md").read_text(encoding="utf-8")
    _, _, text = text.partition(f"\n### {heading}\n")
    text, _, _ = text.partition("\n## ")
    return re.findall(r"^\$ (.*)$", text.replace("gpuward-system", namespace), re.MULTILINE)


class Shell:
    """Runs commands of the manual as they are written; `helm` is one version of it."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        for name, program in (("helm", installation.program), ("kubectl", "kubectl")):
            (folder / name).symlink_to(installation.plane.programs[program])
        (folder / "charts").symlink_to(ROOT / "charts")
        self._folder = folder
        self._kubeconfig = str(installation.plane.kubeconfig)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """The finished process of a command."""
        path = f"{self._folder}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", command.replace("oci://ghcr.io/gpuward/", "")],
            cwd=self._folder,
            env={"PATH": path, "HOME": str(self._folder), "KUBECONFIG": self._kubeconfig},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(params=SEQUENCES, ids=["-then-".join(each) for each in SEQUENCES])
def released(
    request: pytest.FixtureRequest, chart_plane: ControlPlane, kubelet: Kubelet
) -> Iterator[Installation]:
    """A release of one version of Helm, which another one, or the same, goes on with."""
    last, now = request.param
    with Installation(chart_plane, kubelet, last) as installation:
        installation.install(VALUES)
        installation.program = now
        wait_until_enforced(installation)
        yield installation


def wait_until_enforced(installation: Installation) -> None:
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )


def kept(installation: Installation) -> dict[str, Any]:
    """Return the release's values of the objects that are damaged below."""
    return {path: installation.get(path)[part] for path, part in KEPT.items()}


def test_helm_undoes_what_was_edited_and_deleted(released: Installation, tmp_path: Path) -> None:
    plane, own = released.plane, ("-n", released.namespace)
    before, last = kept(released), released.helm("history", "-o", "json").stdout
    assert '"revision":1' in last
    server_side = "helm4" in str(plane.programs[released.program]) and is_applied(released)
    broken = '{"data": {"gpuward.yaml": "rules: [typo"}}'
    plane.kubectl("patch", "configmap", "gpuward-policy", *own, "--type=merge", "-p", broken)
    plane.kubectl("patch", "role", "gpuward-certs", *own, "--type=merge", "-p", '{"rules": []}')
    plane.kubectl("scale", "deployment/gpuward", *own, "--replicas=1")
    deleted = ("configmap/gpuward-registration", "secret/gpuward-tls", "networkpolicy/gpuward")
    services = ("service/gpuward-replicas", "lease/gpuward-certs")
    plane.kubectl("delete", *deleted, *services, *own)
    plane.kubectl("delete", *CONFIGURATIONS, "clusterrole/gpuward-certs")

    plain, forced = documented("Undo a change by hand", released.namespace)
    shell = Shell(released, tmp_path)
    done = shell.run(plain)
    if server_side:
        assert done.returncode
        assert 'conflict with "kubectl' in done.stderr
        done = shell.run(forced)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept(released) == before
    assert released.get("deployment/gpuward")["spec"]["replicas"] == 2
    eventually(
        lambda: "data" in released.get("secret/gpuward-tls"),
        seconds=100,
        what="there is a certificate",
    )
    eventually(lambda: b"" not in released.ca_bundles(), seconds=100, what="it is published")
    wait_until_enforced(released)
    # The forced command works after each of them, too; an upgrade with other values follows.
    if released.program == "helm4":
        done = shell.run(forced)
        assert done.returncode == 0, done.stdout + done.stderr
    done = shell.run(f"{plain} --set minimumMode=deny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(released.webhooks()) == 3


def is_applied(installation: Installation) -> bool:
    """Return whether Helm has made the last release by server-side apply."""
    path = f"{ADMISSION}/validatingwebhookconfigurations/gpuward"
    owners = installation.plane.request("GET", path).body["metadata"]["managedFields"]
    return any((o["manager"], o["operation"]) == ("helm", "Apply") for o in owners)
