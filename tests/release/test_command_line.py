"""What every command has in common."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuward.__main__ import COMMANDS
from tests.testkit.missing_packages import without
from tests.testkit.paths import ROOT

RUN = ["certs", "run", "--mutating-configuration", "x"]
for _option in ("namespace", "service", "headless-service", "secret", "ca-secret", "lease"):
    RUN += [f"--{_option}", "x"]


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("aiohttp", ["serve", "--dev"], "gpuward[webhook]"),
        ("aiohttp.web", ["serve", "--help"], "gpuward[webhook]"),
        ("cryptography", ["certs", "check", "."], "gpuward[certs]"),
        ("structlog", RUN, "gpuward[certs]"),
        ("kubernetes", RUN, "gpuward[certs]"),
        ("yaml", ["lint", "examples"], "gpuward"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    module: str, arguments: list[str], extra: str
) -> None:
    done = without(module, *arguments)
    package = module.partition(".")[0]
    told = f"gpuward {arguments[0]} needs the package {package}: pip install '{extra}'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_a_module_of_ours_that_is_missing_is_a_fault() -> None:
    done = without("rules.catalog", "rules")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_reader_that_has_had_enough_is_no_fault(verb: str) -> None:
    arguments = {"rules": "", "explain": "visible-devices-env"}.get(verb, "--help")
    command = f"{sys.executable} -m gpuward {verb} {arguments} | true"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
