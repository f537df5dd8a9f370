"""Faults in CEL expressions that select devices.

The API server compiles the expression: it refuses wrong syntax and operators on wrong types. What
the devices have, it does not know. The scheduler evaluates the expression for each device, and if
it reads an attribute that a device lacks, the pod is not scheduled at all.

Only what is certain is a fault. The types of most expressions are not known, and nothing is said
about them.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

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
from rules.base.json_values import display
from rules.base.quantity import Malformed, parse
from rules.base.text_matching import has_placeholder, nearest_word
from rules.profile.platforms import device_attributes as known

MAX_SELECTOR_BYTES = 10 * 1024
"""As long as a selector may be."""
_MAX_FAULTS = 5  # of one expression


class SelectorFault(NamedTuple):
    """A fault of a selector. `text` completes "the selector".

    - `is_refused`: the API server refuses the expression.
    - `is_certain`: no release of the driver has what the expression reads.
    """

    text: str
    help: str
    is_refused: bool = False
    is_certain: bool = True


def selector_faults(expression: str, class_name: str = "") -> list[SelectorFault]:
    """The faults of `expression`, which narrows the devices of `class_name`."""
    if has_placeholder(expression):
        return []
    if len(expression.encode(errors="replace")) > MAX_SELECTOR_BYTES:
        text = f"has more than {MAX_SELECTOR_BYTES:,} bytes"
        return [SelectorFault(text, "shorten it", is_refused=True)]
    try:
        tree = parse_cel(expression)
    except CelSyntaxError as error:
        return [SelectorFault(str(error), "correct the expression", is_refused=True)]
    except UnsupportedCelError:
        return []
    checker = _Checker(class_name)
    result = checker.type_of(tree, {})
    checker.check_result(result)
    return checker.faults


class _Type(NamedTuple):
    """The type of an expression.

    `domain` and `name` are those of an attribute or a capacity; None if they are not literal.
    """

    kind: str
    domain: str | None = None
    name: str | None = None


VariableTypes = Mapping[str, _Type]

_ANY, _BOOL, _INT, _STRING = _Type("any"), _Type("bool"), _Type("int"), _Type("string")
_QUANTITY, _SEMVER = _Type("quantity"), _Type("semver")
_DEVICE, _ATTRIBUTES, _CAPACITIES = _Type("device"), _Type("attributes"), _Type("capacity")
_TYPES_OF_DEVICE_FIELDS = {
    "driver": _STRING,
    "attributes": _ATTRIBUTES,
    "capacity": _CAPACITIES,
    "allowMultipleAllocations": _BOOL,
}
# How a message names a value of each type.
_WORDS_BY_TYPE = {
    "string": "a text",
    "int": "a number",
    "uint": "a number",
    "double": "a number",
    "bool": "a truth value",
    "quantity": "a quantity",
    "semver": "a version",
    "list": "a list",
    "map": "a map",
    "bytes": "bytes",
    "attributes": "a map",
    "capacity": "a map",
    "domain": "a map",
    "device": "the device",
    known.VERSION_TYPE: "a version",
}
_NUMBER_TYPES = frozenset({"int", "uint", "double"})
_MAP_TYPES = frozenset({"map", "attributes", "capacity", "domain"})
_SCALAR_TYPES = frozenset({*_NUMBER_TYPES, "string", "bool", "quantity", "semver", "bytes"})
_COMPARABLE_TYPES = _SCALAR_TYPES | _MAP_TYPES | {"list", "device"}
_ORDER_OPERATORS = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_ARITHMETIC_OPERATORS = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_QUANTITY_METHODS = {
    **dict.fromkeys(("isGreaterThan", "isLessThan", "isInteger"), _BOOL),
    **dict.fromkeys(("compareTo", "asInteger"), _INT),
    **dict.fromkeys(("add", "sub"), _QUANTITY),
    "asApproximateFloat": _Type("double"),
}
_ORDERING_METHODS = frozenset({"compareTo", "isGreaterThan", "isLessThan"})
_STRING_TESTS = frozenset({"contains", "startsWith", "endsWith", "matches"})
_STRING_METHODS = {
    **dict.fromkeys(_STRING_TESTS, _BOOL),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "replace", "substring"), _STRING),
}
_FUNCTIONS = {
    "quantity": _QUANTITY,
    "semver": _SEMVER,
    "size": _INT,
    "string": _STRING,
    "int": _INT,
    "double": _Type("double"),
    "bool": _BOOL,
    "isQuantity": _BOOL,
    "isSemver": _BOOL,
    "sign": _INT,
    **dict.fromkeys(("uint", "bytes", "type", "dyn", "duration", "timestamp", "url"), _ANY),
    **dict.fromkeys(("ip", "cidr", "isURL", "isIP", "isCIDR"), _ANY),
}
# Methods that declare names in their first arguments.
_MACROS = frozenset(
    {
        *("all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy"),
        *("transformList", "transformMap", "transformMapEntry", "optMap", "optFlatMap"),
    }
)
_MACROS_OF_BOOL = frozenset({"all", "exists", "exists_one", "existsOne"})
_TYPE_NAMES = frozenset(
    {"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"}
    | {"optional_type"}
)
_MIN_MISSPELT_CHARACTERS = 6  # letters of a function whose misspelt name is recognised
_SEMANTIC_VERSION_PATTERN = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)


class _Checker:
    """Finds the types of expressions, and adds what is wrong to `faults`."""

    def __init__(self, class_name: str) -> None:
        self.faults: list[SelectorFault] = []
        self._class = class_name
        # Whether what is being read is read for every device that matches.
        self._is_always_read = True

    def check_result(self, result: _Type) -> None:
        """Check that the type of the whole expression is a truth value."""
        kind = self._kind_of(result)
        if result.kind == "attribute":
            if kind not in ("any", "bool"):
                self._report_fault(
                    f"is {_WORDS_BY_TYPE[kind]}, and not true or false", "compare it with a value"
                )
        elif kind in _COMPARABLE_TYPES and kind != "bool":
            advice = "compare it with a value"
            self._report_refusal(f"is {_WORDS_BY_TYPE[kind]}, and not true or false", advice)

    def type_of(self, node: Expression, scope: VariableTypes) -> _Type:
        """The type of `node`, with the names in `scope`."""
        if isinstance(node, Literal):
            return _ANY if node.type == "null" else _Type(node.type)
        if isinstance(node, Identifier):
            return self._type_of_name(node.name, scope)
        if isinstance(node, Select):
            return self._type_of_field(node, scope)
        if isinstance(node, Index):
            return self._type_of_element(node, scope)
        if isinstance(node, Collection):
            for element in node.elements:
                self.type_of(element, scope)
            return _Type(node.type) if node.type in ("list", "map") else _ANY
        return self._type_of_call(node, scope)

    # Names, fields and elements.

    def _type_of_name(self, name: str, scope: VariableTypes) -> _Type:
        if name in scope:
            return scope[name]
        if name == "device":
            return _DEVICE
        if name not in _TYPE_NAMES:
            near = nearest_word(name[:63], ("device", *scope))
            advice = f"write {near}" if near else "the only variable is device"
            self._report_refusal(f"uses the name {display(name)}, which does not exist", advice)
        return _ANY

    def _type_of_field(self, node: Select, scope: VariableTypes) -> _Type:
        if self._is_qualified_name(node, scope):
            return _ANY
        domain = _domain_in_parts(node)
        if domain:
            field, parts = domain
            text = f"reads the domain {'.'.join(parts)} in parts, as if it were several fields"
            self._report_fault(text, f'write device.{field}["{".".join(parts)}"]')
            return _ANY
        holder = self.type_of(node.operand, scope)
        found = self._member(holder, node.field, is_optional=node.is_optional)
        return _ANY if node.is_optional else found

    def _member(self, holder: _Type, name: str, *, is_optional: bool) -> _Type:
        """The field `name` of a value, or its element with this literal key."""
        if holder.kind == "device":
            if name not in _TYPES_OF_DEVICE_FIELDS:
                near = nearest_word(name[:63], _TYPES_OF_DEVICE_FIELDS)
                advice = (
                    f"write {near}"
                    if near
                    else f"write one of {', '.join(_TYPES_OF_DEVICE_FIELDS)}"
                )
                self._report_refusal(f"reads device.{name[:63]}, which does not exist", advice)
                return _ANY
            return _TYPES_OF_DEVICE_FIELDS[name]
        if holder.kind in ("attributes", "capacity"):
            self._check_domain(name)
            return _Type("domain", name, holder.kind)
        if holder.kind == "domain":
            self._check_name(holder, name, is_optional=is_optional)
            is_attribute = holder.name == "attributes"
            return _Type("attribute" if is_attribute else "quantity", holder.domain, name)
        if holder.kind in _SCALAR_TYPES:
            what = _WORDS_BY_TYPE[holder.kind]
            text = f"reads the field {display(name)} of {what}, which has no fields"
            self._report_refusal(text, "correct the expression")
        return _ANY

    def _type_of_element(self, node: Index, scope: VariableTypes) -> _Type:
        holder, index = self.type_of(node.operand, scope), self.type_of(node.key, scope)
        found = _ANY
        if isinstance(node.key, Literal) and node.key.type == "string":
            if holder.kind in ("attributes", "capacity", "domain"):
                found = self._member(holder, node.key.value, is_optional=node.is_optional)
        elif holder.kind in ("attributes", "capacity"):
            if index.kind in _SCALAR_TYPES and index.kind != "string":
                text = f"reads device.{holder.kind} by {_WORDS_BY_TYPE[index.kind]}"
                self._report_refusal(text, "write the domain as a text")
            found = _Type("domain", None, holder.kind)
        elif holder.kind == "domain":
            found = _Type("attribute") if holder.name == "attributes" else _QUANTITY
        return _ANY if node.is_optional else found

    def _is_qualified_name(self, node: Select, scope: VariableTypes) -> bool:
        """Return whether the field is a name with dots, such as `google.protobuf.Timestamp`."""
        root: Expression = node
        while isinstance(root, Select):
            root = root.operand
        return (
            isinstance(root, Identifier) and root.name not in scope and _may_be_namespace(root.name)
        )

    def _check_domain(self, domain: str) -> None:
        if domain in known.DRIVERS or not 1 <= len(domain) <= 63:  # noqa: PLR2004
            return
        near = nearest_word(domain, known.DRIVERS)
        near = near or {"nvidia.com": "gpu.nvidia.com", "amd.com": "gpu.amd.com"}.get(domain)
        if near:
            text = f"reads the domain {display(domain)}, which no driver is known to have"
            self._report_fault(text, f"write {near}")

    def _check_name(self, holder: _Type, name: str, *, is_optional: bool) -> None:
        driver = known.DRIVERS.get(holder.domain or "")
        if driver is None or not 1 <= len(name) <= 63:  # noqa: PLR2004
            return
        is_attribute = holder.name == "attributes"
        names = driver.attributes if is_attribute else driver.capacity
        others = driver.capacity if is_attribute else driver.attributes
        if name in names:
            self._check_class(driver, holder, name, is_optional=is_optional)
            return
        what = "attribute" if is_attribute else "capacity"
        text = f"reads the {what} {display(name)}, which devices of {holder.domain} do not have"
        if name in others:
            where = (
                f'device.{"capacity" if is_attribute else "attributes"}["{holder.domain}"].{name}'
            )
            self._report_fault(text, f"write {where}")
        elif (
            is_attribute and holder.domain != known.STANDARD_DOMAIN and name in _STANDARD_ATTRIBUTES
        ):
            self._report_fault(text, f'write device.attributes["{known.STANDARD_DOMAIN}"].{name}')
        elif near := nearest_word(name, names):
            self._report_fault(text, f"write {near}")
        elif names:
            text = f"reads the {what} {display(name)}, which {holder.domain} is not known to have"
            advice = f"it has {', '.join(sorted(names)[:12])} and others"
            self._keep(SelectorFault(text, advice, is_certain=False))

    def _check_class(
        self, driver: known.Driver, holder: _Type, name: str, *, is_optional: bool
    ) -> None:
        lacking, other = driver.attributes_lacking_by_class.get(self._class, (frozenset[str](), ""))
        if name in lacking and self._is_always_read and not is_optional:
            text = (
                f"reads the attribute {display(name)} of {holder.domain}, which devices of the "
                f"class {self._class} do not have"
            )
            self._report_fault(text, f"write deviceClassName: {other}, whose devices have it")

    # Calls.

    def _type_of_call(self, node: Call, scope: VariableTypes) -> _Type:
        function, target = node.function, node.target
        if target is None:
            return self._type_of_global(node, scope)
        if function == "bind" and target == Identifier("cel") and "cel" not in scope:
            return self._type_of_bind(node, scope)
        if function in _MACROS:
            self.type_of(target, scope)
            return self._type_of_macro(node, scope)
        is_namespace = (
            isinstance(target, Identifier)
            and target.name not in scope
            and _may_be_namespace(target.name)
        )
        if is_namespace or (isinstance(target, Select) and self._is_qualified_name(target, scope)):
            for each in node.arguments:
                self.type_of(each, scope)
            return _ANY
        return self._type_of_method(node, self.type_of(target, scope), scope)

    def _type_of_global(self, node: Call, scope: VariableTypes) -> _Type:
        if node.function in ("_&&_", "_||_", "!_", "_?_:_"):
            return self._type_of_logic(node, scope)
        if node.function == "has":
            return self._type_of_has(node, scope)
        types = [self.type_of(each, scope) for each in node.arguments]
        if "_" in (node.function[0], node.function[-1]):
            return self._type_of_operator(node, types)
        return self._type_of_function(node)

    def _type_of_logic(self, node: Call, scope: VariableTypes) -> _Type:
        before = self._is_always_read
        types = []
        for number, each in enumerate(node.arguments):
            # The right side of && is read only where the left is true; && with a false left side
            # is false for such a device, so that nothing is selected either.
            if node.function in ("_||_", "!_") or (node.function == "_?_:_" and number):
                self._is_always_read = False
            types.append(self.type_of(each, scope))
        self._is_always_read = before
        conditions = types[:1] if node.function == "_?_:_" else types
        for condition in conditions:
            kind = condition.kind
            if kind in _COMPARABLE_TYPES and kind != "bool":
                operator = node.function.strip("_").replace("_:", ":")
                text = f"uses {_WORDS_BY_TYPE[kind]} as a condition, by {operator}"
                self._report_refusal(text, "compare it with a value")
        if node.function == "_?_:_":
            return types[1] if types[1] == types[2] else _ANY
        return _BOOL

    def _type_of_has(self, node: Call, scope: VariableTypes) -> _Type:
        if len(node.arguments) != 1 or not isinstance(node.arguments[0], Select):
            advice = 'write has(device.attributes["…"].name), or "name" in device.attributes["…"]'
            self._report_refusal("has has() around something that is no field", advice)
            return _BOOL
        before, self._is_always_read = self._is_always_read, False
        self.type_of(node.arguments[0], scope)
        self._is_always_read = before
        return _BOOL

    def _type_of_operator(self, node: Call, types: list[_Type]) -> _Type:
        operator = node.function.strip("_")
        if len(types) == 1:  # a sign
            if types[0].kind in ("quantity", "string", "bool"):
                text = f"has a minus before {_WORDS_BY_TYPE[types[0].kind]}"
                self._report_refusal(text, "correct the expression")
            return types[0] if types[0].kind in _NUMBER_TYPES else _ANY
        left, right = types
        if node.function == "_in_":
            if right.kind in _SCALAR_TYPES:
                text = f"looks for a value in {_WORDS_BY_TYPE[right.kind]}, by in"
                self._report_refusal(text, "write a list or a map, or use contains")
            self._check_key(node.arguments[0], right)
            return _BOOL
        if node.function in ("_==_", "_!=_"):
            self._check_equality(node, left, right)
            return _BOOL
        if node.function in _ORDER_OPERATORS:
            self._check_order(operator, left, right)
            return _BOOL
        if "quantity" in (left.kind, right.kind):
            text = f"calculates with a quantity by {operator}"
            self._report_refusal(text, "write .add(…) or .sub(…)")
        return left if left == right and left.kind in _NUMBER_TYPES | {"string"} else _ANY

    def _check_key(self, key: Expression, holder: _Type) -> None:
        if holder.kind == "domain" and isinstance(key, Literal) and key.type == "string":
            self._check_name(holder, key.value, is_optional=True)

    def _check_equality(self, node: Call, left: _Type, right: _Type) -> None:
        one, other = self._kind_of(left), self._kind_of(right)
        is_runtime = "attribute" in (left.kind, right.kind)
        if (
            one in _COMPARABLE_TYPES
            and other in _COMPARABLE_TYPES
            and not _are_comparable(one, other)
        ):
            operator = node.function.strip("_")
            text = f"compares {_WORDS_BY_TYPE[one]} with {_WORDS_BY_TYPE[other]} by {operator}"
            advice = _advice(one, other)
            if is_runtime:
                attribute = left if left.kind == "attribute" else right
                self._report_fault(f"{text}, which are never equal: {attribute.name}", advice)
            else:
                self._report_refusal(text, advice)
        for attribute, literal in zip((left, right), node.arguments[::-1], strict=True):
            self._check_value(attribute, literal)

    def _check_value(self, attribute: _Type, literal: Expression) -> None:
        """Check that an attribute can have a value, if all of its values are known."""
        if attribute.kind != "attribute" or not isinstance(literal, Literal):
            return
        driver = known.DRIVERS.get(attribute.domain or "")
        values = driver.values.get(attribute.name or "", ()) if driver else ()
        if literal.type == "string" and values and literal.value not in values:
            near = nearest_word(literal.value[:63], values) if literal.value else None
            if near:
                text = (
                    f"compares {attribute.name} with {display(literal.value)}, which no device of "
                    f"{attribute.domain} has"
                )
                self._report_fault(text, f"write {near}")

    def _check_order(self, operator: str, left: _Type, right: _Type) -> None:
        one, other = self._kind_of(left), self._kind_of(right)
        advice = _advice(one, other)
        refused = {"quantity", "semver", "list", *_MAP_TYPES, "device"}
        for kind, actual in ((one, left), (other, right)):
            if actual.kind in refused:
                self._report_refusal(f"compares {_WORDS_BY_TYPE[kind]} by {operator}", advice)
                return
        is_mixed = (
            one in _SCALAR_TYPES and other in _SCALAR_TYPES and not _are_comparable(one, other)
        )
        is_runtime = "attribute" in (left.kind, right.kind)
        attribute = left if left.kind == "attribute" else right
        if is_mixed and not is_runtime:
            self._report_refusal(
                f"compares {_WORDS_BY_TYPE[one]} with {_WORDS_BY_TYPE[other]} by {operator}", advice
            )
        elif is_mixed or (is_runtime and "semver" in (one, other)):
            self._report_fault(
                f"compares {attribute.name} by {operator}, which fails for its type", advice
            )

    def _type_of_function(self, node: Call) -> _Type:
        name = node.function
        literal = node.arguments[0] if len(node.arguments) == 1 else None
        if isinstance(literal, Literal) and literal.type == "string":
            if name == "quantity" and isinstance(parse(literal.value), Malformed):
                text = f"has the quantity {display(literal.value)}, which is none"
                self._report_fault(text, "write a number with a unit such as Gi")
            elif name == "semver" and not _SEMANTIC_VERSION_PATTERN.fullmatch(literal.value):
                text = f"has the version {display(literal.value)}, which needs three numbers"
                self._report_fault(text, "write it as 8.0.0")
        near = nearest_word(
            name[:63], (each for each in _FUNCTIONS if len(each) >= _MIN_MISSPELT_CHARACTERS)
        )
        if name not in _FUNCTIONS and near and abs(len(near) - len(name)) <= 1:
            self._report_refusal(f"calls {name[:63]}(), which does not exist", f"write {near}()")
        return _FUNCTIONS.get(name, _ANY)

    def _type_of_bind(self, node: Call, scope: VariableTypes) -> _Type:
        variable, value, body = (*node.arguments, *[None] * 3)[:3]
        if not isinstance(variable, Identifier) or value is None or body is None:
            return _ANY
        return self.type_of(body, {**scope, variable.name: self.type_of(value, scope)})

    def _type_of_method(self, node: Call, target: _Type, scope: VariableTypes) -> _Type:
        function = node.function
        types = [self.type_of(each, scope) for each in node.arguments]
        kinds = [each.kind for each in types]
        if target.kind == "quantity":
            self._check_method(function, target.kind, _QUANTITY_METHODS)
        elif target.kind == "string":
            self._check_method(function, target.kind, _STRING_METHODS)
        elif target.kind == "attribute":
            self._check_method_of_attribute(target, function)
        if function in _ORDERING_METHODS and len(kinds) == 1:
            if kinds[0] in _SCALAR_TYPES - {"quantity", "semver"}:
                kind = "semver" if self._kind_of(target) == "semver" else "quantity"
                text = (
                    f"compares {_WORDS_BY_TYPE[kind]} with {_WORDS_BY_TYPE[kinds[0]]} by {function}"
                )
                self._report_refusal(text, _conversion_advice(kind))
            return _INT if function == "compareTo" else _BOOL
        if function in _STRING_TESTS and len(kinds) == 1:
            if kinds[0] in _SCALAR_TYPES - {"string"}:
                text = f"calls {function} with {_WORDS_BY_TYPE[kinds[0]]}"
                self._report_refusal(text, "write a text")
            return _BOOL
        methods = {"quantity": _QUANTITY_METHODS, "string": _STRING_METHODS}.get(target.kind, {})
        return methods.get(function, _ANY)

    def _type_of_macro(self, node: Call, scope: VariableTypes) -> _Type:
        names = [each.name for each in node.arguments[:-1] if isinstance(each, Identifier)]
        inner = {**scope, **dict.fromkeys(names, _ANY)}
        before, self._is_always_read = self._is_always_read, False
        for each in node.arguments:
            if not (isinstance(each, Identifier) and each.name in names):
                self.type_of(each, inner)
        self._is_always_read = before
        return _BOOL if node.function in _MACROS_OF_BOOL else _ANY

    def _check_method(self, function: str, kind: str, methods: Mapping[str, _Type]) -> None:
        """Check that a quantity or a text has the method: a misspelt one, or one of the other."""
        if function in methods or function in ("orValue", "format", "size"):
            return
        others = (
            _STRING_TESTS if kind == "quantity" else frozenset({*_ORDERING_METHODS, "asInteger"})
        )
        near = nearest_word(function[:63], methods)
        if function in others or near:
            advice = f"write {near}" if near else f"write one of {', '.join(sorted(methods))}"
            self._report_refusal(
                f"calls {function[:63]} of {_WORDS_BY_TYPE[kind]}, which does not exist", advice
            )

    def _check_method_of_attribute(self, target: _Type, function: str) -> None:
        kind = self._kind_of(target)
        wrong = kind in ("int", "bool", "semver") and function in _STRING_TESTS
        if wrong or (kind in ("int", "bool", "string") and function in _ORDERING_METHODS):
            text = f"calls {function} of {target.name}, which is {_WORDS_BY_TYPE[kind]}"
            self._report_fault(text, _advice(kind, kind))

    # What is said.

    def _kind_of(self, found: _Type) -> str:
        """The type of a value, for an attribute that of the driver's table."""
        if found.kind != "attribute":
            return found.kind
        driver = known.DRIVERS.get(found.domain or "")
        kind = driver.attributes.get(found.name or "", "") if driver else ""
        return {known.VERSION_TYPE: "semver", "": "any"}.get(kind, kind)

    def _report_refusal(self, text: str, advice: str) -> None:
        self._keep(SelectorFault(text, advice, is_refused=True))

    def _report_fault(self, text: str, advice: str) -> None:
        self._keep(SelectorFault(text, advice))

    def _keep(self, fault: SelectorFault) -> None:
        if len(self.faults) < _MAX_FAULTS and fault not in self.faults:
            self.faults.append(fault)


