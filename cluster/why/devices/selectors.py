"""Selectors of devices in CEL, evaluated as kube-scheduler does it.

It evaluates what classes and claims are made of: `device.driver`, attributes, capacity, `&&`, `||`,
`!`, `?:`, `in`, comparisons, `has`, optional fields, `cel.bind`, quantities, versions, and tests of
texts. Whatever else an expression has makes its answer not known. No expression takes longer than
it is long: there are no comprehensions, and no patterns but short ones.

Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

from cluster.why.devices import cel_values as values
from cluster.why.devices.cel_values import ANY, SCALARS, FailureError, UnreadError
from cluster.why.devices.pools import Device
from rules.base.cel import (
    Call,
    CelSyntaxError,
    Collection,
    Expression,
    Identifier,
    Index,
    Literal,
    Select,
    UnsupportedCelError,
    parse_cel,
)

_MAX_DEPTH = 100
_MAX_INT64 = 2**63 - 1


class Selection(Enum):
    """The answer of a selector about a device."""

    MATCHES = "matches"
    DIFFERS = "differs"
    FAILS = "fails"
    """The evaluation ends with an error, as when the device lacks an attribute."""
    NOT_KNOWN = "not known"


def select(expression: str, device: Device) -> Selection:
    """Return the answer of the selector `expression` about `device`."""
    tree = _compiled(expression)
    if tree is None or not _is_readable(device):
        return Selection.NOT_KNOWN
    try:
        found = values.boolean(_evaluate(tree, {"device": device}))
    except UnreadError:
        return Selection.NOT_KNOWN
    except FailureError:
        return Selection.FAILS
    return Selection.MATCHES if found else Selection.DIFFERS


def _is_readable(device: Device) -> bool:
    """Return whether gpuward can read all versions of a device; else no selector is evaluated."""
    return all(
        values.read_version(version) is not None
        for attributes in device.attributes.values()
        for raw in attributes.values()
        if isinstance(raw, dict) and isinstance(version := raw.get("version"), str)
    )


# Compilation: types are checked once for each expression.

_Types: TypeAlias = Mapping[str, str]
_DOMAINS = {"attributes": ANY, "capacity": "quantity"}
_FIELDS = {
    "driver": "string",
    "allowMultipleAllocations": "bool",
    **{name: f"domains of {name}" for name in _DOMAINS},
}
_NO_FIELDS = frozenset({"in", "true", "false", "null"})


@lru_cache(maxsize=512)  # expressions are long
def _compiled(expression: str) -> Expression | None:
    """The tree of an expression that can be evaluated here; None if it is not known."""
    try:
        tree = parse_cel(expression)
        found = _type_of(tree, {"device": "device"}, 0)
    except (CelSyntaxError, UnsupportedCelError):
        return None
    return tree if found in {"bool", ANY} else None


def _type_of(node: Expression, scope: _Types, depth: int) -> str:
    """The type of `node`, with `scope` as the types of variables. Raises UnsupportedCelError."""
    if depth > _MAX_DEPTH:
        raise _unread()
    match node:
        case Literal():
            return _type_of_literal(node)
        case Identifier(name) if name in scope:
            return scope[name]
        case Select(operand, field, is_optional):
            return _type_of_member(_type_of(operand, scope, depth + 1), field, is_optional)
        case Index(operand, Literal(type="string", value=key), False) if "\\" not in key:
            holder = _type_of(operand, scope, depth + 1)
            if holder.startswith("domain"):
                return _type_of_member(holder, key)
        case Collection("list", elements) if elements:
            types = {_type_of(each, scope, depth + 1) for each in elements}
            if len(types) == 1 and all(isinstance(each, Literal) for each in elements):
                return f"list of {types.pop()}"
        case Call():
            return _type_of_call(node, scope, depth)
    raise _unread()


def _unread() -> UnsupportedCelError:
    return UnsupportedCelError("is not evaluated here")


def _type_of_literal(node: Literal) -> str:
    is_text = node.type == "string" and "\\" not in node.value
    is_number = node.type == "int" and _integer(node.value) <= _MAX_INT64
    if is_text or is_number or node.type == "bool":
        return node.type
    raise _unread()


def _integer(text: str) -> int:
    return int(text, 16 if text.startswith("0x") else 10)


def _type_of_member(holder: str, field: str, is_optional: bool = False) -> str:  # noqa: FBT001, FBT002  # as in the tree
    kind = holder.rpartition(" ")[2]
    if field not in _NO_FIELDS:
        if holder == "device" and field in _FIELDS and not is_optional:
            return _FIELDS[field]
        if holder.startswith("domains of") and not is_optional:
            return f"domain of {kind}"
        if holder.startswith("domain of"):
            return f"optional {_DOMAINS[kind]}" if is_optional else _DOMAINS[kind]
    raise _unread()


def _type_of_call(node: Call, scope: _Types, depth: int) -> str:
    match node:
        case Call("has", None, (Select(operand, field, False),)) if field not in _NO_FIELDS:
            if _type_of(operand, scope, depth + 1).startswith("domain of"):
                return "bool"
            raise _unread()
        case Call("bind", Identifier("cel"), (Identifier(name), value, body)):
            bound = _type_of(value, scope, depth + 1)
            if bound.startswith("domain"):
                return _type_of(body, {**scope, name: bound}, depth + 1)
            raise _unread()
    types = [_type_of(each, scope, depth + 1) for each in node.arguments]
    if node.target is None:
        return _type_of_function(node, types)
    return _type_of_method(node, _type_of(node.target, scope, depth + 1), types)


def _type_of_function(node: Call, types: Sequence[str]) -> str:
    literal = next((each for each in node.arguments if isinstance(each, Literal)), None)
    match node.function, types:
        case (("_&&_" | "_||_" | "!_"), _) if set(types) <= {"bool", ANY}:
            return "bool"
        case "_?_:_", [condition, one, other] if condition in {"bool", ANY} and one == other:
            return one
        case "-_", ["int"] if literal is not None:
            return "int"
        case "quantity", ["string"] if literal and values.read_amount(literal.value):
            return "quantity"
        case "semver", ["string"] if literal and values.read_version(literal.value):
            return "semver"
        case operator, [one, other] if _are_operands(operator, one, other):
            return "bool"
    raise _unread()


def _are_operands(operator: str, one: str, other: str) -> bool:
    """Return whether values of these types can be compared by `operator`."""
    if operator == "_in_":
        if other.startswith("domain"):
            return one in {"string", ANY}
        return other.startswith("list of ") and one in {other.removeprefix("list of "), ANY}
    if operator in {"_==_", "_!=_"}:
        return _are_comparable(one, other, SCALARS)
    return operator in values.ORDERS and _are_comparable(one, other, {"string", "int"})


def _are_comparable(one: str, other: str, types: frozenset[str] | set[str]) -> bool:
    known = {one, other} - {ANY}
    return known <= types and len(known) <= 1


def _type_of_method(node: Call, own: str, types: Sequence[str]) -> str:
    inner = own.removeprefix("optional ")
    match node.function, types:
        case "hasValue", [] if inner != own:
            return "bool"
        case "orValue", [other] if inner != own and (inner == other or other in SCALARS):
            if inner in {other, ANY}:
                return inner
        case name, _ if name in values.METHODS:
            method = values.METHODS[name]
            is_typed = own == ANY or own in method.own
            if method.arguments is None:
                is_typed &= len(types) == 1 and _are_comparable(own, types[0], method.own)
            else:
                is_typed &= len(types) == len(method.arguments) and all(
                    one in {ANY, wanted}
                    for one, wanted in zip(types, method.arguments, strict=True)
                )
            if is_typed and (name != "matches" or _has_simple_pattern(node)):
                return method.result
    raise _unread()


def _has_simple_pattern(node: Call) -> bool:
    pattern = node.arguments[0]
    return isinstance(pattern, Literal) and values.is_simple_pattern(pattern.value)


# Evaluation, with Python's values: their types have been checked.

_Scope: TypeAlias = Mapping[str, Any]


class _Domain:
    """The attributes of one domain, or its capacity."""

    def __init__(self, raw: Mapping[str, Any], read: Callable[[Any], Any]) -> None:
        self._raw, self._read = raw, read

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __getitem__(self, name: str) -> Any:
        return self._read(self._raw[name])


class _Domains:
    """Attributes or capacity by domain; a domain that is not there is empty."""

    def __init__(self, raw: Mapping[str, Mapping[str, Any]], read: Callable[[Any], Any]) -> None:
        self._raw, self._read = raw, read

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __getitem__(self, name: str) -> _Domain:
        return _Domain(self._raw.get(name, {}), self._read)


def _evaluate(node: Expression, scope: _Scope) -> Any:  # noqa: PLR0911  # one for each kind
    match node:
        case Literal(type="int", value=text):
            return _integer(text)
        case Literal(kind, text):
            return text == "true" if kind == "bool" else text
        case Identifier(name):
            return scope[name]
        case Select(operand, field, is_optional):
            return _member(_evaluate(operand, scope), field, is_optional)
        case Index(operand, Literal(value=key)):
            return _member(_evaluate(operand, scope), key)
        case Call():
            return _evaluate_call(node, scope)
        case Collection(elements=elements):
            return tuple(_evaluate(each, scope) for each in elements)
    raise UnreadError


def _member(holder: Any, field: str, is_optional: bool = False) -> Any:  # noqa: FBT001, FBT002  # as in the tree
    if isinstance(holder, Device):
        return {
            "driver": holder.driver,
            "allowMultipleAllocations": holder.is_shared,
            "attributes": _Domains(holder.attributes, values.attribute),
            "capacity": _Domains(holder.capacity, values.capacity),
        }[field]
    if isinstance(holder, _Domains):
        return holder[field]
    has_value = field in holder
    if is_optional:
        return values.Optional(holder[field] if has_value else None, has_value)
    if not has_value:
        raise FailureError
    return holder[field]


def _evaluate_call(node: Call, scope: _Scope) -> Any:  # noqa: PLR0911  # one for each kind
    match node:
        case Call("has", None, (Select(operand, field),)):
            return field in _evaluate(operand, scope)
        case Call("bind", Identifier("cel"), (Identifier(name), value, body)):
            return _evaluate(body, {**scope, name: _evaluate(value, scope)})
        case Call(("_&&_" | "_||_") as operator):
            return _logic(node.arguments, scope, decisive=operator == "_||_")
        case Call("_?_:_", None, (condition, one, other)):
            is_true = values.boolean(_evaluate(condition, scope))
            return _evaluate(one if is_true else other, scope)
    arguments = [_evaluate(each, scope) for each in node.arguments]
    if node.target is None:
        return _function(node.function, arguments)
    own = _evaluate(node.target, scope)
    if isinstance(own, values.Optional):
        if node.function == "hasValue":
            return own.has_value
        return own.value if own.has_value else arguments[0]
    return values.call(node.function, own, arguments)


def _logic(arguments: tuple[Expression, ...], scope: _Scope, *, decisive: bool) -> bool:
    """`&&` and `||`: a side that decides does so even if the other one fails."""
    failure: Exception | None = None
    for each in arguments:
        try:
            if values.boolean(_evaluate(each, scope)) is decisive:
                return decisive
        except FailureError as error:
            failure = failure or error
        except UnreadError as error:
            failure = error
    if failure is not None:
        raise failure
    return not decisive


def _function(function: str, arguments: list[Any]) -> Any:  # noqa: PLR0911  # one for each kind
    first, *others = arguments
    match function:
        case "!_":
            return not values.boolean(first)
        case "-_":
            return -first
        case "quantity":
            return values.read_amount(first)
        case "semver":
            return values.read_version(first)
        case "_==_" | "_!=_":
            return values.are_equal(first, others[0]) is (function == "_==_")
        case "_in_" if isinstance(others[0], tuple):
            return values.is_in(first, others[0])
        case "_in_":
            if isinstance(first, str):
                return first in others[0]
            raise UnreadError
    return values.in_order(function, first, others[0])
