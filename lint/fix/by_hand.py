"""Say in words which edits a fix consists of, for people who must make them by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kubeyaml.patch import Operation, one_line

_MAX_EDITS = 8
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)


def edits_by_hand(operations: Sequence[Operation]) -> Iterator[str]:
    """One sentence for each operation of a JSON Patch, in order."""
    for operation in operations[:_MAX_EDITS]:
        yield _sentence(operation)
    if len(operations) > _MAX_EDITS:
        yield f"and {len(operations) - _MAX_EDITS} more: --patch shows all"


def _sentence(operation: Operation) -> str:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
    *parents, key = parts[1:]
    kind, where = operation["op"], _dotted(parents)
    if kind == "remove":
        return f"remove {_dotted([*parents, key])}"
    if kind == "replace":
        return f"set {_dotted([*parents, key])} to {one_line(operation['value'])}"
    if key == "-":
        return f"add to {where}: {one_line([operation['value']])}"
    return f"add to {where or 'the object'}: {one_line({key: operation['value']})}"


def _dotted(parts: Sequence[str]) -> str:
    """A path as `kubectl explain` writes it, with indices in brackets: spec.containers[0]."""
    text = ""
    for part in parts:
        if part.isdigit():
            text += f"[{part}]"
        elif _NAME.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text
