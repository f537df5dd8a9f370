"""Make the page on which the linter runs in a browser: `python -m tools.browser_engine FOLDER`.

The page needs no server but one for files. Pyodide, which is CPython as WebAssembly, comes from
npm, where `tools/browser/package-lock.json` pins it by its hash. PyYAML has no extension there, so
its own parser reads.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "tools" / "browser"
# Those of gpuward that the linter imports, and of Pyodide what a browser loads.
_PACKAGES = ("gpuward", "kubeyaml", "lint", "policies", "reports", "rules", "sources", "terminal")
_LEFT_OUT = ("gpuward/mcp_server", "lint/language_server", "lint/rendering")
_RUNTIME = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
    *("pyodide-lock.json", "python_stdlib.zip"),
)
_PAGE = ("index.html", "page.css", "page.mjs", "worker.mjs")
_TIME = (2020, 1, 1, 0, 0, 0)  # of the files in the archive, which is the same from the same files


def main(arguments: list[str]) -> int:
    """Write the page into the folder that is named; the exit status."""
    (folder,) = map(Path, arguments)
    with tempfile.TemporaryDirectory() as temporary:
        build(folder, install_runtime(Path(temporary)))
    return 0


def install_runtime(folder: Path) -> Path:
    """Install Pyodide from npm in `folder`; the folder with its files."""
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(SOURCES / name, folder / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "node_modules" / "pyodide"


def build(folder: Path, runtime: Path) -> None:
    """Write the page into `folder`, with the files of Pyodide that are in `runtime`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _RUNTIME:
        shutil.copyfile(runtime / name, folder / name)
    for name in _PAGE:
        shutil.copyfile(SOURCES / name, folder / name)
    write_engine(folder / "engine.zip")
    files = sorted((*_RUNTIME, *_PAGE, "engine.zip"))
    content = b"".join((folder / name).read_bytes() for name in files)
    version = f"gpuward-{hashlib.sha256(content).hexdigest()[:16]}"
    text = (SOURCES / "offline.mjs").read_text(encoding="utf-8")
    text = text.replace("{{version}}", version).replace("{{files}}", json.dumps(["./", *files]))
    (folder / "offline.mjs").write_text(text, encoding="utf-8")


def write_engine(archive: Path) -> None:
    """Write an archive with the modules and data of the linter, and with PyYAML."""
    with zipfile.ZipFile(archive, "w", compresslevel=9) as target:
        for package in _PACKAGES:
            for file in sorted((ROOT / package).rglob("*")):
                name = file.relative_to(ROOT).as_posix()
                if file.is_file() and "__pycache__" not in name and not name.startswith(_LEFT_OUT):
                    _add(target, name, file)
        for file in sorted(Path(yaml.__file__).parent.glob("*.py")):
            _add(target, f"yaml/{file.name}", file)


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> None:
    archive.writestr(zipfile.ZipInfo(name, _TIME), file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
