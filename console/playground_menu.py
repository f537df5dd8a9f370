"""The examples of the playground."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "playground_examples")


class PlaygroundExample(NamedTuple):
    """A manifest to try; `title` is its first line, a comment."""

    name: str
    title: str
    text: str


@cache
def playground_examples() -> tuple[PlaygroundExample, ...]:
    """The examples in the order of the menu; the first is what the playground opens with."""
    found = []
    for file in sorted(os.listdir(_FOLDER)):
        with open(os.path.join(_FOLDER, file), encoding="utf-8") as opened:
            text = opened.read()
        name = file.removesuffix(".yaml").partition("-")[2]
        found.append(PlaygroundExample(name, text.partition("\n")[0].removeprefix("# "), text))
    return tuple(found)
