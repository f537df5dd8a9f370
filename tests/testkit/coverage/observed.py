"""What really becomes of a channel at each door, in the words of the claims."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import HTTP_REFUSED
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.coverage.table import NOT_STOPPED, Channel
from tests.testkit.paths import ROOT

# They place pods and have no opinion of them.
PLACEMENT = frozenset({"toleration-default", "affinity-default", "scheduler-name"})
NAMED = re.compile(r"\[([a-z-]+)\]")


def linted(folder: Path, channels: list[Channel], profiles: list[str]) -> dict[str, str]:
    """What `gpuward lint --notes` makes of each, by name, asked once for all of them."""
    for channel in channels:
        file = folder / f"{channel.name}.json"
        file.write_text(json.dumps(channel.pod), encoding="utf-8")
    chosen = [argument for profile in profiles for argument in ("--profile", profile)]
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", "--format", "json", "--notes", *chosen, "."],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["pods"] == len(channels), done.stderr
    return {channel.name: _level(channel, report["findings"]) for channel in channels}


def _level(channel: Channel, findings: list[dict[str, Any]]) -> str:
    mine = [f for f in findings if Path(f["file"]).stem == channel.name]
    levels = {f["level"] for f in mine if f["rule"] not in PLACEMENT}
    if not levels:
        return NOT_STOPPED
    assert channel.rules & {f["rule"] for f in mine}, mine
    return "error" if "error" in levels else "announced"


def admitted(
    plane: ControlPlane,
    namespace: str,
    channel: Channel,
    kind: str,
    unheard: AbstractSet[str] = frozenset(),
) -> str:
    """What becomes of the Pod or Deployment at the API server; nothing is stored.

    What the rules `unheard` say is not counted, unless the claim names them.
    """
    manifest = channel.pod if kind == "Pod" else channel.deployment
    answer = create(plane, namespace, manifest, dry_run=True, user=channel.user)
    spoken = _spoken(answer) - (unheard - channel.rules)
    if spoken:
        # What is said is said by a rule that the claim names.
        assert channel.rules & spoken, answer
    if answer.status >= HTTP_REFUSED:
        return "refused"
    if channel.fixed and kind == "Pod" and _is_fixed(channel, answer.body):
        return "fixed"
    return "announced" if spoken else NOT_STOPPED


def outcome(answer: Answer) -> str:
    """What an answer amounts to where nothing is fixed."""
    if answer.status >= HTTP_REFUSED:
        return "refused"
    return "announced" if _spoken(answer) else NOT_STOPPED


def _spoken(answer: Answer) -> set[str]:
    """The rules that the user hears of."""
    refusal = [answer.body["message"]] if answer.status >= HTTP_REFUSED else []
    texts = [*answer.warnings, *refusal]
    ours = [text for text in texts if "gpuward" in text]
    return {name for text in ours for name in NAMED.findall(text)} - PLACEMENT


def _is_fixed(channel: Channel, made: Any) -> bool:
    """Whether every container's own variables have become what the claim says."""
    containers = made["spec"]["containers"]
    for container in containers:
        env = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
        for variable, expected in channel.fixed.items():
            if env.get(variable, "absent") != expected:
                return False
    return True
