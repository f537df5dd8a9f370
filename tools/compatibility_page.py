"""The cases in `docs/compatibility.md`: what other webhooks and policies do, and what gpuward does.

They are in `tests/data/peer_policies.yaml`, which explains its keys.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
DATA = ROOT / "tests" / "data" / "peer_policies.yaml"
BEGIN, END = "<!-- cases from tests/data/peer_policies.yaml -->", "<!-- end of the cases -->"


def peers() -> list[Mapping[str, Any]]:
    """The peers with their cases."""
    data: Mapping[str, Any] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    found: list[Mapping[str, Any]] = data["peers"]
    return found


def page() -> str:
    """The page, with its cases written anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{''.join(map(_table, peers()))}\n{END}{after}"


def _table(peer: Mapping[str, Any]) -> str:
    commit = f" at `{peer['commit'][:12]}`" if "commit" in peer else ""
    source = f"Source: {peer['source']}{commit}. Profiles: {', '.join(peer['profiles'])}."
    lines = textwrap.fill(source, 100, break_long_words=False, break_on_hyphens=False)
    head = (
        f"\n### {peer['title']}\n\n{lines}\n\n"
        "| the pod has | outcome there | gpuward | why they differ |\n|---|---|---|---|\n"
    )
    return head + "".join(_rows(peer))


def _rows(peer: Mapping[str, Any]) -> Iterator[str]:
    for case in peer["cases"]:
        rules = ", ".join(f"[{rule}](rules/{rule}.md)" for rule in case.get("rules", ()))
        ours = f"{case['gpuward']}: {rules}" if rules else case["gpuward"]
        yield f"| {case['says']} | {case['peer']} | {ours} | {case.get('why', '')} |\n"
