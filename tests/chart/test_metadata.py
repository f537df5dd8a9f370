"""The metadata of the chart in Chart.yaml."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as Xml

import yaml

from gpuward import __version__
from tests.testkit.chart.rendering import CHART, containers_of, render
from tests.testkit.paths import ROOT

METADATA: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
HUB = {
    key.removeprefix("artifacthub.io/"): yaml.safe_load(text)
    for key, text in METADATA["annotations"].items()
}


def test_the_app_version_is_the_version_of_gpuward() -> None:
    assert METADATA["appVersion"] == __version__
    assert METADATA["kubeVersion"] == ">=1.30.0-0"


def test_it_names_its_maintainers_and_sources() -> None:
    assert METADATA["type"] == "application"
    assert METADATA["home"] in METADATA["sources"]
    assert METADATA["maintainers"][0]["name"]
    assert METADATA["keywords"]


def test_its_icon_is_an_svg_image() -> None:
    assert METADATA["icon"].endswith("/main/charts/gpuward/icon.svg")
    text = (CHART / "icon.svg").read_text(encoding="utf-8")
    assert Xml.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  # the chart's own file


def test_artifact_hub_lists_the_images_that_run() -> None:
    listed = {image["image"] for image in HUB["images"]}
    assert listed == {container["image"] for container in containers_of(render())}
    assert HUB["license"] == "Apache-2.0"
    assert HUB["category"] == "security"
    assert HUB["operator"] is False
    assert {change["kind"] for change in HUB["changes"]} <= {"added", "changed", "fixed", "removed"}


def test_the_links_for_artifact_hub_point_to_existing_pages() -> None:
    for link in HUB["links"]:
        page = link["url"].removeprefix(f"{METADATA['home']}/blob/main/")
        assert (ROOT / page).is_file(), page
