"""The documentation as a site, built without the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a broken link or anchor, or a page that is not there, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_rules_are_in_the_navigation_and_can_be_found(site: Path) -> None:
    index = (site / "rules" / "index.html").read_text(encoding="utf-8")
    assert '<a href="visible-devices-env/" class="md-nav__link">' in index
    assert "GPU access that the scheduler does not count" in index
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any(doc["location"].startswith("rules/zero-gpu/") for doc in found["docs"])


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in ("index.html", "lint/index.html", "rules/visible-devices-env/index.html"):
        text = (site / page).read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", text)
        own = "https://gpuward.github.io/"  # the address by which search engines know the page
        assert [address for address in loaded if not address.startswith(own)] == []
