"""docs/tour.md, run as it is written, on what `make plane` starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.chart.fixtures import may_listen
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.servers import CONTROLLERS
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing

TOUR = ROOT / "docs" / "tour.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the client library of helm and kubectl logs, such as of a watch that ends late.
LOG_LINE = re.compile(r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \w+\.go:\d+\] .*\n", re.MULTILINE)
EXPORT = re.compile(r"^  export (\w+)=(.+)$", re.MULTILINE)


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Every command of the page with what it prints."""
    for block in BLOCK.findall(text):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def pattern(output: str) -> str:
    """A pattern for `output`: `…` is any text, and spaces are any spaces."""
    words = [re.escape(word).replace("…", ".*") for word in output.split()]
    return r"\s+".join(words).replace(r".*\s+", r".*\s*").replace(r"\s+.*", r"\s*.*")


@pytest.fixture(scope="module")
def environment(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The environment of the second shell."""
    if not control_plane_programs.has(*CONTROLLERS):
        skip_missing("there are no controllers")
    if not may_listen(443):
        skip_missing("only root may listen at port 443, the port of the chart's Service")
    command = [sys.executable, "-m", "tests.testkit.chart.by_hand"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            text = ""
            while "docs/tour.md" not in text:
                line = process.stdout.readline()
                assert line, f"it ended: {text}"
                text += line
            exported = dict(EXPORT.findall(text))
            exported["PATH"] = exported["PATH"].replace("$PATH", os.environ["PATH"])
            yield {"HOME": str(tmp_path_factory.mktemp("home")), **exported}
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert not Path(exported["KUBECONFIG"]).exists()


def test_the_tour_is_as_written(environment: dict[str, str]) -> None:
    done = 0
    for command, output in steps(TOUR.read_text(encoding="utf-8")):
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        printed = LOG_LINE.sub("", ran.stdout).strip()
        assert re.fullmatch(pattern(output), printed, re.DOTALL), f"$ {command}\n{ran.stdout}"
        done += 1
    assert done > 20
