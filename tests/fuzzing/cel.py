"""The reader of CEL: every text ends in a tree within its bounds or in one of two errors."""

from __future__ import annotations

from rules.base.cel import (
    MAX_TOKENS,
    CelSyntaxError,
    Expression,
    UnsupportedCelError,
    children,
    parse_cel,
)
from rules.gpu.device_selectors import selector_faults


def check(data: bytes) -> None:
    """Read `data` as the selector of a device."""
    text = data.decode(errors="surrogatepass" if data.isascii() else "replace")
    faults = selector_faults(text, "gpu.nvidia.com")
    for fault in faults:
        assert fault.text
        assert "\n" not in fault.text
    try:
        tree = parse_cel(text)
    except CelSyntaxError as error:
        assert str(error)
        return
    except UnsupportedCelError as error:
        assert str(error)
        assert not any(fault.is_refused for fault in faults) or len(data) > len(text)
        return
    assert _size(tree) <= 2 * MAX_TOKENS
    assert parse_cel(f"({text}\n)") == tree, "parentheses change the expression"
    assert parse_cel(f" {text}\n") == tree, "blanks change the expression"


def _size(tree: Expression) -> int:
    waiting = [tree]
    for node in waiting:
        waiting += children(node)
    return len(waiting)
