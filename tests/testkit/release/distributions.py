"""Wheel and source distribution of a tag, and an index with all that their users install."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from tests.testkit.release.repository import checkout
from tests.testkit.release.workflow import run_step

_EPOCH = "needs.version.outputs.epoch"


def read_version(repository: Path, tag: str, folder: Path) -> dict[str, str]:
    """The outputs of the workflow's first job for a tag."""
    checkout(repository, tag, folder)
    environment = {"GITHUB_REF_NAME": tag, "PATH": path_with_python(folder)}
    run_step("version", "Tag, package and chart agree", folder, {}, environment)
    return run_step("version", "read", folder, {}, environment)


def build_distributions(repository: Path, tag: str, epoch: str, folder: Path) -> Path:
    """Check the tag out into `folder` and build there; the folder with wheel and sdist."""
    checkout(repository, tag, folder)
    environment = {"PATH": path_with_python(folder)}
    run_step("distributions", "Build", folder, {_EPOCH: epoch}, environment)
    return folder / "dist"


def path_with_python(folder: Path) -> str:
    """A PATH with a Python of its own, as actions/setup-python makes one."""
    environment = folder.parent / f"{folder.name}-python"
    if not environment.exists():
        venv.create(environment, with_pip=True)
    return f"{environment / 'bin'}:/usr/local/bin:/usr/bin:/bin"


def pins_of(file: Path, name: str, target: Path) -> Path:
    """Write the pin of one package in a requirements file, with its hashes, into `target`."""
    blocks = re.split(r"^(?=\S)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (found,) = (block for block in blocks if block.startswith(f"{name}=="))
    target.write_text(found, encoding="utf-8")
    return target


def download_wheels(
    requirements: Iterable[Path], folder: Path, *, platform: tuple[str, ...] = (), python: str = ""
) -> None:
    """Download the pinned wheels of requirements files, for this machine or another platform."""
    options = [f"--platform={name}" for name in platform]
    options += [f"--python-version={python}"] if python else []
    for file in requirements:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--require-hashes", f"--dest={folder}", *options]
        subprocess.run([*command, "-r", str(file)], check=True)
