"""The image of gpuward as the Dockerfile lays it out, for containerd, without a registry.

Its root folder is built outside of the node's namespaces, because pip needs its index.
Its base image is not available here. In its place is the Python that runs the tests, with the
libraries that it needs, at the paths that they have on this machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.image.dockerfile_replay import Replay, stages
from tests.testkit.paths import ROOT
from tests.testkit.real_node.images import Image

DOCKERFILE = ROOT / "Dockerfile"
ROOT_VARIABLE = "GPUWARD_IMAGE_ROOT"
"""The variable with the path of the root folder, for the tests."""
NAME = "gpuward.test/gpuward:1"
_NOT_NEEDED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip")


def gpuward_image(root: Path) -> Image:
    """The image whose root folder was built before."""
    stage = stages(DOCKERFILE.read_text(encoding="utf-8"))[-1]
    (entry,) = stage.find_all("ENTRYPOINT")
    (user,) = stage.find_all("USER")
    variables = tuple(stage.environment.items())
    return Image(NAME, root, tuple(entry.words), env=variables, user=user.value)


def build(root: Path) -> None:
    """Build the root folder, which is empty."""
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(DOCKERFILE, Path(folder))
        last = replay.root(replay.stages[-1].name)
        shutil.copytree(last, root, symlinks=True, dirs_exist_ok=True)
    _copy_python(root, gpuward_image(root).entrypoint[0])
    _copy_libraries(root)
    # pytest and mktemp make folders that only their user can enter.
    root.chmod(0o755)


def _copy_python(root: Path, path: str) -> None:
    """Copy the interpreter and its standard library, and make it callable by `path`."""
    prefix = Path(sys.base_prefix)
    target = root / prefix.relative_to("/")
    interpreter = Path(sys.executable).resolve()
    library = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    (target / "bin").mkdir(parents=True)
    shutil.copy2(interpreter, target / "bin" / interpreter.name)
    shutil.copytree(
        prefix / library,
        target / library,
        ignore=shutil.ignore_patterns(*_NOT_NEEDED, "config-*"),
    )
    for shared in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, target / "lib" / shared.name)
    link = root / path.lstrip("/")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(prefix / "bin" / interpreter.name)


def _copy_libraries(root: Path) -> None:
    """Copy the shared libraries that the programs and libraries in the image are linked to."""
    programs = [
        path for path in root.rglob("*") if path.suffix == ".so" or path.parent.name == "bin"
    ]
    for library in sorted(_libraries(programs)):
        target = root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)


def _libraries(programs: list[Path]) -> Iterator[Path]:
    # Its exit status is 1 if one of the files is linked to nothing.
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    for path in set(re.findall(r"(/\S+) \(0x", done.stdout)):
        yield Path(path)
