"""The GitHub workflows that check, build, sign and publish; these tests only read the files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward import __version__
from tests.testkit.control_plane.toolchain import BuildError, build_once, cache, go_command, run
from tests.testkit.paths import ROOT, TESTS
from tests.testkit.skipping import skip_missing

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MODULE = TESTS / "workflows"
ACTIONLINT = "github.com/rhysd/actionlint"
PUBLISHING = {"packages", "id-token", "attestations"}
# The write permissions of each release job; all other jobs may only read the repository.
MAY_WRITE = {
    "image": PUBLISHING,
    "chart": PUBLISHING,
    "pypi": {"id-token"},
    "documentation": {"contents"},
    "page": {"contents"},
}


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    path = ROOT / ".github" / "workflows" / "release.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def actionlint() -> str:
    version = re.search(rf"{ACTIONLINT} v(\S+)", (MODULE / "go.mod").read_text(encoding="utf-8"))
    assert version
    target = cache() / f"actionlint-{version[1]}"
    try:
        with build_once(target) as folder:
            if folder:
                package = f"{ACTIONLINT}/cmd/actionlint"
                run([go_command(), "build", "-o", str(folder / "actionlint"), package], MODULE)
    except BuildError as error:
        skip_missing(f"actionlint cannot be built: {error}")
    return str(target / "actionlint")


def run_command(*command: str) -> tuple[int, str]:
    """Run a command; returns the exit status and the whole output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def required_jobs(jobs: dict[str, Any], name: str) -> set[str]:
    """All jobs that must succeed before the job `name` starts."""
    direct = jobs[name].get("needs", [])
    first = {direct} if isinstance(direct, str) else set(direct)
    return first.union(*(required_jobs(jobs, one) for one in first))


def steps(job: dict[str, Any]) -> list[str]:
    """The steps of a job: the action or the shell command of each."""
    return [step.get("uses", "").partition("@")[0] or step["run"] for step in job["steps"]]


def test_actionlint_finds_nothing(actionlint: str) -> None:
    # Without shellcheck, so that the findings do not depend on whether it is installed.
    assert run_command(actionlint, "-shellcheck=", *map(str, WORKFLOWS)) == (0, "")


def test_zizmor_finds_nothing() -> None:
    zizmor = str(Path(sys.executable).with_name("zizmor"))
    status, text = run_command(
        zizmor, "--offline", "--no-progress", "--strict-collection", ".github"
    )
    assert status == 0, text


def test_every_action_is_pinned_to_one_commit() -> None:
    used: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for line in re.findall(r"uses: (?!\./)(.+)", path.read_text(encoding="utf-8")):
            pinned = re.fullmatch(r"(\S+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", line)
            assert pinned, line
            used.setdefault(pinned[1], set()).add(pinned[2])
    assert used
    assert {name: found for name, found in used.items() if len(found) > 1} == {}


def test_jobs_have_no_more_permissions_than_they_need(release: dict[str, Any]) -> None:
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}
    for name, job in release["jobs"].items():
        writes = {right for right, verb in job["permissions"].items() if verb == "write"}
        assert writes == MAY_WRITE.get(name, set()), name
    assert "secrets." not in str(release)


def test_nothing_is_published_without_checks(release: dict[str, Any]) -> None:
    jobs = release["jobs"]
    for name in ("image", "chart", "plugin", "pypi"):
        assert {"version", "check"} <= required_jobs(jobs, name)
    # The chart uses the image, and a file on PyPI can never be replaced, so PyPI comes last
    # but for what says what there is.
    assert "image" in required_jobs(jobs, "chart")
    last = {"documentation", "page"}
    assert required_jobs(jobs, "pypi") == set(jobs) - {"pypi"} - last
    for name in last:
        assert required_jobs(jobs, name) == set(jobs) - last
    assert jobs["pypi"]["environment"]["name"] == "pypi"


def test_the_image_is_tagged_after_it_has_run_and_is_scanned_and_signed(
    release: dict[str, Any],
) -> None:
    job = release["jobs"]["image"]
    done = steps(job)
    build = done.index("docker/build-push-action")
    options = job["steps"][build]["with"]
    assert options["platforms"] == "linux/amd64,linux/arm64"
    assert (options["sbom"], options["provenance"]) == (True, "mode=max")
    assert "push-by-digest=true" in options["outputs"]
    assert "tags" not in options
    after = done[build + 1 :]
    order = ["docker run", "anchore/scan-action", "anchore/scan-action", "cosign sign"]
    order += ["anchore/sbom-action", "cosign attest", "actions/attest", "imagetools create"]
    assert [word in step for word, step in zip(order, after, strict=True)] == [True] * len(order)
    scans = [step for step in job["steps"] if "scan-action" in step.get("uses", "")]
    assert {step["env"]["GRYPE_PLATFORM"] for step in scans} == set(options["platforms"].split(","))
    for step in scans:
        assert step["with"]["severity-cutoff"] == "high"
        assert step["with"]["only-fixed"] is True
        assert "fail-build" not in step["with"]


def test_a_release_has_one_version(tmp_path: Path, release: dict[str, Any]) -> None:
    assert any("tools/check_release.py" in step for step in steps(release["jobs"]["version"]))
    template = "templates/gpuward.yml"
    names = ("gpuward/__init__.py", "charts/gpuward/Chart.yaml", "tools/check_release.py")
    for name in (*names, template):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    readme, chart = tmp_path / "README.md", tmp_path / "charts/gpuward/Chart.yaml"
    readme.write_text("Install it.\n", encoding="utf-8")

    def checked(tag: str) -> tuple[int, str]:
        return run_command(sys.executable, str(tmp_path / "tools/check_release.py"), tag)

    assert checked(f"v{__version__}") == (0, "")
    assert checked(__version__)[0] == 1
    readme.write_text("## Not published yet\n", encoding="utf-8")
    chart.write_text(re.sub(r"(?m)^appVersion: .*$", 'appVersion: "9.9.9"', chart.read_text()))
    component = tmp_path / template
    component.write_text(component.read_text().replace(f'"{__version__}"', '"8.8.8"'))
    assert checked(f"v{__version__}") == (
        1,
        (
            f"charts/gpuward/Chart.yaml: appVersion: 9.9.9, not {__version__}\n"
            f"{template}: default: 8.8.8, not {__version__}\n"
            "README.md: remove the section '## Not published yet'\n"
        ),
    )
