"""The modules that `gpuward lint FILE` loads: each costs time at every start."""

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.testkit.paths import ROOT
from tests.testkit.settled_rules import UNSETTLED

OWN = ("gpuward", "kubeyaml", "lint", "policies", "reports", "rules", "sources")
# Modules of these packages, beside those of the rules that the pod concerns
MOST = 109
# Records whose module needs annotations as texts; all others would take longer to load (decision 5)
ANNOTATED_BY_TEXTS = {"lint.linter.PartialResults", "lint.run.LintRun"}
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers: [{name: main, image: app:1, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
# What takes milliseconds to load, and no run needs that lints one file and finds nothing
NOT_LOADED = {
    *("asyncio", "calendar", "concurrent", "copy", "decimal", "email", "hashlib", "html", "http"),
    *("inspect", "logging", "multiprocessing", "pathlib", "pickle", "random", "shutil", "socket"),
    *("ssl", "subprocess", "tempfile", "textwrap", "threading", "tokenize", "traceback"),
    *("urllib", "uuid", "xml", "jsonschema", "aiohttp", "kubernetes", "cryptography", "pygls"),
    *("lint.baseline", "sources.container_files.kinds", "sources.embedded_manifests"),
    *("lint.fix", "sources.git", "lint.hooks"),
    *("sources.large_files", "lint.processes", "reports.outputs", "reports.formats.html"),
    *("reports.formats.sarif", "lint.rendering", "policies.validation"),
    *("lint.gpu_fields_outside_pods", "policies.exceptions", "rules.gpu.commands.scripts"),
    *("rules.catalog.order", "rules.catalog.bypass.device_hostpath"),
}


PROGRAM = """\
import json, sys, typing
from gpuward.__main__ import main
from policies import policy
# A new rule may find something in the pod, and a report loads more.
policy.CATALOG = tuple(rule for rule in policy.CATALOG if rule.name not in sys.argv[2:])
status = main(["lint", "--isolated", "--quiet", sys.argv[1]])
texts = {
    f"{c.__module__}.{c.__name__}"
    for module in [*sys.modules.values()]
    for c in vars(module).values()
    if hasattr(c, "_fields")
    if any(isinstance(a, typing.ForwardRef) for a in c.__annotations__.values())
}
print(json.dumps([status, [*sys.modules], [*texts]]))
"""


class Start(NamedTuple):
    """The modules that are loaded, and the records of which a field is annotated by a text."""

    modules: set[str]
    annotated_by_texts: set[str]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    file = tmp_path_factory.mktemp("start") / "pod.yaml"
    file.write_text(POD, encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, str(file), *sorted(UNSETTLED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    status, modules, annotated_by_texts = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    return Start(set(modules), set(annotated_by_texts))


def test_few_modules_are_loaded(start: Start) -> None:
    own = {name for name in start.modules if name.partition(".")[0] in OWN}
    shared = sorted(name for name in own if not name.startswith("rules.catalog."))
    assert len(shared) <= MOST, shared


def test_nothing_heavy_is_loaded_before_it_is_needed(start: Start) -> None:
    assert NOT_LOADED & start.modules == set()


def test_annotations_of_records_are_no_texts(start: Start) -> None:
    found = {name for name in start.annotated_by_texts if name.partition(".")[0] in OWN}
    assert found == ANNOTATED_BY_TEXTS, "leave `from __future__ import annotations` out"
