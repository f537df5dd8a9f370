"""A real API server refuses the claims and classes of the cases that a finding says it refuses.

And no others. What a safe fix makes of them, it accepts. Requests are strict, as those of kubectl.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rules.engine.fixing import check, fix
from rules.objects.kubernetes_objects import CLAIM_GROUP
from tests.testkit.cases import Case, cases
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster

pytestmark = pytest.mark.usefixtures("api_server")

REFUSED = (400, 422)
NOT_FOUND = 404
RESOURCES = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
}
ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}


class Submitted:
    """Sends objects to the API server in dry runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._namespace = cluster.namespace(ADMIN_ACCESS)

    def send(self, manifest: Any) -> Response:
        """The response to `manifest`; 404 if the release does not serve its version."""
        place = f"/apis/{manifest['apiVersion']}"
        if manifest["kind"] in ("ResourceClaim", "ResourceClaimTemplate"):
            place += f"/namespaces/{self._namespace}"
            metadata = {**manifest["metadata"], "namespace": self._namespace}
            manifest = {**manifest, "metadata": metadata}
        path = f"{place}/{RESOURCES[manifest['kind']]}?dryRun=All&fieldValidation=Strict"
        return self._cluster.request("POST", path, manifest)


@pytest.fixture(scope="module")
def submitted(api_server: Cluster) -> Submitted:
    return Submitted(api_server)


def _claims() -> Iterator[Case]:
    for case in cases():
        manifest = case.manifest
        if manifest["kind"] in RESOURCES and manifest["apiVersion"].startswith(f"{CLAIM_GROUP}/"):
            yield case


# A template is rendered before it is sent.
CASES = [case for case in _claims() if "{{" not in case.file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_findings_say_whether_the_api_server_refuses_it(submitted: Submitted, case: Case) -> None:
    answer = submitted.send(case.manifest)
    if answer.status == NOT_FOUND:
        pytest.skip(f"not served: {case.manifest['apiVersion']}")
    findings = check(case.manifest, case.rules, case.context).findings
    announced = [finding.message for finding in findings if finding.api_refuses]
    assert (answer.status in REFUSED) == bool(announced), (answer.body, announced)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.rule == "claim-layout"], ids=lambda case: case.name
)
def test_the_layout_that_the_fix_writes_is_accepted(submitted: Submitted, case: Case) -> None:
    result = fix(case.manifest, case.rules, case.context)
    answer = submitted.send(result.manifest)
    if answer.status == NOT_FOUND:
        pytest.skip(f"not served: {case.manifest['apiVersion']}")
    if not result.operations and any(finding.api_refuses for finding in result.remaining.findings):
        pytest.skip("has no fix")
    assert answer.status not in REFUSED, answer.body
