"""What fixes would change in each object, as a diff or as the JSON Patch of the webhook."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, TextIO

import yaml

from lint.linter import Preview
from lint.report import printable
from rules.base.json_access import as_object
from rules.base.json_patch import Json, pointer
from rules.finding import Finding

# A diff takes time quadratic in the number of lines, which is about the number of nodes.
_MAX_NODES = 5_000


def write_diff(out: TextIO, previews: Iterable[Preview]) -> None:
    """Write a unified diff of every object that a fix would change, as YAML in its own order."""
    for preview in previews:
        if preview.operations:
            name = f"{preview.file} ({_title(preview.before)})"
            if _is_long(preview.before):
                out.write(f"{printable(name)}: too long for a diff; --patch shows the changes\n")
                continue
            before, after = _dumped(preview.before), _dumped(preview.after)
            lines = difflib.unified_diff(before, after, name, f"{name}, fixed", n=3)
            out.writelines(printable(line.rstrip("\n")) + "\n" for line in lines)


def write_patch(out: TextIO, previews: Iterable[Preview]) -> None:
    """Write one JSON object a line for each object that is fixed or refused.

    It has the file, the object, the patch, and what is refused about the object that the patch
    makes.
    """
    for preview in previews:
        if preview.operations or preview.refused:
            entry = {
                "file": preview.file,
                "object": _title(preview.before),
                "patch": preview.operations,
                "refused": [_refusal(finding) for finding in preview.refused],
            }
            out.write(json.dumps(entry) + "\n")


def _refusal(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule,
        "container": finding.container_name,
        "pointer": pointer(finding.path),
        "message": finding.message,
        "help": finding.help,
    }


def _is_long(manifest: Json) -> bool:
    waiting: list[Json] = [manifest]
    for count, node in enumerate(waiting):
        if count > _MAX_NODES:
            return True
        if isinstance(node, dict):
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return False


def _title(manifest: Json) -> str:
    raw = as_object(manifest)
    metadata = as_object(raw.get("metadata"))
    names = (metadata.get("namespace"), metadata.get("name"))
    return f"{raw.get('kind')} {'/'.join(str(name) for name in names if name)}".strip()


class _Dumper(yaml.SafeDumper):
    """Writes lists indented below their key, and never an alias: it is read by people."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def _dumped(manifest: Json) -> list[str]:
    text: str = yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text.splitlines(keepends=True)
