"""The chart's expectation is what the chart renders, and what a real API server stores."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cluster.api.errors import ConfigurationKind, ConfigurationRef
from cluster.webhooks.comparison import Expectation, differences, read_expectation
from tests.testkit.chart.rendering import (
    CI_VALUES,
    HELMS,
    Manifest,
    find_one,
    render,
)
from tests.testkit.control_plane.plane import ControlPlane

every_values = pytest.mark.parametrize("name", CI_VALUES)
KINDS = {kind: f"{kind.name.title()}WebhookConfiguration" for kind in ConfigurationKind}
BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()


def expectation(objects: list[Manifest], folder: Path, name: str = "default") -> Expectation:
    """The expectation in the chart's ConfigMap, as gpuward reads it."""
    prefix = "gpu-guard" if name == "everything" else "gpuward"
    (text,) = find_one(objects, "ConfigMap", f"{prefix}-registration")["data"].values()
    file = folder / "expected.yaml"
    file.write_text(text, encoding="utf-8")
    return read_expectation(str(file))


@pytest.mark.parametrize("helm", HELMS)
@every_values
def test_it_equals_the_configurations_of_the_chart(tmp_path: Path, name: str, helm: str) -> None:
    objects = render(CI_VALUES[name], helm=helm)
    expected = expectation(objects, tmp_path, name)
    assert list(expected) == [ConfigurationRef(kind, "gpuward") for kind in ConfigurationKind]
    for ref, manifest in expected.items():
        rendered = find_one(objects, KINDS[ref.kind])
        assert manifest["webhooks"] == rendered["webhooks"]
        assert manifest["apiVersion"] == rendered["apiVersion"]


@every_values
def test_what_the_api_server_stores_is_as_expected(
    plane: ControlPlane, tmp_path: Path, name: str
) -> None:
    """Whatever the API server fills in is no difference."""
    objects = render(CI_VALUES[name])
    for ref, manifest in expectation(objects, tmp_path, name).items():
        rendered = find_one(objects, KINDS[ref.kind])
        for webhook in rendered["webhooks"]:
            webhook["clientConfig"].setdefault("caBundle", BUNDLE)
        options = ("--dry-run=server", "--validate=strict", "--output=json", "--filename=-")
        done = plane.kubectl("create", *options, input=json.dumps(rendered))
        stored = json.loads(done.stdout)
        assert differences(manifest, stored) == []
        stored["webhooks"][0]["timeoutSeconds"] += 1
        assert len(differences(manifest, stored)) == 1


def test_a_ca_bundle_that_somebody_else_writes_is_not_expected(tmp_path: Path) -> None:
    given = render(CI_VALUES["existing-secret"])
    for name, objects in {"default": render(), "existing-secret": given}.items():
        for manifest in expectation(objects, tmp_path).values():
            found = {"caBundle" in each["clientConfig"] for each in manifest["webhooks"]}
            assert found == {name == "existing-secret"}
