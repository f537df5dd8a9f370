"""Print plain data for programs."""

from __future__ import annotations

import json
from typing import Any, Literal


def format_document(document: Any, form: Literal["json", "yaml"]) -> str:
    """`document`, of plain data, as JSON or as YAML."""
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    import yaml  # noqa: PLC0415  # few ask for it

    text: str = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)
    return text
