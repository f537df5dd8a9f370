"""Tests of versions of APIs that Kubernetes no longer has: no test can submit such an object."""

from __future__ import annotations

import pytest

from tests.testkit.lint_command import LintCommand

CLAIM = """\
apiVersion: resource.k8s.io/{version}
kind: ResourceClaimTemplate
metadata: {{name: card, namespace: ml}}
spec:
  spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com}}}}]}}}}
"""


@pytest.mark.parametrize(
    ("version", "found"), [("v1alpha2", {"invalid-claim": "error"}), ("v1", {})]
)
def test_a_claim_of_a_version_that_is_gone_is_an_error(
    command: LintCommand, version: str, found: dict[str, str]
) -> None:
    done = command.json("-", stdin=CLAIM.format(version=version))
    assert done.found == found
