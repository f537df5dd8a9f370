"""Names of the chart's objects: valid for every release name, override and parent chart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testkit.chart.rendering import (
    CHART,
    HELMS,
    Manifest,
    find_one,
    of_kind,
    render,
    run_helm,
)
from tests.testkit.chart.umbrella import umbrella

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
FIXED = {"gpuward", "gpuward-certs", "gpuward-mode-label", "gpuward-test"}
# The longest release name that helm accepts.
LONG = "long-" * 10 + "abc"
CERT_MANAGER = "certificates: {mode: certManager}"


def names(objects: list[Manifest]) -> set[str]:
    return {made["metadata"]["name"] for made in objects}


def assert_valid_names(objects: list[Manifest]) -> None:
    """Fail unless every name is valid for every kind, and every label value is valid."""
    for made in objects:
        assert LABEL.fullmatch(made["metadata"]["name"]), made["metadata"]["name"]
        for value in made["metadata"]["labels"].values():
            assert VALUE.fullmatch(value), value
    # The names of their pods are up to 17 characters longer.
    for made in of_kind(objects, "Deployment") + of_kind(objects, "Job"):
        assert len(made["metadata"]["name"]) <= 63


@pytest.mark.parametrize("text", ["", CERT_MANAGER])
@pytest.mark.parametrize(
    "release",
    [LONG, "gpuward", "g", "gpus.platform.prod", "a" * 44 + "-b", "gpuward-" + "x" * 45, "a--b"],
)
def test_names_are_valid_for_every_release_name(release: str, text: str) -> None:
    objects = render(text, release=release)
    assert_valid_names(objects)
    assert len({(made["kind"], made["metadata"]["name"]) for made in objects}) == len(objects)


@pytest.mark.parametrize("text", [f"fullnameOverride: {'x' * 60}", f"nameOverride: {'x' * 60}"])
def test_names_are_valid_for_every_name_override(text: str) -> None:
    assert_valid_names(render(text, release=LONG))


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
def test_namespaced_objects_are_named_after_the_release(release: str, text: str, name: str) -> None:
    objects = render(text, release=release)
    assert find_one(objects, "Deployment", name)
    for made in objects:
        if "namespace" in made["metadata"]:
            assert made["metadata"]["name"].startswith(name), made["kind"]


def test_cluster_scoped_objects_always_have_the_same_names() -> None:
    for release, text in (("prod", ""), ("x", "nameOverride: a"), ("y", "fullnameOverride: b")):
        objects = render(text, release=release)
        cluster_scoped = [made for made in objects if "namespace" not in made["metadata"]]
        assert names(cluster_scoped) == FIXED


PARENT_VALUES = """\
global: {imageRegistry: example.com, cattle: {clusterId: c}}
gpuward: {enabled: true, mode: deny, policy: {catalog: '0.1'}}
"""


@pytest.mark.parametrize("helm", HELMS)
def test_a_parent_chart_can_include_and_disable_it(tmp_path: Path, helm: str) -> None:
    chart = umbrella(tmp_path, PARENT_VALUES, helm)
    objects = render(release="stack", chart=chart, helm=helm)
    assert_valid_names(objects)
    alone = render("mode: deny\npolicy: {catalog: '0.1'}", release="stack", helm=helm)
    assert names(objects) == names(alone) >= {"stack-gpuward", *FIXED}
    assert len(objects) == len(alone)
    webhooks = find_one(objects, "ValidatingWebhookConfiguration")["webhooks"]
    assert webhooks == find_one(alone, "ValidatingWebhookConfiguration")["webhooks"]
    assert_valid_names(render(release=LONG, chart=chart, helm=helm))
    assert render("gpuward: {enabled: false}", chart=chart, helm=helm) == []


@pytest.mark.parametrize("helm", HELMS)
def test_a_packaged_chart_renders_the_same_as_the_folder(tmp_path: Path, helm: str) -> None:
    done = run_helm("package", str(CHART), f"--destination={tmp_path}", helm=helm)
    assert done.returncode == 0, done.stderr
    assert render(chart=tmp_path / "gpuward-0.1.0.tgz", helm=helm) == render(helm=helm)
