"""The chart in a registry, signed, and installed from there by the words of the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.testkit.chart.installation import Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT
from tests.testkit.release.chart import PUBLIC, PushedChart, push_chart
from tests.testkit.release.repository import NEXT_VERSION, VERSION
from tests.testkit.release.servers import Registry
from tests.testkit.release.signing import Signer

README = (ROOT / "README.md").read_text(encoding="utf-8")
BYPASS = next(yaml.safe_load_all((ROOT / "examples" / "bypass.yaml").read_text()))
"""The notebook that sets NVIDIA_VISIBLE_DEVICES."""


@pytest.fixture(scope="session")
def charts(
    repository: Path,
    registry: Registry,
    control_plane_programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, PushedChart]:
    folder = tmp_path_factory.mktemp("charts")
    return {
        version: push_chart(repository, version, folder / version, registry, control_plane_programs)
        for version in (VERSION, NEXT_VERSION)
    }


@pytest.fixture(scope="session")
def signer(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"), registry)


@pytest.fixture
def released(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    with Installation(chart_plane, kubelet, "helm4") as uninstalled:
        yield uninstalled


@pytest.fixture(scope="session")
def trust(registry: Registry) -> str:
    """The option with which helm trusts the registry's certificate, which is of no public CA."""
    return f"--ca-file={registry.authority}"


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
    (words,) = re.findall(command, README, re.MULTILINE)
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


def test_an_upgrade_keeps_what_is_in_place_and_a_rollback_returns_to_it(
    released: Installation, charts: dict[str, PushedChart], trust: str
) -> None:
    policy = {"rules": {"visible-devices-env": {"action": "warn"}}}
    values = {"mode": "deny", "policy": policy, "policyHook": {"enabled": True}}
    waits = ("--wait", "--timeout=200s", trust)
    reference = f"oci://{charts[VERSION].repository}"
    released.helm(
        "install", reference, f"--version={VERSION}", "--create-namespace", *waits, values=values
    )
    bundles = eventually(lambda: released.ca_bundles() - {b""}, what="there is a CA bundle")
    before = released.get("configmap/gpuward-policy")["data"]
    upgrade = (f"--version={NEXT_VERSION}", "--reset-then-reuse-values", *waits)
    released.helm("upgrade", reference, *upgrade)
    assert chart_label(released) == f"gpuward-{NEXT_VERSION}"
    image = released.get("deployment/gpuward")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"ghcr.io/gpuward/gpuward:{NEXT_VERSION}"
    assert released.get("configmap/gpuward-policy")["data"] == before
    assert released.ca_bundles() == bundles
    released.rollback(1)
    assert chart_label(released) == f"gpuward-{VERSION}"
    assert released.get("configmap/gpuward-policy")["data"] == before
    assert released.ca_bundles() == bundles


def chart_label(installation: Installation) -> str:
    labels = installation.get("deployment/gpuward")["metadata"]["labels"]
    return str(labels["helm.sh/chart"])
