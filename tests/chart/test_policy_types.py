"""A real API server finds no fault in the types of the chart's policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.testkit.chart.rendering import of_kind, render
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

ENABLED = {"enabled": True}
VALUES = {"gpuExceptions": ENABLED, "nodeGuard": ENABLED, "adminAccessGuard": ENABLED}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def test_api_servers_find_no_fault_in_the_types(
    control_plane_programs: Programs, tmp_path: Path
) -> None:
    made = render(json.dumps(VALUES))
    names = {policy["metadata"]["name"] for policy in of_kind(made, "ValidatingAdmissionPolicy")}
    assert names == {
        "gpuward-admin-access-guard",
        "gpuward-exceptions",
        "gpuward-mode-label",
        "gpuward-node-guard",
    }
    with ControlPlane(control_plane_programs, folder=tmp_path) as plane:
        for definition in of_kind(made, "CustomResourceDefinition"):
            plane.create(DEFINITIONS, definition)
            name = f"customresourcedefinition/{definition['metadata']['name']}"
            plane.kubectl("wait", "--for=condition=Established", name, TIMEOUT)
        for policy in of_kind(made, "ValidatingAdmissionPolicy"):
            plane.create(POLICIES, policy)
        assert {name: warnings_about(plane, name) for name in names} == dict.fromkeys(names)


def warnings_about(plane: ControlPlane, policy: str) -> Any:
    """What the controller says of a policy once it has checked the types."""

    def checked() -> Any:
        status = plane.request("GET", f"{POLICIES}/{policy}").body.get("status", {})
        assert "typeChecking" in status
        return status

    status = eventually(checked, what=f"the types of {policy} are checked")
    return status["typeChecking"].get("expressionWarnings")
