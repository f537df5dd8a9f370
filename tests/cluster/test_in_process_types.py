"""A real API server accepts the exported policies, and finds no fault in their types."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.loading import load_policy
from tests.testkit.admission.in_process import own_exports
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.cluster import Cluster
from webhook.in_process.cli import main
from webhook.in_process.keys import key_objects
from webhook.in_process.objects import ExportOptions, policy_objects

# With the exported rules that are off by default.
POLICY = load_policy(
    """\
apiVersion: gpuward.io/v1
kind: Policy
rules:
  visible-devices-key: {action: deny}
  gpu-node-without-request: {action: deny, options: {nodes: [nvidia.com/gpu.present=true]}}
""",
    "a test",
)


def test_api_servers_find_no_fault_in_the_types(
    control_plane_programs: Programs, tmp_path: Path
) -> None:
    with own_exports(control_plane_programs, tmp_path, checks_types=True) as exports:
        namespace = exports.add(POLICY, ExportOptions(), policy_objects, key_objects)
        assert exports.type_warnings(namespace) == {}


def test_kubectl_applies_what_is_exported_of_the_default_policy(
    api_server: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the annotation in which it keeps a copy of each object."""
    assert main(["vap", "map"]) == 0
    exported = capsys.readouterr()
    assert exported.err == ""
    api_server.kubectl("apply", "--dry-run=server", "-f", "-", input=exported.out)
