"""The job of templates/gpuward.yml with its inputs, as GitLab would have it.

GitLab itself does not run in the tests: `job` does what its documentation says about inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.testkit.paths import ROOT

COMPONENT = ROOT / "templates" / "gpuward.yml"
_INPUT = re.compile(r"\$\[\[ inputs\.([a-z]+) \]\]")


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """The head with the inputs, and the jobs."""
    head, jobs = yaml.safe_load_all(COMPONENT.read_text(encoding="utf-8"))
    return head, jobs


def job(inputs: Mapping[str, str]) -> dict[str, Any]:
    """The job, with these inputs and otherwise their defaults; ValueError if GitLab refuses one."""
    head, jobs = documents()
    known = head["spec"]["inputs"]
    if unknown := set(inputs) - set(known):
        raise ValueError(f"unknown inputs: {unknown}")
    values = {name: inputs.get(name, entry["default"]) for name, entry in known.items()}
    for name, value in values.items():
        if not re.search(known[name].get("regex", ""), value):
            raise ValueError(f"{name}: {value}")

    def filled(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: filled(value) for key, value in node.items()}
        if isinstance(node, list):
            return [filled(value) for value in node]
        return _INPUT.sub(lambda match: values[match[1]], node) if isinstance(node, str) else node

    (made,) = filled(jobs).values()
    assert "$[[" not in json.dumps(made)
    found: dict[str, Any] = made
    return found
