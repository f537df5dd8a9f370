"""Read expressions in CEL, the Common Expression Language, into a tree.

It reads the whole grammar of the language. What it cannot judge, such as identifiers in backquotes,
raises UnsupportedCelError, and only what no version of the language accepts raises CelSyntaxError.
Specification: https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from rules.base.json_values import display

MAX_CHARACTERS = 10 * 1024  # characters that are read, as many as Kubernetes accepts of a selector
MAX_TOKENS = 400  # a chain of operators is as deep a tree as it has operators
MAX_BRACKET_DEPTH = 40  # levels of parentheses; the functions below call each other for each
_MAX_SHOWN_CHARACTERS = 40  # of what an error shows


class CelSyntaxError(ValueError):
    """A text that is no expression. The text of the error completes "the expression"."""


class UnsupportedCelError(ValueError):
    """A text that is not read: too long, too deep, or with syntax that may be of a newer CEL."""


class Literal(NamedTuple):
    """A value; the type is `string`, `bytes`, `int`, `uint`, `double`, `bool` or `null`.

    `value` is the text of a string, and of others the source.
    """

    type: str
    value: str


class Identifier(NamedTuple):
    """A name that is not behind a dot."""

    name: str


class Select(NamedTuple):
    """A field of `operand`, such as `a.field`; or of an optional, `a.?field`."""

    operand: "Expression"
    field: str
    is_optional: bool = False


class Index(NamedTuple):
    """An element of `operand`, such as `a[key]`; or of an optional, `a[?key]`."""

    operand: "Expression"
    key: "Expression"
    is_optional: bool = False


class Call(NamedTuple):
    """A call of a function, or of a method of `target`; an operator is a function such as `_+_`."""

    function: str
    target: "Expression | None"
    arguments: tuple["Expression", ...]


class Collection(NamedTuple):
    """A list, a map or a message, with everything that is in it."""

    type: str
    elements: tuple["Expression", ...]


Expression: TypeAlias = Literal | Identifier | Select | Index | Call | Collection


def parse_cel(text: str) -> Expression:
    """The tree of the expression `text`. Raises CelSyntaxError or UnsupportedCelError."""
    if len(text) > MAX_CHARACTERS:
        raise UnsupportedCelError("is too long")
    return _Parser(_tokens(text)).parse_all()


def children(node: Expression) -> tuple[Expression, ...]:
    """The parts of `node` that are expressions."""
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, Index):
        return (node.operand, node.key)
    if isinstance(node, Call):
        return (*((node.target,) if node.target is not None else ()), *node.arguments)
    return node.elements if isinstance(node, Collection) else ()


class _Token(NamedTuple):
    kind: str
    text: str


_ESCAPE_PATTERN = (
    r"\\(?:[abfnrtv\\?\"'`]|x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}"
    r"|[0-3][0-7]{2})"
)
_TOKEN_PATTERN = re.compile(
    rf"""
      (?P<space>\s+|//[^\n]*)
    | (?P<raw>[bB]?[rR](?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"[^"\n\r]*"|'[^'\n\r]*'))
    | (?P<string>[bB]?(?:\"\"\"(?:{_ESCAPE_PATTERN}|[^\\])*?\"\"\"
        |'''(?:{_ESCAPE_PATTERN}|[^\\])*?'''
        |"(?:{_ESCAPE_PATTERN}|[^\\"\n\r])*"|'(?:{_ESCAPE_PATTERN}|[^\\'\n\r])*'))
    | (?P<number>0x[0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
        |[0-9]+[uU]?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE,
)
_RESERVED_WORDS = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_END_TOKEN = _Token("end", "")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN_PATTERN.match(text, position)
        if match is None:
            raise _unreadable(text[position:])
        if match.lastgroup != "space":
            if len(found) == MAX_TOKENS:
                raise UnsupportedCelError("is too long")
            found.append(_Token(str(match.lastgroup), match[0]))
        position = match.end()
    return found


def _unreadable(rest: str) -> Exception:
    character = rest[0]
    if character in "\"'":
        return CelSyntaxError("has a text that does not end on its line, or a wrong escape in one")
    if character in "&|=":
        right = {"&": "&&", "|": "||", "=": "=="}[character]
        return CelSyntaxError(f"has {character} where CEL has {right}")
    if character in "@#$^~;\\":
        return CelSyntaxError(f"has the character {character}, which CEL does not know")
    return UnsupportedCelError(f"has the character {character!r}")


# Operators by how tightly they bind, the loosest first.
_RELATION_OPERATORS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_OPERATORS_BY_PRECEDENCE = (
    frozenset({"||"}),
    frozenset({"&&"}),
    _RELATION_OPERATORS,
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)


class _Parser:
    """Recursive descent: each method reads one rule of the grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def parse_all(self) -> Expression:
        """The expression that all tokens are."""
        if not self._tokens:
            raise CelSyntaxError("is empty")
        found = self._expression()
        if self._next_token is not _END_TOKEN:
            raise self._unexpected()
        return found

    @property
    def _next_token(self) -> _Token:
        tokens, position = self._tokens, self._position
        return tokens[position] if position < len(tokens) else _END_TOKEN

    def _take_token(self) -> _Token:
        token = self._next_token
        self._position += 1
        return token

    def _accept(self, text: str) -> bool:
        """Return whether the next token is the operator `text`, which is then read."""
        if self._next_token == ("operator", text):
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(f"where {text} is expected")

    def _unexpected(self, where: str = "where nothing can follow") -> CelSyntaxError:
        token = self._next_token
        if token is _END_TOKEN:
            return CelSyntaxError(f"ends {where}" if "expected" in where else "is not complete")
        shown = token.text[:_MAX_SHOWN_CHARACTERS]
        if not shown.isprintable():  # a text on several lines
            shown = display(token.text, _MAX_SHOWN_CHARACTERS)
        return CelSyntaxError(f"has {shown} {where}")

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_BRACKET_DEPTH:
            raise UnsupportedCelError("is too deep")
        found = self._binary(0)
        if self._accept("?"):
            chosen = self._binary(0)
            self._expect(":")
            found = Call("_?_:_", None, (found, chosen, self._expression()))
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Expression:
        if level == len(_OPERATORS_BY_PRECEDENCE):
            return self._unary()
        found = self._binary(level + 1)
        while self._next_token.text in _OPERATORS_BY_PRECEDENCE[
            level
        ] and self._next_token.kind in (
            "operator",
            "name",
        ):
            operator = self._take_token().text
            found = Call(f"_{operator}_", None, (found, self._binary(level + 1)))
        return found

    def _unary(self) -> Expression:
        signs = 0
        operator = self._next_token.text if self._next_token.kind == "operator" else ""
        if operator in ("!", "-"):
            while self._accept(operator):
                signs += 1
        found = self._member()
        # An even number of signs is none, whatever the type of the value.
        return Call(f"{operator}_", None, (found,)) if signs % 2 else found

    def _member(self) -> Expression:
        found = self._primary()
        while True:
            if self._accept("."):
                is_optional = self._accept("?")
                token = self._take_token()
                if token.kind != "name":
                    self._position -= 1
                    raise self._unexpected("where the name of a field is expected")
                if not is_optional and self._accept("("):
                    found = Call(token.text, found, self._elements_up_to(")"))
                else:
                    found = Select(found, token.text, is_optional)
            elif self._accept("["):
                is_optional = self._accept("?")
                found = Index(found, self._expression(), is_optional)
                self._expect("]")
            elif isinstance(found, (Identifier, Select)) and self._accept("{"):
                found = Collection("message", tuple(self._entries_in_braces(has_keys=False)))
            else:
                return found

    def _primary(self) -> Expression:
        token = self._take_token()
        if token.kind in ("string", "raw"):
            return _text_literal(token)
        if token.kind == "number":
            return Literal(_type_of_number(token.text), token.text)
        if token.kind == "operator" and token.text in ("(", "[", "{"):
            return self._in_brackets(token.text)
        if token == ("operator", "."):  # a name from the root of all names
            token = self._take_token()
        if token.kind == "name" and token.text != "in":
            return self._identifier_or_call(token.text)
        self._position -= 1
        raise self._unexpected("where a value is expected")

    def _in_brackets(self, bracket: str) -> Expression:
        if bracket == "[":
            return Collection("list", self._elements_up_to("]", may_be_optional=True))
        if bracket == "{":
            return Collection("map", tuple(self._entries_in_braces(has_keys=True)))
        found = self._expression()
        self._expect(")")
        return found

    def _identifier_or_call(self, name: str) -> Expression:
        if name in ("true", "false"):
            return Literal("bool", name)
        if name == "null":
            return Literal("null", name)
        if name in _RESERVED_WORDS:
            raise CelSyntaxError(f"has the reserved word {name}")
        if self._accept("("):
            return Call(name, None, self._elements_up_to(")"))
        return Identifier(name)

    def _elements_up_to(self, end: str, *, may_be_optional: bool = False) -> tuple[Expression, ...]:
        """The expressions up to `end`, between commas; a comma may end a list in brackets."""
        found: list[Expression] = []
        while not self._accept(end):
            if found:
                self._expect(",")
                if may_be_optional and self._accept(end):
                    break
            if may_be_optional:
                self._accept("?")
            found.append(self._expression())
        return tuple(found)

    def _entries_in_braces(self, *, has_keys: bool) -> Iterator[Expression]:
        """The keys and values of a map, or the values of a message, up to the closing brace."""
        is_first = True
        while not self._accept("}"):
            if not is_first:
                self._expect(",")
                if self._accept("}"):
                    return
            is_first = False
            self._accept("?")
            if has_keys:
                yield self._expression()
            else:
                self._skip_field()
            self._expect(":")
            yield self._expression()

    def _skip_field(self) -> None:
        if self._take_token().kind != "name":
            self._position -= 1
            raise self._unexpected("where the name of a field is expected")


def _type_of_number(text: str) -> str:
    if text[-1] in "uU":
        return "uint"
    is_double = not text.startswith("0x") and any(mark in text for mark in ".eE")
    return "double" if is_double else "int"


def _text_literal(token: _Token) -> Literal:
    prefix = token.text[: len(token.text) - len(token.text.lstrip("bBrR"))]
    quoted = token.text[len(prefix) :]
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1  # noqa: PLR2004
    content = quoted[width:-width]
    if token.kind == "string" and "\\" in content:
        content = re.sub(r"\\([\\?\"'`])", r"\1", content)  # others are in no name that is compared
    return Literal("bytes" if "b" in prefix.lower() else "string", content)