_STANDARD_ATTRIBUTES = known.DRIVERS[known.STANDARD_DOMAIN].attributes


def _may_be_namespace(name: str) -> bool:
    """Return whether `name`, which is no variable, may be the first part of a longer name.

    It is none if it is close to `device`.
    """
    return name != "device" and nearest_word(name[:63], ("device",)) is None


def _domain_in_parts(node: Select) -> tuple[str, list[str]] | None:
    """The map and the parts of a domain that is written as fields, such as `gpu.nvidia.com`."""
    names: list[str] = []
    root: Expression = node
    while isinstance(root, Select):
        names.append(root.field)
        root = root.operand
    names.reverse()
    if root != Identifier("device") or names[:1] not in (["attributes"], ["capacity"]):
        return None
    parts = names[1:]
    return (names[0], parts) if len(parts) > 1 and ".".join(parts) in known.DRIVERS else None


def _are_comparable(one: str, other: str) -> bool:
    return one == other or {one, other} <= _NUMBER_TYPES or {one, other} <= _MAP_TYPES


def _advice(one: str, other: str) -> str:
    if "quantity" in (one, other):
        return 'write .compareTo(quantity("40Gi")) >= 0'
    if "semver" in (one, other):
        return 'write .compareTo(semver("8.0.0")) >= 0'
    return f"write {_WORDS_BY_TYPE.get(one, 'a value')}"


def _conversion_advice(kind: str) -> str:
    return 'write semver("…")' if kind == "semver" else 'write quantity("…")'
