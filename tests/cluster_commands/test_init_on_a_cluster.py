"""`gpuward init` on a real API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.init import POLICY, VALUES
from cluster.init.cli import main
from policies.loading import load_policy
from tests.testkit.control_plane.objects import gpu_node
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.rights import await_rights

# Only this node offers it, whatever else other tests create.
PARTITION = "nvidia.com/mig-9g.999gb"
TAINT = {"key": "gpuward.test/init", "value": "true", "effect": "NoSchedule"}


@pytest.fixture
def tainted_node(plane: ControlPlane) -> Iterator[None]:
    node = gpu_node("init", PARTITION, 1, {}, taint=False)
    node["spec"]["taints"] = [TAINT]
    plane.create("/api/v1/nodes", node)
    yield
    plane.request("DELETE", "/api/v1/nodes/init")


@pytest.mark.usefixtures("tainted_node")
def test_an_administrator_gets_files_that_fit(plane: ControlPlane, tmp_path: Path) -> None:
    arguments = ["--kubeconfig", str(plane.kubeconfig), "--directory", str(tmp_path)]
    assert main(arguments) == 0
    text = (tmp_path / POLICY).read_text()
    assert f"{{resources: [{PARTITION}], key: gpuward.test/init, " in text
    assert "Not known" not in text
    taints = load_policy(text, POLICY).profile.taints
    assert [taint.value for taint in taints if taint.key == TAINT["key"]] == ["true"]
    assert main(arguments) == 0


def test_an_account_without_rights_learns_which_it_needs(
    plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = plane.kubeconfig_for(plane.token("default", plane.namespace()))
    assert main(["--kubeconfig", str(kubeconfig), "--directory", str(tmp_path)]) == 3
    for name in (POLICY, VALUES):
        text = (tmp_path / name).read_text()
        needed = re.findall(r"^# Not known: (\w+) \(needs the right to list \1", text, re.MULTILINE)
        assert {"nodes", "pods", "daemonsets", "deployments", "runtimeclasses"} <= {*needed}
    assert "profiles" not in yaml.safe_load((tmp_path / POLICY).read_text())


CERT_MANAGER = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "cert-manager-webhook"},
    "webhooks": [],
}
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
READABLE = "nodes,pods,daemonsets.apps,deployments.apps,runtimeclasses.node.k8s.io"
READABLE += ",deviceclasses.resource.k8s.io,resourceslices.resource.k8s.io"


@pytest.fixture
def cert_manager(plane: ControlPlane) -> Iterator[None]:
    """A webhook that is called as cert-manager's, and selects nothing."""
    entry = {
        "name": "webhook.cert-manager.io",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "objectSelector": {"matchLabels": {"gpuward.test/never": "true"}},
    }
    plane.create(CONFIGURATIONS, {**CERT_MANAGER, "webhooks": [entry]})
    yield
    plane.request("DELETE", f"{CONFIGURATIONS}/cert-manager-webhook")


@pytest.mark.usefixtures("tainted_node", "cert_manager")
@pytest.mark.parametrize("may_list", [READABLE, ""])
def test_what_an_account_may_not_list_stays_in_the_files(
    plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], may_list: str
) -> None:
    folder = ["--directory", str(tmp_path)]
    assert main(["--kubeconfig", str(plane.kubeconfig), *folder]) == 0
    before = {name: (tmp_path / name).read_text() for name in (POLICY, VALUES)}
    assert yaml.safe_load(before[VALUES])["certificates"] == {"mode": "certManager"}
    namespace = plane.namespace()
    if may_list:
        role = f"init-{namespace}"
        rules = [
            {"apiGroups": [group], "resources": [resource], "verbs": ["list"]}
            for resource, _, group in (name.partition(".") for name in may_list.split(","))
        ]
        # kubectl refuses resources that an older API server does not have.
        body = {"metadata": {"name": role}, "rules": rules}
        plane.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", body)
        account = f"--serviceaccount={namespace}:default"
        plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)
        await_rights(plane)
    kubeconfig = plane.kubeconfig_for(plane.token("default", namespace))
    # A user has changed what can be seen, and what cannot.
    (tmp_path / VALUES).write_text(before[VALUES].replace("mode: warn", "mode: deny"))
    assert main(["--kubeconfig", str(kubeconfig), *folder, "--write"]) == 3
    errors = capsys.readouterr().err
    assert f"{VALUES}: kept as it cannot be seen: certificates" in errors
    after = {name: (tmp_path / name).read_text() for name in (POLICY, VALUES)}
    assert yaml.safe_load(after[VALUES]) == yaml.safe_load(before[VALUES])
    assert yaml.safe_load(after[POLICY]) == yaml.safe_load(before[POLICY])
    assert ("profiles" in errors) == (not may_list)
    assert "# Not known: validatingwebhookconfigurations (needs the right to" in after[VALUES]
    if may_list:
        plane.kubectl("delete", "clusterrole,clusterrolebinding", role)
