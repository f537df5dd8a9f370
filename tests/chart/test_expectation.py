"""The chart's expectation is what the chart renders, and what a real API server stores."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.api.errors import ConfigurationKind, ConfigurationRef
from cluster.webhooks.comparison import Expectation, differences, read_expectation
from tests.testkit.chart.rendering import (
    CI_VALUES,
    HELMS,
    Manifest,
    find_one,
    of_kind,
    pod_specs,
    render,
)
from tests.testkit.control_plane.plane import ControlPlane

every_values = pytest.mark.parametrize("name", CI_VALUES)
KINDS = {kind: f"{kind.name.title()}WebhookConfiguration" for kind in ConfigurationKind}
# Without those of the webhook and of the certificate controller, nothing is evaluated.
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()


def prefix(name: str) -> str:
    """Return what the names of objects begin with for these values."""
    return "gpu-guard" if name == "everything" else "gpuward"


def expectation(objects: list[Manifest], folder: Path, name: str = "default") -> Expectation:
    """The expectation in the chart's ConfigMap, as gpuward reads it."""
    text = find_one(objects, "ConfigMap", f"{prefix(name)}-registration")["data"]["expected.yaml"]
    file = folder / "expected.yaml"
    file.write_text(text, encoding="utf-8")
    return read_expectation(str(file))


@every_values
def test_the_objects_of_the_release_are_recorded(name: str) -> None:
    """Those without which a component does not work; hooks come and go."""
    objects = render(CI_VALUES[name])
    (record,) = (
        made["data"]["objects.txt"].split()
        for made in of_kind(objects, "ConfigMap")
        if "objects.txt" in made.get("data", {})
    )
    assert len(record) == len({*record})
    kinds = ("Deployment", "CronJob", "Service", "Secret", "ConfigMap", *RIGHTS)
    rendered = {
        f"{made['kind']}/{made['metadata']['name']}"
        for kind in kinds
        for made in of_kind(objects, kind)
        if "helm.sh/hook" not in made["metadata"].get("annotations", {})
    }
    mounted = {volume for spec in pod_specs(objects).values() for volume in mounted_objects(spec)}
    by_controllers = {f"Secret/{prefix(name)}-{end}" for end in ("ca", "cert-manager-ca")}
    by_controllers |= {f"Lease/{prefix(name)}-certs"}
    assert {*record} - rendered <= mounted | by_controllers
    scraped = re.compile(r"Service/.*-(certs|watch|exceptions|inventory|audit)")
    unneeded = re.compile(r"ConfigMap/.*-(dashboard|registration)|Secret/.*-(trusted|manager-.*)")
    rights = {each for each in rendered if each.partition("/")[0] in RIGHTS}
    needed = {each for each in rights if each.endswith("-certs")}
    assert rights & {*record} == needed | {f"ServiceAccount/{prefix(name)}"}
    left_out = rendered - {*record} - rights
    assert [each for each in left_out if not (scraped.match(each) or unneeded.match(each))] == []
    # All that pods of a Deployment mount, but what a user has made and the record itself.
    assert {each for each in mounted & rendered if not each.endswith("-registration")} <= {*record}


def mounted_objects(spec: dict[str, Any]) -> set[str]:
    """The Secrets and ConfigMaps that a pod mounts, as KIND/NAME."""
    volumes = spec.get("volumes", ())
    secrets = {v["secret"]["secretName"] for v in volumes if "secret" in v}
    config_maps = {v["configMap"]["name"] for v in volumes if "configMap" in v}
    return {f"Secret/{name}" for name in secrets} | {f"ConfigMap/{name}" for name in config_maps}


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
    """Defaults that the API server fills in are no difference."""
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
