"""Templates: every value is made printable and escaped as it is written."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cluster.gpus.tables import text as amount_text
from console.pages.gpus import NO_MODEL, OTHERS
from console.words import WORDS
from terminal import installed_version, printable

FOLDER = os.path.dirname(os.path.abspath(__file__))
_MAX_CHARACTERS = 300  # of one value: no API server bounds annotations and owners


class Templates:
    """The templates of the console."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(os.path.join(FOLDER, "templates")),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_visible,
        )
        self._environment.filters |= {"cut": cut, "amount": amount_text, "count_of": count_of}
        self._environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
        self._environment.filters["age"] = age
        self._environment.globals |= {
            "address": address,
            "version": installed_version() or "unknown",
            "no_model": NO_MODEL,
            "others": OTHERS,
            "words": WORDS,
        }

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the text of the template `name` with `values`."""
        return self._environment.get_template(name).render(values)


def _visible(value: Any) -> Any:
    """A value as a page may show it, before Jinja escapes it.

    The users who wrote an object have chosen its texts. Characters that are not visible, or that
    change the direction of a text, are shown by their number.
    """
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    return "\n".join(map(printable, value.split("\n")))


def safe(text: str) -> Markup:
    """A text of our own that is written as it is."""
    return Markup(text)  # noqa: S704  # no user has a part in it


def cut(value: str, length: int = _MAX_CHARACTERS) -> str:
    """`value` with no more characters than that."""
    return value if len(value) <= length else f"{value[: length - 1]}…"


def count_of(number: int, what: str, several: str = "") -> str:
    """The number with the noun `what`, which has the plural `several` or one with an s."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def age(time: str) -> str:
    """Return how long ago `time` was, such as `3 d`; empty if it is no time, or in the future."""
    try:
        since = datetime.datetime.fromisoformat(time)
        seconds = (datetime.datetime.now(tz=datetime.UTC) - since).total_seconds()
    except (TypeError, ValueError, OverflowError):  # a time without a zone is no time
        return ""
    if seconds < 0:
        return ""
    unit, length = next(((u, n) for u, n in _UNITS if seconds >= n), ("s", 1))
    return f"{int(seconds // length):,} {unit}"


def address(*steps: str, **query: str) -> str:
    """The address of a page of the console, such as `/pods/NAMESPACE/NAME`."""
    path = "/" + "/".join(quote(step, safe="") for step in steps)
    return f"{path}?{urlencode(query)}" if query else path
