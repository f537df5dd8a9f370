"""The documentation as a site, built without the network, and kept for each minor version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.paths import ROOT
from tests.testkit.release.distributions import path_with_python
from tests.testkit.release.repository import NEXT_VERSION, VERSION, checkout, git
from tests.testkit.release.workflow import run_step

MINOR = VERSION.rpartition(".")[0]


def publish(repository: Path, version: str, folder: Path) -> None:
    """Build the site of a version as the workflow does, and push its branch."""
    checkout(repository, f"v{version}", folder)
    environment = {"GITHUB_REF_NAME": f"v{version}", "PATH": path_with_python(folder)}
    run_step("documentation", "Build", folder, {"github.ref_name": f"v{version}"}, environment)
    git(folder, "push", "--quiet", "origin", "gh-pages")


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


def test_assistants_find_every_page_as_markdown(site: Path) -> None:
    listed = re.findall(r"\]\(([^)#]+)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) > 200
    for name in listed:
        assert "\n# " in "\n" + (site / name).read_text(encoding="utf-8"), name


def test_each_minor_version_keeps_its_site(repository: Path, tmp_path: Path) -> None:
    """A patch release replaces the site, and a link leads to the sources of its tag."""
    other = {"version": "0.0", "title": "0.0.9", "aliases": []}
    for number, version in enumerate((VERSION, NEXT_VERSION)):
        publish(repository, version, tmp_path / str(number))
        listed = json.loads(git(repository, "show", "gh-pages:versions.json"))
        ours = {"version": MINOR, "title": version, "aliases": ["latest"]}
        assert listed == [ours, *([other] if number else [])]
        page = git(repository, "show", f"gh-pages:{MINOR}/index.html")
        assert f"github.com/gpuward/gpuward/blob/v{version}/" in page
        if not number:
            _add_version(repository, other, tmp_path / "older")
    assert git(repository, "show", "gh-pages:0.0/index.html") == "older"
    assert 'url=latest/"' in git(repository, "show", "gh-pages:index.html")
    assert git(repository, "show", "gh-pages:latest") == MINOR


def _add_version(repository: Path, version: dict[str, Any], folder: Path) -> None:
    checkout(repository, "gh-pages", folder)
    (folder / version["version"]).mkdir()
    (folder / version["version"] / "index.html").write_text("older")
    listed = json.loads((folder / "versions.json").read_text())
    (folder / "versions.json").write_text(json.dumps([*listed, version]))
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-mx")
    git(folder, "push", "--quiet", "origin", "gh-pages")
