"""The commands on an API server without the API groups and kinds that Kubernetes 1.29 lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuward.__main__ import main
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane

# Admission policies became stable in 1.30, and resource.k8s.io/v1 in 1.34: older API servers refuse
# to be told of it.
CLAIMS = "resource.k8s.io/v1=false"
CLAIMS_SINCE = 34
MISSING = (
    "admissionregistration.k8s.io/v1/validatingadmissionpolicies=false",
    "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings=false",
)
POD = {
    "metadata": {"name": "taker"},
    "spec": {
        "nodeName": "gpus",
        "containers": [
            {
                "name": "main",
                "image": "example.com/app:1",
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def older(control_plane_programs: Programs) -> Iterator[ControlPlane]:
    missing = [*MISSING, *[CLAIMS] * (control_plane_programs.minor_version >= CLAIMS_SINCE)]
    flags = [
        f"--runtime-config={','.join(missing)}",
        "--disable-admission-plugins=ValidatingAdmissionPolicy",
    ]
    with ControlPlane(control_plane_programs, api_server_flags=flags) as plane:
        plane.gpu_node("gpus", gpus=4)
        plane.create("/api/v1/namespaces/default/pods", POD)
        yield plane


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["audit"], "error[visible-devices-env]"),
        (["doctor", "-o", "json"], '"nodes that offer GPUs: 1"'),
        (["gpus"], "0/4"),
    ],
    ids=["audit", "doctor", "gpus"],
)
def test_the_commands_need_nothing_newer(
    older: ControlPlane, capsys: pytest.CaptureFixture[str], command: list[str], says: str
) -> None:
    main([*command, "--kubeconfig", str(older.kubeconfig)])
    out, errors = capsys.readouterr()
    assert says in out
    assert "cannot list" not in out + errors


def test_the_api_server_lacks_what_these_releases_lack(older: ControlPlane) -> None:
    groups = {group["name"] for group in older.request("GET", "/apis").body["groups"]}
    assert "resource.k8s.io" not in groups
    kinds = older.request("GET", "/apis/admissionregistration.k8s.io/v1").body["resources"]
    assert "validatingadmissionpolicies" not in {kind["name"] for kind in kinds}
