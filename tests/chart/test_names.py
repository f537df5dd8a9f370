"""Names: as the user calls the release, or as a part of a bigger chart, they stay sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testkit.chart.rendering import CHART, HELMS, Manifest, of_kind, rendered, run_helm, the

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
FIXED = {"gpuward", "gpuward-certs", "gpuward-removal", "gpuward-test"}
# As long as helm lets one be.
LONG = "long-" * 10 + "abc"
CERT_MANAGER = "certificates: {mode: certManager}"


def names(objects: list[Manifest]) -> set[str]:
    return {made["metadata"]["name"] for made in objects}


def sound(objects: list[Manifest]) -> None:
    """Fail unless every name is one that every kind takes, and every label's value as well."""
    for made in objects:
        assert LABEL.fullmatch(made["metadata"]["name"]), made["metadata"]["name"]
        for value in made["metadata"]["labels"].values():
            assert VALUE.fullmatch(value), value
    # Pods are called after these, with up to 17 characters more.
    for made in of_kind(objects, "Deployment") + of_kind(objects, "Job"):
        assert len(made["metadata"]["name"]) <= 63


@pytest.mark.parametrize("text", ["", CERT_MANAGER])
@pytest.mark.parametrize(
    "release",
    [LONG, "gpuward", "g", "gpus.platform.prod", "a" * 44 + "-b", "gpuward-" + "x" * 45, "a--b"],
)
def test_names_are_sound_whatever_the_release_is_called(release: str, text: str) -> None:
    objects = rendered(text, release=release)
    sound(objects)
    assert len({(made["kind"], made["metadata"]["name"]) for made in objects}) == len(objects)


@pytest.mark.parametrize("text", [f"fullnameOverride: {'x' * 60}", f"nameOverride: {'x' * 60}"])
def test_names_are_sound_whatever_the_values_call_them(text: str) -> None:
    sound(rendered(text, release=LONG))


@pytest.mark.parametrize(
    ("release", "text", "name"),
    [
        ("gpuward", "", "gpuward"),
        ("my-gpuward", "", "my-gpuward"),
        ("prod", "", "prod-gpuward"),
        ("prod", "nameOverride: guard", "prod-guard"),
        ("guard", "nameOverride: guard", "guard"),
        ("prod", "fullnameOverride: guard", "guard"),
        ("prod", "nameOverride: a\nfullnameOverride: guard", "guard"),
    ],
)
def test_what_is_in_a_namespace_is_called_after_the_release(
    release: str, text: str, name: str
) -> None:
    objects = rendered(text, release=release)
    assert the(objects, "Deployment", name)
    for made in objects:
        if "namespace" in made["metadata"]:
            assert made["metadata"]["name"].startswith(name), made["kind"]


def test_what_is_in_no_namespace_is_always_called_the_same() -> None:
    for release, text in (("prod", ""), ("x", "nameOverride: a"), ("y", "fullnameOverride: b")):
        objects = rendered(text, release=release)
        whole = [made for made in objects if "namespace" not in made["metadata"]]
        assert names(whole) == FIXED


def umbrella(folder: Path, helm: str) -> Path:
    """A chart that contains ours, with its dependencies fetched."""
    folder = folder / "umbrella"
    folder.mkdir()
    dependency = f"{{name: gpuward, version: '*', repository: 'file://{CHART}', "
    (folder / "Chart.yaml").write_text(
        "apiVersion: v2\nname: umbrella\nversion: 1.0.0\n"
        f"dependencies:\n  - {dependency}condition: gpuward.enabled}}\n"
    )
    values = "global: {imageRegistry: example.com, cattle: {clusterId: c}}\n"
    values += "gpuward: {enabled: true, mode: deny, policy: {catalog: '0.1'}}\n"
    (folder / "values.yaml").write_text(values)
    done = run_helm("dependency", "update", str(folder), helm=helm)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("helm", HELMS)
def test_a_bigger_chart_can_contain_it_and_leave_it_out(tmp_path: Path, helm: str) -> None:
    chart = umbrella(tmp_path, helm)
    objects = rendered(release="stack", chart=chart, helm=helm)
    sound(objects)
    alone = rendered("mode: deny\npolicy: {catalog: '0.1'}", release="stack", helm=helm)
    assert names(objects) == names(alone) >= {"stack-gpuward", *FIXED}
    assert len(objects) == len(alone)
    webhooks = the(objects, "ValidatingWebhookConfiguration")["webhooks"]
    assert webhooks == the(alone, "ValidatingWebhookConfiguration")["webhooks"]
    sound(rendered(release=LONG, chart=chart, helm=helm))
    assert rendered("gpuward: {enabled: false}", chart=chart, helm=helm) == []


@pytest.mark.parametrize("helm", HELMS)
def test_a_packed_chart_makes_the_same_as_the_folder(tmp_path: Path, helm: str) -> None:
    done = run_helm("package", str(CHART), f"--destination={tmp_path}", helm=helm)
    assert done.returncode == 0, done.stderr
    assert rendered(chart=tmp_path / "gpuward-0.1.0.tgz", helm=helm) == rendered(helm=helm)
