"""The words about amounts of resources.

API servers have refused by then what is no whole number, a request without a limit, and a request
that differs from its limit. So the limit alone is read.
"""

from rules.in_process.requests import facts_of
from rules.in_process.statement import cel
from rules.placement.node_labels import GPU_COUNT
from rules.placement.selected_cards import MAX_DIGITS_OF_COUNT

_LIMITS = "c.raw.?resources.?limits.orValue({})"
PLACEHOLDER = r"\$[A-Za-z0-9_{(]|\{\{|^[A-Z][A-Z0-9_]*_[A-Z0-9_]*$|^<[^<>]*>$"
"""Fits a text that `rules.base.quantity.parse` takes for a placeholder."""


def limit_of(name: str, container: str = "c") -> str:
    """The limit of the resource `name`, an optional text."""
    return f"{container}.raw.?resources.?limits[?{cel(name)}]"


def asks_for(name: str, container: str = "c") -> str:
    """Whether the limit of the resource `name` is more than zero."""
    return f'{limit_of(name, container)}.orValue("0") != "0"'


def number_of(name: str, container: str = "c") -> str:
    """The limit of the resource `name` as a number; 0 if there is none, or if it is too large."""
    return f"[{limit_of(name, container)}.orValue('0')].map(t, {whole_number('t')})[0]"


def whole_number(amount: str) -> str:
    """The CEL `amount` as a number; 0 if it has more than 63 bits."""
    return f"(quantity({amount}).isInteger() ? quantity({amount}).asInteger() : 0)"


def is_more_than(amount: str, number: str) -> str:
    """Whether the CEL `amount` is more than the CEL `number`."""
    return f"quantity({amount}).isGreaterThan(quantity(string({number})))"


def has_placeholder(text: str) -> str:
    """`has_placeholder` of the CEL `text`."""
    return f'({text}.contains("$") || {text}.contains("{{{{"))'


def cards_of_share() -> str:
    """`rules.placement.selected_cards.cards_of_share`."""
    digits = cel(f"^[0-9]{{1,{MAX_DIGITS_OF_COUNT}}}$")
    return (
        f'[$metadata.?labels[?{cel(GPU_COUNT)}].orValue("1")]'
        f".map(t, t.matches({digits}) && int(t) > 0 ? int(t) : 1)[0]"
    )


def names_device(prefix: str) -> str:
    """Whether a GPU resource in the limits, perhaps with the amount zero, begins with `prefix`."""
    return f"({_LIMITS}.exists(n, n.startsWith({cel(prefix)}) && {facts_of('n')}.size() > 0))"


def names_only_devices(prefix: str) -> str:
    """Whether every GPU resource in the limits begins with `prefix`."""
    return f"({_LIMITS}.all(n, n.startsWith({cel(prefix)}) || {facts_of('n')}.size() == 0))"
