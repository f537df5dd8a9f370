"""The chart in a registry, signed, and installed from there by the words of the documents."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import DOCS, ROOT
from tests.testkit.release.chart import PUBLIC, PushedChart
from tests.testkit.release.repository import NEXT_VERSION, VERSION
from tests.testkit.release.servers import Registry
from tests.testkit.release.signing import Signer

INSTALL = (DOCS / "install.md").read_text(encoding="utf-8")
BYPASS = next(yaml.safe_load_all((ROOT / "examples" / "bypass.yaml").read_text()))
"""The notebook that sets NVIDIA_VISIBLE_DEVICES."""


@pytest.fixture(scope="session")
def signer(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"), registry)


def test_a_signature_belongs_to_one_digest(charts: dict[str, PushedChart], signer: Signer) -> None:
    first, second = (charts[version] for version in (VERSION, NEXT_VERSION))
    signer.sign(f"{first.repository}@{first.digest}")
    assert signer.verify(f"{first.repository}@{first.digest}") == ""
    assert "no signatures found" in signer.verify(f"{second.repository}@{second.digest}")


def test_the_chart_shows_its_values_and_annotations_without_a_clone(
    charts: dict[str, PushedChart], chart_plane: ControlPlane, trust: str
) -> None:
    options = (f"oci://{charts[VERSION].repository}", f"--version={VERSION}", trust)
    metadata = yaml.safe_load(chart_plane.run("helm4", "show", "chart", *options).stdout)
    assert (metadata["version"], metadata["appVersion"]) == (VERSION, VERSION)
    assert f"gpuward:{VERSION}" in metadata["annotations"]["artifacthub.io/images"]
    for what, text in (("values", "failurePolicy"), ("readme", "# gpuward")):
        assert text in chart_plane.run("helm4", "show", what, *options).stdout


def test_two_commands_end_with_a_webhook_that_refuses_a_bypass(
    released: Installation, charts: dict[str, PushedChart], trust: str
) -> None:
    command = rf"^\$ helm install gpuward (oci://{re.escape(PUBLIC)}) .*--wait$"
    (words,) = re.findall(command, INSTALL, re.MULTILINE)
    reference = words.replace(PUBLIC, charts[VERSION].repository)
    options = ("--create-namespace", "--wait", "--timeout=200s", "--set", "mode=deny", trust)
    released.helm("install", reference, *options, values={})
    namespace = released.plane.namespace()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = {**BYPASS, "metadata": {**BYPASS["metadata"], "namespace": namespace}}

    def refusal() -> str:
        answer = released.plane.request("POST", f"{pods}?dryRun=All", body)
        assert answer.status == 403, answer
        return str(answer.body["message"])

    message = eventually(refusal, what="the webhook refuses the notebook")
    assert 'denied the request: gpuward [visible-devices-env] container "jupyter"' in message
