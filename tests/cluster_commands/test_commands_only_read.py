"""The commands that look at a cluster change nothing in it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from gpuward.commands import COMMANDS
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

USER, LAST = "looks-at-the-cluster", "the-last-request"


def test_looking_at_a_cluster_changes_nothing(
    plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the API server's audit log, which has every request but get, list and watch."""
    namespace = plane.namespace()
    plane.gpu_node(f"looked-at-{namespace}", gpus=4)
    limits = {"resources": {"limits": {"nvidia.com/gpu": "64"}}}
    container = {"name": "main", "image": "example/x", **limits}
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.create(path, {"metadata": {"name": "waits"}, "spec": {"containers": [container]}})
    issued = plane.authority.issue(USER, common_name=USER, groups=["system:masters"])
    kubeconfig = plane.kubeconfig_with(issued)
    for command in (
        ["gpus"],
        ["gpus", "--by", "namespace"],
        ["doctor"],
        ["audit", "--isolated"],
        ["audit", "--isolated", "--refused-by", "webhook"],
        ["why", "waits", "-n", namespace],
        ["init", "--directory", str(tmp_path)],
    ):
        name, *arguments = command
        main = import_module(COMMANDS[name][0]).main
        assert main(["--kubeconfig", str(kubeconfig), *arguments]) in {0, 1, 3}, command
    capsys.readouterr()
    # Events come in the order of the requests, so after this one nothing is missing.
    plane.kubectl("create", "namespace", LAST, "--dry-run=server", f"--kubeconfig={kubeconfig}")

    def events() -> list[tuple[str, str, bool]]:
        own = [event for event in plane.audit_events() if event["user"]["username"] == USER]
        assert own, "nothing is logged"
        assert own[-1]["objectRef"].get("name") == LAST
        return [
            (event["verb"], event["objectRef"]["resource"], "dryRun=All" in event["requestURI"])
            for event in own[:-1]
        ]

    eventually(lambda: events() is not None, what="the log has the last request")
    # What the account may do is asked by creating reviews, which are not kept.
    assert {resource for _, resource, is_dry_run in events() if not is_dry_run} <= {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
    }
    assert {event for event in events() if event[2]} <= {("create", "pods", True)}
