"""The observed outcome of a bypass, from the linter or the API server, as the tables spell it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from rules.base.traits import REQUIRED_AFFINITY
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import HTTP_REFUSED
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.coverage.table import NOT_STOPPED, Bypass
from tests.testkit.paths import ROOT
from tests.testkit.settled_rules import SETTLED
from webhook.admission.enforcement import FIXED_ANNOTATION

# These rules add scheduling defaults to GPU pods and stop no bypass.
PLACEMENT_RULES = frozenset({"toleration-default", "affinity-default", "scheduler-name"})
EXCLUSION_RULE = "gpu-node-without-request"
EXCLUDED = {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
RULE_NAME = re.compile(r"\[([a-z-]+)\]")


def lint_outcomes(folder: Path, bypasses: list[Bypass], profiles: list[str]) -> dict[str, str]:
    """The outcome of each bypass by name, from one run of `gpuward lint --notes`."""
    for bypass in bypasses:
        file = folder / f"{bypass.name}.json"
        file.write_text(json.dumps(bypass.pod), encoding="utf-8")
    options = [argument for profile in profiles for argument in ("--profile", profile)]
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "--output", "json", "--notes", *options, "."],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["pods"] == len(bypasses), done.stderr
    return {bypass.name: _lint_outcome(bypass, report["findings"]) for bypass in bypasses}


def _lint_outcome(bypass: Bypass, findings: list[dict[str, Any]]) -> str:
    settled = [f for f in findings if f["rule"] in SETTLED]
    in_file = [f for f in settled if Path(f["file"]).stem == bypass.name]
    levels = {f["level"] for f in in_file if f["rule"] not in PLACEMENT_RULES}
    if not levels:
        return NOT_STOPPED
    assert bypass.rules & {f["rule"] for f in in_file}, in_file
    return "error" if "error" in levels else "announced"


def admission_outcome(
    plane: ControlPlane,
    namespace: str,
    bypass: Bypass,
    kind: str,
    ignored_rules: AbstractSet[str] = frozenset(),
) -> str:
    """The outcome of creating the Pod or Deployment in a dry run, which stores nothing.

    A report of a rule in `ignored_rules` does not count, unless the bypass lists that rule.
    """
    manifest = bypass.pod if kind == "Pod" else bypass.deployment
    response = create(plane, namespace, manifest, dry_run=True, user=bypass.user)
    reported = _reported_rules(response) - (ignored_rules - bypass.rules)
    if reported - {EXCLUSION_RULE}:
        # At least one rule that reports is one that the bypass lists.
        assert bypass.rules & reported, response
    if response.status >= HTTP_REFUSED:
        return "refused"
    if bypass.fixed and kind == "Pod" and _is_fixed(bypass, response.body):
        return "fixed"
    return "announced" if reported else NOT_STOPPED


def exclusion_outcome(plane: ControlPlane, namespace: str, bypass: Bypass) -> str:
    """The outcome of creating the Pod where the rule gpu-node-without-request is on.

    `kept off` says that it gets a required node affinity which excludes GPU nodes.
    """
    response = create(plane, namespace, bypass.pod, dry_run=True, user=bypass.user)
    if response.status < HTTP_REFUSED and is_kept_off(response.body):
        return "kept off"
    return admission_outcome(plane, namespace, bypass, "Pod")


def is_kept_off(created: Any) -> bool:
    """Return whether every term of the required node affinity excludes GPU nodes."""
    node = created["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node.get(REQUIRED_AFFINITY, {}).get("nodeSelectorTerms", [])
    return bool(terms) and all(EXCLUDED in term.get("matchExpressions", []) for term in terms)


def response_outcome(response: Response) -> str:
    """The outcome of a response: `fixed` if the object says that all reported rules fixed it."""
    if response.status >= HTTP_REFUSED:
        return "refused"
    reported = _reported_rules(response)
    annotations = response.body["metadata"].get("annotations", {})
    if reported and reported.issubset(annotations.get(FIXED_ANNOTATION, "").split(",")):
        return "fixed"
    return "announced" if reported else NOT_STOPPED


def _reported_rules(response: Response) -> set[str]:
    """The rules that the user reads about, without those that only add scheduling defaults."""
    refusal = [response.body["message"]] if response.status >= HTTP_REFUSED else []
    texts = [text for text in (*response.warnings, *refusal) if "gpuward" in text]
    return {name for text in texts for name in RULE_NAME.findall(text)} - PLACEMENT_RULES


def _is_fixed(bypass: Bypass, created: Any) -> bool:
    """Return whether the variables of every container are what the bypass expects after the fix."""
    for container in created["spec"]["containers"]:
        env = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
        for variable, expected in bypass.fixed.items():
            if env.get(variable, "absent") != expected:
                return False
    return True
