"""What the chart says of itself is true."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as Xml

import yaml

from gpuward import __version__
from tests.testkit.chart.rendering import CHART, containers_of, rendered
from tests.testkit.paths import ROOT

METADATA: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
HUB = {
    key.removeprefix("artifacthub.io/"): yaml.safe_load(text)
    for key, text in METADATA["annotations"].items()
}


def test_it_is_the_version_of_the_program() -> None:
    assert METADATA["appVersion"] == __version__
    assert METADATA["kubeVersion"] == ">=1.30.0-0"


def test_it_says_who_makes_it_and_where_it_comes_from() -> None:
    assert METADATA["type"] == "application"
    assert METADATA["home"] in METADATA["sources"]
    assert METADATA["maintainers"][0]["name"]
    assert METADATA["keywords"]


def test_its_icon_is_a_picture() -> None:
    assert METADATA["icon"].endswith("/main/charts/gpuward/icon.svg")
    text = (CHART / "icon.svg").read_text(encoding="utf-8")
    assert Xml.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  # our own


def test_artifact_hub_is_told_the_images_that_run() -> None:
    told = {image["image"] for image in HUB["images"]}
    assert told == {container["image"] for container in containers_of(rendered())}
    assert HUB["license"] == "Apache-2.0"
    assert HUB["category"] == "security"
    assert HUB["operator"] is False
    assert {change["kind"] for change in HUB["changes"]} <= {"added", "changed", "fixed", "removed"}


def test_the_links_for_artifact_hub_lead_to_pages_of_ours() -> None:
    for link in HUB["links"]:
        page = link["url"].removeprefix(f"{METADATA['home']}/blob/main/")
        assert (ROOT / page).is_file(), page
