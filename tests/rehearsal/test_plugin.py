"""The plugin of kubectl, from the files on the page of the release to the first finding."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.paths import ROOT
from tests.testkit.release.distributions import path_with_python
from tests.testkit.release.repository import VERSION, checkout
from tests.testkit.release.workflow import run_step

DOWNLOADS = f"https://github.com/gpuward/gpuward/releases/download/v{VERSION}/"


@pytest.fixture(scope="module")
def files(
    repository: Path,
    versions: dict[str, dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of files for the page of the release, packed for this machine alone."""
    folder = tmp_path_factory.mktemp("plugin")
    expressions = {
        "github.repository": "gpuward/gpuward",
        "github.ref_name": f"v{VERSION}",
        "needs.version.outputs.epoch": versions[VERSION]["epoch"],
    }
    packing, joining = folder / "packing", folder / "joining"
    for name, job, step in ((packing, "plugin", "Pack"), (joining, "page", "Join")):
        checkout(repository, f"v{VERSION}", name)
        if name == joining:
            shutil.copytree(packing / "plugin", joining / "plugin")
        run_step(job, step, name, expressions, {"PATH": path_with_python(name)})
    return joining / "files"


def test_krew_installs_what_the_manifest_names(files: Path, krew: Path, tmp_path: Path) -> None:
    manifest: dict[str, Any] = yaml.safe_load((files / "gpuward.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"].startswith(DOWNLOADS)
    archive = files / platform["uri"].removeprefix(DOWNLOADS)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["sha256"] == digest
    assert f"{digest}  {archive.name}" in (files / "SHA256SUMS").read_text().splitlines()
    home = {"HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew"), "LANG": "C.UTF-8"}
    environment = {**home, "PATH": f"{sys.base_prefix}/bin:{os.defpath}"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    options = (f"--manifest={files / 'gpuward.yaml'}", f"--archive={archive}")
    done = run(str(krew), "install", *options)
    assert done.returncode == 0, done.stderr
    cluster = str(ROOT / "docs" / "example-cluster.yaml")
    done = run(str(tmp_path / "krew" / "bin" / "kubectl-gpuward"), "audit", "-f", cluster)
    assert (done.returncode, done.stderr) == (1, "")
    assert "visible-devices-env" in done.stdout
