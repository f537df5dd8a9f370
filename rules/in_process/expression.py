"""Expressions in CEL, written with the operators of Python.

    setting = v.shown + "=" + v.shownValue
    is_odd = all_of(v.name == NVIDIA_VISIBLE_DEVICES, is_in(v.value, ["ALL", "VOID"]))
    message = choose((is_odd, text(f"{c.text} sets {setting}")), otherwise="")

`str` of an expression is its CEL. A value of Python beside an expression is a literal. A method of
CEL is called as it is named; of `exists`, `filter`, `map` and the other macros the argument is a
function, whose parameter is the name in CEL: `env.filter(lambda e: e.name == "A")`. So no parameter
may have the name of something else that the body names. What operators of Python cannot say is a
function here, such as `all_of`, `is_in`, `choose`, `let` and `text`.

Specification: https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

# How tightly operators bind, the loosest first.
_CHOICE, _OR, _AND, _RELATION, _SUM, _NOT, _OPERAND = range(7)

# Around an expression in an f-string. No message has these characters.
_BEGIN, _END = "\x02", "\x03"


class Expression:
    """An expression in CEL: its text, and how tightly the loosest operator in it binds."""

    __slots__ = ("_cel", "_level")

    def __init__(self, cel: str, level: int = _OPERAND) -> None:
        self._cel: Final = cel
        self._level: Final = level

    def __str__(self) -> str:
        return self._cel

    def __repr__(self) -> str:
        return f"Expression({self._cel!r})"

    def __format__(self, specification: str) -> str:
        """Mark the expression in a message: `text` keeps it apart from the words around it."""
        return f"{_BEGIN}{_within(self, _SUM)}{_END}"

    def __bool__(self) -> NoReturn:
        raise TypeError("only an API server knows the value: use all_of, any_of, not_ or choose")

    def __iter__(self) -> NoReturn:
        raise TypeError("only an API server knows the elements: use map, filter, all or exists")

    def __getattr__(self, name: str) -> "Expression":
        """Select a field, or name the method of a call."""
        if name.startswith("_"):
            raise AttributeError(name)
        return Expression(f"{_within(self, _OPERAND)}.{name}")

    def __call__(self, *arguments: Any) -> "Expression":
        """Call a method or a function of CEL. A function among `arguments` is that of a macro."""
        return Expression(f"{self._cel}({', '.join(map(_argument, arguments))})")

    def __getitem__(self, key: "Value") -> "Expression":
        return Expression(f"{_within(self, _OPERAND)}[{expression(key)!s}]")

    def __add__(self, other: "Value") -> "Expression":
        return _operation(self, "+", other, _SUM)

    def __radd__(self, other: "Value") -> "Expression":
        return _operation(other, "+", self, _SUM)

    def __sub__(self, other: "Value") -> "Expression":
        return _operation(self, "-", other, _SUM)

    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]
        return _operation(self, "==", other, _RELATION)

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]
        return _operation(self, "!=", other, _RELATION)

    def __lt__(self, other: "Value") -> "Expression":
        return _operation(self, "<", other, _RELATION)

    def __le__(self, other: "Value") -> "Expression":
        return _operation(self, "<=", other, _RELATION)

    def __gt__(self, other: "Value") -> "Expression":
        return _operation(self, ">", other, _RELATION)

    def __ge__(self, other: "Value") -> "Expression":
        return _operation(self, ">=", other, _RELATION)

    __hash__ = None  # type: ignore[assignment]  # as two of them are never compared in Python


Value: TypeAlias = Expression | str | bool | int | Sequence[Any] | Mapping[Any, Any]
"""An expression, or a value of Python that becomes a literal."""


def expression(value: Any) -> Expression:
    """Return `value` as an expression: an expression as it is, and any other as a literal.

    Lists and maps may have expressions in them.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool):
        return Expression("true" if value else "false")
    if isinstance(value, int):
        return Expression(str(value))
    if isinstance(value, str):
        # JSON's escapes are CEL's too, but for a character in two halves, which this never writes.
        return Expression(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        members = (f"{expression(key)!s}: {expression(item)!s}" for key, item in value.items())
        return Expression("{" + ", ".join(members) + "}")
    return Expression("[" + ", ".join(str(expression(item)) for item in value) + "]")


def name(word: str) -> Expression:
    """Return the name `word`, of a variable or of a function."""
    return Expression(word)


class _Names:
    """Names with a common beginning, as attributes."""

    def __init__(self, beginning: str) -> None:
        self._beginning = beginning

    def __getattr__(self, word: str) -> Expression:
        if word.startswith("_"):
            raise AttributeError(word)
        return Expression(f"{self._beginning}{word}")


OBJECT: Final = _Names("$")
"""The variables of the policy about the object: `rules.in_process.vocabulary` has them."""
POLICY: Final = _Names("variables.")
"""The variables of the policy that do not depend on the object."""
REQUEST: Final = name("request")
"""What an API server tells of the request."""
string: Final = name("string")
"""The function that makes a text of a value of any type."""
dyn: Final = name("dyn")
"""The function that lets values of different types stand beside one another."""


def all_of(*tests: Value) -> Expression:
    """Return whether all `tests` hold, as they do if there is none."""
    return _joined("&&", tests, _AND, otherwise=True)


def any_of(*tests: Value) -> Expression:
    """Return whether any of `tests` holds, as none does if there is none."""
    return _joined("||", tests, _OR, otherwise=False)


def not_(test: Value) -> Expression:
    """Return whether `test` does not hold."""
    return Expression(f"!{_within(expression(test), _NOT)}", _NOT)


def is_in(value: Value, values: Value) -> Expression:
    """Return whether `value` is an element of a list, or a key of a map."""
    return _operation(value, "in", values, _RELATION)


def choose(*choices: tuple[Value, Value], otherwise: Value) -> Expression:
    """Return the value of the first of `choices` whose test holds: pairs of a test and a value."""
    parts = [
        f"{_within(expression(t), _OR)} ? {_within(expression(v), _OR)} : " for t, v in choices
    ]
    return Expression("".join(parts) + str(expression(otherwise)), _CHOICE)


def let(value: Value, *steps: Callable[[Expression], Value]) -> Expression:
    """Return what the last of `steps` makes of `value`: each gets what the one before it made.

    What a step gets is evaluated once. CEL names values only in macros, so this is one.
    """
    found = expression([value])
    for step in steps:
        found = found.map(step)
    return found[0]


def concat(lists: Sequence[Value]) -> Expression:
    """Return the elements of all `lists`, in one list."""
    if len(lists) < 2:  # noqa: PLR2004
        return expression(lists[0] if lists else [])
    return Expression(" + ".join(_within(expression(each), _SUM) for each in lists), _SUM)


class _Bound:
    """The argument of a macro: an expression, and the name in it of what the macro goes through."""

    def __init__(self, parameter: Expression, body: Value) -> None:
        self.parameter = parameter
        self.body = body


def bound(parameter: Expression, body: Value) -> Any:
    """Return the argument of a macro for a `body` that names the `parameter` already."""
    return _Bound(parameter, body)


def record(**members: Value) -> Expression:
    """Return a map of `members`, whose types may differ."""
    pairs = (f"{expression(word)!s}: dyn({expression(value)!s})" for word, value in members.items())
    return Expression("{" + ", ".join(pairs) + "}")


def get(value: Expression, path: str, default: Value) -> Expression:
    """Return the field at `path` of `value`, such as `a.b`; `default` if one is not set."""
    return optional(value, path).orValue(default)


def has(value: Expression, path: str) -> Expression:
    """Return whether the field at `path` of `value` is set."""
    return optional(value, path).hasValue()


def optional(value: Expression, path: str) -> Expression:
    """Return the field at `path` of `value` as an optional value of CEL."""
    return Expression(_within(value, _OPERAND) + "".join(f".?{word}" for word in path.split(".")))


def entry(value: Expression, key: Value, default: Value) -> Expression:
    """Return the value of `key` in the map `value`; `default` if it is not there."""
    return optional_entry(value, key).orValue(default)


def optional_entry(value: Expression, key: Value) -> Expression:
    """Return the value of `key` in the map `value` as an optional value of CEL."""
    return Expression(f"{_within(value, _OPERAND)}[?{expression(key)!s}]")


def construct(kind: str, **fields: Value) -> Expression:
    """Return an object of the type `kind`, such as `JSONPatch`, with `fields`."""
    members = ", ".join(f"{word}: {expression(value)!s}" for word, value in fields.items())
    return Expression(f"{kind}{{{members}}}")


def text(words: str) -> Expression:
    """Return the text of an f-string in which some values are expressions.

    So one f-string serves a rule in Python and in CEL.
    """
    parts = re.split(f"{_BEGIN}(.*?){_END}", words, flags=re.DOTALL)
    # Words and expressions take turns.
    texts = [
        part if index % 2 else str(expression(part)) for index, part in enumerate(parts) if part
    ]
    return Expression(" + ".join(texts) or '""', _SUM if len(texts) > 1 else _OPERAND)


def _within(value: Expression, level: int) -> str:
    """Return the CEL of `value` as an operand of an operator: in parentheses, if it needs them."""
    return f"({value._cel})" if value._level < level else value._cel  # noqa: SLF001


def _operation(left: Any, operator: str, right: Any, level: int) -> Expression:
    # Operators of one level are read from the left.
    first, second = _within(expression(left), level), _within(expression(right), level + 1)
    return Expression(f"{first} {operator} {second}", level)


def _joined(operator: str, tests: Sequence[Value], level: int, *, otherwise: bool) -> Expression:
    if not tests:
        return expression(otherwise)
    if len(tests) == 1:
        return expression(tests[0])
    return Expression(f" {operator} ".join(_within(expression(t), level) for t in tests), level)


def _argument(value: Any) -> str:
    """Return the CEL of an argument of a call."""
    if isinstance(value, _Bound):
        return f"{value.parameter!s}, {expression(value.body)!s}"
    if not callable(value) or isinstance(value, Expression):
        return str(expression(value))
    code = value.__code__
    parameters = code.co_varnames[: code.co_argcount]
    body = value(*map(name, parameters))
    # A macro such as `transformList` may take a filter before the value.
    bodies = body if isinstance(body, tuple) else (body,)
    return ", ".join((*parameters, *(str(expression(each)) for each in bodies)))
