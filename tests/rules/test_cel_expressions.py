"""Expressions in CEL, built with the operators of Python, and read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.base.cel import (
    Call,
    Collection,
    Identifier,
    Index,
    Literal,
    Select,
    parse_cel,
)
from rules.base.cel import Expression as Tree
from rules.in_process.expression import (
    Expression,
    all_of,
    any_of,
    bound,
    choose,
    concat,
    construct,
    entry,
    expression,
    get,
    has,
    is_in,
    let,
    name,
    not_,
    record,
    text,
)

x, y, z = name("x"), name("y"), name("z")


@pytest.mark.parametrize(
    ("built", "cel"),
    [
        (x + y == z, "x + y == z"),
        (x + (y + z), "x + (y + z)"),
        (x - 1 + y, "x - 1 + y"),
        (x - (y + 1), "x - (y + 1)"),
        ("a" + x, '"a" + x'),
        (all_of(x, any_of(y, z)), "x && (y || z)"),
        (any_of(all_of(x, y), z), "x && y || z"),
        (all_of(), "true"),
        (any_of(), "false"),
        (all_of(x), "x"),
        (not_(all_of(x, y)), "!(x && y)"),
        (not_(x.exists(lambda e: e == 1)), "!x.exists(e, e == 1)"),
        (not_(is_in(x, ["a"])), '!(x in ["a"])'),
        ((x + y).size() > 0, "(x + y).size() > 0"),
        (choose((x, 1), otherwise=2), "x ? 1 : 2"),
        (choose((x, 1), (y, 2), otherwise=3), "x ? 1 : y ? 2 : 3"),
        (choose((x, choose((y, 1), otherwise=2)), otherwise=3), "x ? (y ? 1 : 2) : 3"),
        (choose((choose((x, y), otherwise=z), 1), otherwise=2), "(x ? y : z) ? 1 : 2"),
        ("a" + choose((x, "b"), otherwise="c"), '"a" + (x ? "b" : "c")'),
        (let(x, lambda v: v + v), "[x].map(v, v + v)[0]"),
        (let(x, lambda v: v + 1, lambda w: [w]), "[x].map(v, v + 1).map(w, [w])[0]"),
        (get(x, "a.b", ""), 'x.?a.?b.orValue("")'),
        (has(x, "a"), "x.?a.hasValue()"),
        (entry(x, "a/b", 0), 'x[?"a/b"].orValue(0)'),
        (x[y], "x[y]"),
        (x["a"].b.c(y), 'x["a"].b.c(y)'),
        (concat([x, choose((y, [1]), otherwise=[])]), "x + (y ? [1] : [])"),
        (concat([]), "[]"),
        (record(a=1, b=x), '{"a": dyn(1), "b": dyn(x)}'),
        (construct("JSONPatch", op="add", value=x), 'JSONPatch{op: "add", value: x}'),
        (x.filter(bound(y, y == 1)), "x.filter(y, y == 1)"),
        (x.transformList(lambda i, v: (i == 0, v)), "x.transformList(i, v, i == 0, v)"),
        (expression({"a": [x, True, "b"]}), '{"a": [x, true, "b"]}'),
        (expression('quo"te\\ and ünicode\n'), r'"quo\"te\\ and ünicode\n"'),
    ],
)
def test_an_expression_is_written_with_the_parentheses_it_needs(
    built: Expression, cel: str
) -> None:
    assert str(built) == cel
    parse_cel(cel)


def test_one_f_string_is_a_message_in_python_and_in_cel() -> None:
    def message(container: object, value: object) -> str:
        return f'{container} sets X="{value}".'

    assert message("c", 1) == 'c sets X="1".'
    built = text(message(x.text, choose((y, "a"), otherwise="b")))
    assert str(built) == r'x.text + " sets X=\"" + (y ? "a" : "b") + "\"."'


@pytest.mark.parametrize("words", ["", "plain", "a {b} c"])
def test_words_alone_are_a_literal(words: str) -> None:
    assert str(text(words)) == str(expression(words))


@pytest.mark.parametrize("wrong", [lambda: bool(x), lambda: not x, lambda: 1 if x == 1 else 2])
def test_an_expression_has_no_truth_in_python(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="only an API server"):
        wrong()


def test_the_elements_of_an_expression_are_not_known_in_python() -> None:
    with pytest.raises(TypeError, match="only an API server"):
        list(x)


_LEAVES = st.sampled_from(
    [
        (x, Identifier("x")),
        (y.z, Select(Identifier("y"), "z")),
        (expression(1), Literal("int", "1")),
        (expression("a"), Literal("string", "a")),
    ]
)


def _binary(operator: str, build: Callable[[Any, Any], Expression]) -> Callable[[Any], Any]:
    def made(pair: Any) -> Any:
        (left, left_tree), (right, right_tree) = pair
        return build(left, right), Call(f"_{operator}_", None, (left_tree, right_tree))

    return made


def _larger(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(part, part)
    return st.one_of(
        pairs.map(_binary("+", lambda a, b: a + b)),
        pairs.map(_binary("-", lambda a, b: a - b)),
        pairs.map(_binary("==", lambda a, b: a == b)),
        pairs.map(_binary("<", lambda a, b: a < b)),
        pairs.map(_binary("in", is_in)),
        pairs.map(_binary("&&", all_of)),
        pairs.map(_binary("||", any_of)),
        pairs.map(lambda p: (p[0][0][p[1][0]], Index(p[0][1], p[1][1]))),
        part.map(lambda p: (p[0].size(), Call("size", p[1], ()))),
        part.map(lambda p: (expression([p[0]]), Collection("list", (p[1],)))),
        part.filter(lambda p: p[1][0] != "!_").map(
            lambda p: (not_(p[0]), Call("!_", None, (p[1],)))
        ),
        st.tuples(part, part, part).map(
            lambda p: (
                choose((p[0][0], p[1][0]), otherwise=p[2][0]),
                Call("_?_:_", None, (p[0][1], p[1][1], p[2][1])),
            )
        ),
    )


def _from_the_left(tree: Tree) -> Tree:
    """Return `tree` with chains of && and || as they are read, however they were nested."""
    if not isinstance(tree, Call):
        if isinstance(tree, Index):
            return Index(_from_the_left(tree.operand), _from_the_left(tree.key))
        if isinstance(tree, Collection):
            return Collection(tree.type, tuple(map(_from_the_left, tree.elements)))
        return tree
    if tree.function not in ("_&&_", "_||_"):
        target = None if tree.target is None else _from_the_left(tree.target)
        return Call(tree.function, target, tuple(map(_from_the_left, tree.arguments)))
    parts = [_from_the_left(part) for part in _chain(tree, tree.function)]
    found = parts[0]
    for part in parts[1:]:
        found = Call(tree.function, None, (found, part))
    return found


def _chain(tree: Tree, function: str) -> list[Tree]:
    if isinstance(tree, Call) and tree.function == function:
        return [part for argument in tree.arguments for part in _chain(argument, function)]
    return [tree]


@given(st.recursive(_LEAVES, _larger, max_leaves=12))
def test_what_is_built_is_what_is_read(pair: tuple[Expression, Tree]) -> None:
    built, tree = pair
    assert _from_the_left(parse_cel(str(built))) == _from_the_left(tree)
