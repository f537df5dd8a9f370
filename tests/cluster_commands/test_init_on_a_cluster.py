"""`gpuward init` on a real API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.init.cli import POLICY, VALUES, main
from policies.loading import load_policy
from tests.testkit.control_plane.objects import gpu_node
from tests.testkit.control_plane.plane import ControlPlane

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
    assert main(["--kubeconfig", str(kubeconfig), "--directory", str(tmp_path)]) == 0
    for name in (POLICY, VALUES):
        text = (tmp_path / name).read_text()
        needed = re.findall(r"^# Not known: (\w+) \(needs the right to list \1", text, re.MULTILINE)
        assert {"nodes", "pods", "daemonsets", "deployments", "runtimeclasses"} <= {*needed}
    assert "profiles" not in yaml.safe_load((tmp_path / POLICY).read_text())
