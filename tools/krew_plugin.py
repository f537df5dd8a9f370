"""Pack `kubectl gpuward` for krew: an archive, and the manifest with which krew installs it.

    python -m tools.krew_plugin --uri https://HOST/gpuward.tar.gz OUT

writes OUT/gpuward.tar.gz, which you publish at the address, and OUT/gpuward.yaml, for an index of
krew. The archive has gpuward and the packages of its extra `cluster` as they are installed beside
this tool. Some are compiled, so it is for this operating system, this processor, and this minor
version of Python, which users must have.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from gpuward import __version__

ROOT = Path(__file__).parents[1]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
NAME = "kubectl-gpuward"
_HOME_PAGE = "https://github.com/gpuward/gpuward"
# krew links the program from another folder. -I -S: nothing of the user's or the system's packages.
_LAUNCHER = f"""\
#!/bin/sh
command -v {PYTHON} >/dev/null || {{ echo "kubectl gpuward needs {PYTHON}" >&2; exit 2; }}
exec {PYTHON} -I -S "$(dirname "$(readlink -f "$0")")/lib" "$@"
"""
_MAIN = "import sys\n\nfrom gpuward.__main__ import main\n\nsys.exit(main())\n"
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
# As in the image: the client imports these lazily, by name, and gpuward uses none of them.
_UNUSED = ("kubernetes/aio/", "kubernetes/client/api/", "kubernetes/client/apis/")
_MODELS = "kubernetes/client/models/"
_FOR_UNUSED = ("aiohttp", "aiohttp-retry")  # of kubernetes/aio


def main(arguments: list[str]) -> int:
    """Write both files; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.krew_plugin", description=__doc__)
    parser.add_argument("--uri", required=True, help="where the archive will be")
    parser.add_argument("folder", metavar="OUT", type=Path)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        build = ("build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT))
        subprocess.run([sys.executable, "-m", *build], check=True)
        packed = archive(*Path(folder).glob("*.whl"))
    (options.folder / "gpuward.tar.gz").write_bytes(packed)
    text = yaml.safe_dump(manifest(packed, options.uri), sort_keys=False, width=100)
    (options.folder / "gpuward.yaml").write_text(text, encoding="utf-8")
    return 0


def archive(wheel: Path) -> bytes:
    """The archive, with gpuward's `wheel`; the same files are always the same bytes."""
    files = {
        NAME: _LAUNCHER.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "lib/__main__.py": _MAIN.encode(),
    }
    files |= {f"lib/{name}": content for name, content in (*_unpacked(wheel), *_dependencies())}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == NAME else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def manifest(packed: bytes, uri: str) -> dict[str, Any]:
    """The manifest for krew.

    Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
    """
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpuward"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": _HOME_PAGE,
            "shortDescription": "See, audit and check the GPUs of a cluster",
            "description": "Shows which GPUs are taken, free and stranded, finds pods that take "
            "or request GPUs wrongly, and checks that a cluster is fit for GPUs.",
            "caveats": f"It needs {PYTHON}.",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": sys.platform, "arch": machine}},
                    "uri": uri,
                    "sha256": hashlib.sha256(packed).hexdigest(),
                    "bin": NAME,
                }
            ],
        },
    }


def _unpacked(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as opened:
        yield from ((name, opened.read(name)) for name in opened.namelist())


def _dependencies() -> Iterator[tuple[str, bytes]]:
    """The files of the packages that gpuward's commands for clusters need."""
    for name in sorted(_required("gpuward", "cluster") - {"gpuward"}):
        for file in distribution(name).files or ():
            if _is_needed(file):
                yield str(file), Path(str(file.locate())).read_bytes()


def _required(name: str, extra: str = "") -> set[str]:
    """The distribution `name` and all that it requires here."""
    found = {name}
    for requirement in distribution(name).requires or ():
        wanted, _, marker = requirement.partition(";")
        of_extra = _EXTRA.search(marker)
        if of_extra is None or of_extra[1] == extra:
            package = re.split(r"[\s<>=!~\[(]", wanted.strip())[0]
            if package not in {name, *_FOR_UNUSED} and _is_installed(package):
                found |= _required(package)
    return found


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except ModuleNotFoundError:  # for another version of Python, or another system
        return False
    return True


def _is_needed(file: PurePosixPath) -> bool:
    path = file.as_posix()
    is_model = path.startswith(_MODELS) and file.name != "__init__.py"
    is_unused = is_model or path.startswith(_UNUSED)
    return file.suffix != ".pyc" and ".." not in file.parts and not is_unused


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
