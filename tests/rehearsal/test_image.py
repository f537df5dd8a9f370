"""The image for both processors: built, run, pushed, signed, and its packages listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.paths import ROOT
from tests.testkit.release.image import ARCHITECTURES, REPOSITORY, Builder, Labels
from tests.testkit.release.repository import VERSION, checkout
from tests.testkit.release.servers import Registry
from tests.testkit.release.signing import Signer

REQUIREMENTS = ROOT / "requirements" / "image.txt"
SYFT = Path(sys.executable).with_name("syft")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_runs_the_commands_of_the_workflow(images: Builder, architecture: str) -> None:
    image = f"gpuward-{architecture}"
    assert images.start(image, "--version") == f"gpuward {VERSION}\n"
    for command in ("serve", "certs run"):
        assert f"usage: gpuward {command}" in images.start(image, *command.split(), "--help")


def test_a_second_build_has_the_same_layers(
    images: Builder, repository: Path, labels: Labels, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    checkout(repository, f"v{VERSION}", source)
    images.build(source, "amd64", labels, "gpuward-again")
    layers = [
        json.loads(images.run("inspect", "--type=image", name))["OCIv1"]["rootfs"]["diff_ids"]
        for name in ("gpuward-amd64", "gpuward-again")
    ]
    assert layers[0] == layers[1]


def test_the_signature_covers_both_and_nothing_else(
    digest: str, registry: Registry, tmp_path: Path
) -> None:
    signer = Signer(tmp_path, registry)
    image = f"{registry.address}/{REPOSITORY}"
    assert signer.verify(f"{image}@{digest}") != ""
    signer.sign(f"{image}@{digest}", "--recursive")
    assert signer.verify(f"{image}@{digest}") == ""
    (tmp_path / "other").mkdir()
    stranger = Signer(tmp_path / "other", registry)
    assert stranger.verify(f"{image}@{digest}") != ""


@pytest.mark.parametrize(
    ("kind", "key"), [("spdx-json", "packages"), ("cyclonedx-json", "components")]
)
def test_its_packages_are_listed_and_attested(
    digest: str, registry: Registry, tmp_path: Path, kind: str, key: str
) -> None:
    image = f"{registry.address}/{REPOSITORY}@{digest}"
    done = subprocess.run(
        [SYFT, "scan", f"registry:{image}", "--quiet", f"--output={kind}"],
        env={
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "SSL_CERT_FILE": str(registry.authority),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = {
        (
            str(entry["name"]).lower().replace("_", "-"),
            entry.get("versionInfo", entry.get("version")),
        )
        for entry in json.loads(done.stdout)[key]
    }
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    assert {*pins, ("gpuward", VERSION)} <= listed
    if key == "components":
        (tmp_path / "list.json").write_text(done.stdout)
        signer = Signer(tmp_path, registry)
        assert signer.verify_attestation(image) != ""
        signer.attest(image, tmp_path / "list.json")
        assert signer.verify_attestation(image) == ""
