"""A real API server finds no fault in the types of the exported policies."""

from __future__ import annotations

from pathlib import Path

from policies.loading import load_policy
from tests.testkit.admission.in_process import own_exports
from tests.testkit.control_plane.build import Programs
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
