"""The steps of the release workflow, run by bash as GitHub's runner runs them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.paths import ROOT

_EXPRESSION = re.compile(r"\$\{\{ *(.+?) *\}\}")
WORKFLOW: dict[str, Any] = yaml.safe_load(
    (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
)


def run_step(
    job: str,
    name: str,
    folder: Path,
    expressions: Mapping[str, str],
    environment: Mapping[str, str],
) -> dict[str, str]:
    """Run the step of a job with this name or id in `folder`; its outputs.

    `expressions` are the values of what the step has in `${{ }}`. `environment` are further
    variables, and take the place of those that the workflow sets.
    """
    (step,) = (s for s in WORKFLOW["jobs"][job]["steps"] if name in (s.get("name"), s.get("id")))
    given = {
        key: _EXPRESSION.sub(lambda match: expressions[match[1]], str(value))
        for key, value in {**WORKFLOW["env"], **step.get("env", {})}.items()
    }
    output = folder.parent / f"{folder.name}-output"
    output.write_text("")
    run_script(step["run"], folder, {**given, **environment, "GITHUB_OUTPUT": str(output)})
    lines = output.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def run_script(script: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a script as GitHub's runner does where `shell: bash` is set; its output."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
