"""An example of each rule: a manifest with the fault, what the rule says, and its fix as a diff.

`make docs` writes them from the cases of the tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Example(NamedTuple):
    """A manifest that a rule is about.

    `circumstances` are what the rule needs to know beside the manifest, such as a policy or other
    objects: words, and YAML. Most need nothing. `findings` are lines; `diff` is what `gpuward fix`
    changes.
    """

    title: str
    manifest: str
    circumstances: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    diff: str


def example_of(rule: str) -> Example | None:
    """The example of the rule of this name; None if it has none."""
    raw: dict[str, Any] | None
    path = Path(__file__).with_name("examples.json")
    raw = json.loads(path.read_text(encoding="utf-8")).get(rule)
    if raw is None:
        return None
    circumstances = tuple((words, text) for words, text in raw["circumstances"])
    findings = tuple(raw["findings"])
    return Example(raw["title"], raw["manifest"], circumstances, findings, raw["diff"])


def example_text(example: Example) -> str:
    """The example as plain text."""
    parts = [f"Example: {example.title}", _indented(example.manifest)]
    for words, text in example.circumstances:
        parts += [words, _indented(text)]
    parts.append("\n".join(f"- {line}" for line in example.findings))
    if example.diff:
        parts += ["`gpuward fix` changes", _indented(example.diff)]
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
