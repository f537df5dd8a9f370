"""The faults that mutation tests put into code: each changes one expression or statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

_PAIRS = (
    *((ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv)),
    *((ast.LShift, ast.RShift), (ast.BitOr, ast.BitAnd)),
)
_OTHER: dict[type[ast.AST], type[Any]]
_OTHER = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}, ast.Div: ast.Mult}
_DIGIT = 9


class Fault(NamedTuple):
    """`old`, at these offsets of the bytes of a file, becomes `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old} -> {new}"


def faults(file: str, text: bytes) -> Iterator[Fault]:
    """Every fault that can be put into a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _nodes(ast.parse(text)):
        for old, new in _changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            written = f"({ast.unparse(new)})" if isinstance(old, ast.expr) else ast.unparse(new)
            yield Fault(file, old.lineno, start, end, text[start:end].decode(), written)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of the syntax tree, without annotations, docstrings and the inside of f-strings."""
    yield node
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_docstring(child):
                yield from _nodes(child)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: Any) -> Iterator[tuple[Any, ast.AST]]:
    """Parts of `node`, each with what may stand in its place."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OTHER:
            yield node, ast.Compare(node.left, [_OTHER[type(op)]()], node.comparators)
        case ast.BoolOp(op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OTHER:
            changed = copy.copy(node)
            changed.op = _OTHER[type(op)]()
            yield node, changed
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.If(test) | ast.IfExp(test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Call(keywords=[_, *_]):
            for index, keyword in enumerate(node.keywords):
                if keyword.arg:
                    fewer = [*node.keywords[:index], *node.keywords[index + 1 :]]
                    yield node, ast.Call(node.func, node.args, fewer)
    for new in (*_other_constants(node), *_other_statements(node)):
        yield node, new


def _other_constants(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value * 10 if value > _DIGIT else value + 1)
        case ast.Constant(str(value)) if " " not in value:  # others are texts for people
            yield ast.Constant(f"{value}x")


def _other_statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr() | ast.Raise() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
