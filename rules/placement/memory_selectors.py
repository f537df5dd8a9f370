"""The least memory of a card that a selector of devices asks for."""

from collections.abc import Iterator

from rules.base.cel import (
    Call,
    CelSyntaxError,
    Expression,
    Identifier,
    Index,
    Literal,
    Select,
    UnsupportedCelError,
    parse_cel,
)
from rules.base.quantity import Quantity, parse

_DOMAIN, _NAME = "gpu.nvidia.com", "memory"
# The operators by which a comparison holds only for devices with at least so much.
_AT_LEAST = frozenset({"_>_", "_>=_", "_==_"})
_MIRRORED = {"_<_": "_>_", "_<=_": "_>=_", "_==_": "_==_"}
_ZERO = Literal("int", "0")


def least_memory(expression: str) -> tuple[str, int]:
    """The most memory that each device must have, as it is written, and in bytes; 0 if none.

    Only conditions count without which nothing is selected: those that `&&` joins.
    """
    try:
        tree = parse_cel(expression)
    except (CelSyntaxError, UnsupportedCelError):
        return "", 0
    return max(_amounts(tree), key=lambda found: found[1], default=("", 0))


def _amounts(tree: Expression) -> Iterator[tuple[str, int]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Call):
            continue
        if node.function == "_&&_":
            waiting.extend(node.arguments)
        elif text := _compared_amount(node):
            amount = parse(text)
            if isinstance(amount, Quantity):
                yield text, amount.value


def _compared_amount(node: Call) -> str:
    """The amount that a comparison asks for at least; empty if it is no such comparison."""
    if node.function == "isGreaterThan":
        return _amount_of_method(node)
    if len(node.arguments) != 2:  # noqa: PLR2004  # an operator between two
        return ""
    left, right = node.arguments
    operator = node.function
    if left == _ZERO:
        left, right, operator = right, left, _MIRRORED.get(operator, "")
    if operator not in _AT_LEAST or right != _ZERO or not isinstance(left, Call):
        return ""
    return _amount_of_method(left) if left.function == "compareTo" else ""


def _amount_of_method(call: Call) -> str:
    """The amount with which a method compares the memory of the card; empty if it does not."""
    if call.target is None or not _is_memory(call.target) or len(call.arguments) != 1:
        return ""
    argument = call.arguments[0]
    if not isinstance(argument, Call) or argument[:2] != ("quantity", None):
        return ""
    value = argument.arguments[0] if len(argument.arguments) == 1 else None
    return value.value if isinstance(value, Literal) and value.type == "string" else ""


def _is_memory(node: Expression) -> bool:
    """Return whether it is `device.capacity["gpu.nvidia.com"].memory`, however it is spelt."""
    holder, name = _member(node)
    outer, domain = _member(holder) if holder is not None else (None, "")
    return (name, domain, outer) == (_NAME, _DOMAIN, Select(Identifier("device"), "capacity"))


def _member(node: Expression) -> tuple[Expression | None, str]:
    """The value of which `node` is a field or an element with a literal key, and its name."""
    if isinstance(node, Select) and not node.is_optional:
        return node.operand, node.field
    if isinstance(node, Index) and not node.is_optional and isinstance(node.key, Literal):
        return node.operand, node.key.value if node.key.type == "string" else ""
    return None, ""
