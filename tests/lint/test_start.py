"""What `gpuward lint FILE` loads: each module costs time at every start."""

import json
import subprocess
import sys

import pytest

from tests.testkit.paths import ROOT

OWN = ("gpuward", "kubeyaml", "lint", "policies", "rules")
# Modules of these packages, beside those of the rules that the pod concerns
MOST = 150
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers: [{name: main, image: app:1, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
# What takes milliseconds to load, and no run needs that lints one file and finds nothing
NOT_LOADED = {
    *("asyncio", "calendar", "concurrent", "decimal", "email", "hashlib", "html", "http"),
    *("inspect", "logging", "multiprocessing", "pathlib", "pickle", "random", "shutil", "socket"),
    *("ssl", "subprocess", "tempfile", "textwrap", "threading", "tokenize", "traceback"),
    *("urllib", "uuid", "xml", "jsonschema", "aiohttp", "kubernetes", "cryptography", "pygls"),
    *("lint.baseline", "lint.container_files", "lint.fix", "lint.git", "lint.hooks"),
    *("lint.large_files", "lint.many_files", "lint.outputs", "lint.report.html"),
    *("lint.report.sarif", "lint.rendering", "policies.validation"),
    *("rules.catalog.order", "rules.catalog.bypass.device_hostpath"),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    file = tmp_path_factory.mktemp("start") / "pod.yaml"
    file.write_text(POD, encoding="utf-8")
    program = (
        "import json, sys\n"
        "from gpuward.__main__ import main\n"
        f"status = main(['lint', '--isolated', '--quiet', {str(file)!r}])\n"
        "print(json.dumps([status, *sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    status, *modules = json.loads(done.stdout)
    assert status == 0
    return set(modules)


def test_few_modules_are_loaded(loaded: set[str]) -> None:
    own = {name for name in loaded if name.partition(".")[0] in OWN}
    shared = sorted(name for name in own if not name.startswith("rules.catalog."))
    assert len(shared) <= MOST, shared


def test_nothing_heavy_is_loaded_before_it_is_needed(loaded: set[str]) -> None:
    assert NOT_LOADED & loaded == set()
