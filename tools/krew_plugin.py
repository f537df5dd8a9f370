"""Pack `kubectl gpuward` for krew: an archive, and the manifest with which krew installs it.

    python -m tools.krew_plugin --uri https://HOST/gpuward-{platform}.tar.gz OUT

writes an archive such as OUT/gpuward-linux-amd64.tar.gz, which you publish at the address, and
beside it OUT/gpuward-linux-amd64.yaml, for an index of krew.

    python -m tools.krew_plugin --join OUT

writes OUT/gpuward.yaml, which is for the platforms of all manifests in OUT.

The archive has gpuward and the packages of its extra `cluster` as they are installed beside this
tool. Some are compiled, so it is for this operating system, this processor, and this minor version
of Python, which users must have.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from gpuward import __version__
from tools.generated_files import ROOT

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
# As in the image: the client imports these lazily, by name, and gpuward uses none of them.
_UNUSED = ("kubernetes/aio/", "kubernetes/client/api/", "kubernetes/client/apis/")
_MODELS = "kubernetes/client/models/"
_FOR_UNUSED = {"aiohttp", "aiohttp-retry"}  # of kubernetes/aio


def main(arguments: list[str]) -> int:
    """Write the files; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.krew_plugin", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--uri", help="where the archive will be, with {platform} in its name")
    what.add_argument("--join", action="store_true", help="make one manifest of those in OUT")
    parser.add_argument("folder", metavar="OUT", type=Path)
    options = parser.parse_args(arguments)
    if options.join:
        found = [
            yaml.safe_load(file.read_text()) for file in sorted(options.folder.glob("*-*.yaml"))
        ]
        _write(options.folder / "gpuward.yaml", joined(found))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    uri = options.uri.replace("{platform}", "-".join(_platform()))
    target = options.folder / uri.rpartition("/")[2]
    with tempfile.TemporaryDirectory() as folder:
        build = ("hatchling", "build", "--target", "wheel", "--directory", folder)
        subprocess.run([sys.executable, "-m", *build], cwd=ROOT, check=True)
        packed = archive(*Path(folder).glob("*.whl"))
    target.write_bytes(packed)
    _write(target.with_name(target.name.replace(".tar.gz", ".yaml")), manifest(packed, uri))
    return 0


def joined(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """One manifest for the platforms of several, which must otherwise be the same."""
    platforms = [each["spec"].pop("platforms") for each in manifests]
    first, *others = manifests
    if any(other != first for other in others):
        sys.exit("the manifests are of different releases, or need different versions of Python")
    first["spec"]["platforms"] = [one for each in platforms for one in each]
    return first


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(content, sort_keys=False, width=100), encoding="utf-8")


def _platform() -> tuple[str, str]:
    """The operating system and the processor, as krew calls them."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return sys.platform, machine


def archive(wheel: Path) -> bytes:
    """The archive, with gpuward's `wheel`; the same files are always the same bytes."""
    files = {
        NAME: _LAUNCHER.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "lib/__main__.py": _MAIN.encode(),
    }
    with zipfile.ZipFile(wheel) as opened:
        files |= {f"lib/{name}": opened.read(name) for name in opened.namelist()}
    for package in _required("gpuward", "cluster") - {"gpuward"}:
        for file in distribution(package).files or ():
            if _is_needed(str(file)):
                files[f"lib/{file}"] = file.read_binary()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == NAME else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def manifest(packed: bytes, uri: str) -> dict[str, Any]:
    """The manifest for krew.

    Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
    """
    system, machine = _platform()
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
                    "selector": {"matchLabels": {"os": system, "arch": machine}},
                    "uri": uri,
                    "sha256": hashlib.sha256(packed).hexdigest(),
                    "bin": NAME,
                }
            ],
        },
    }


def _required(name: str, extra: str = "") -> set[str]:
    """The distribution `name` and all that it requires here."""
    found = {name}
    for requirement in map(Requirement, distribution(name).requires or ()):
        is_for_here = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if is_for_here and requirement.name not in _FOR_UNUSED:
            found |= _required(requirement.name)
    return found


def _is_needed(file: str) -> bool:
    is_model = file.startswith(_MODELS) and not file.endswith("/__init__.py")
    is_outside = ".." in file.split("/")
    return not (is_model or is_outside or file.startswith(_UNUSED) or file.endswith(".pyc"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
