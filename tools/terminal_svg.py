"""An SVG of a terminal in which commands printed something."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

_LETTER, _LINE, _MARGIN, _SIZE = 8.4, 20, 20, 14
_COLUMNS = 190  # longer lines go on in the next, as on a terminal
_BACKGROUND, _TEXT, _PROMPT = "#1e2430", "#d8dee9", "#8fa1b3"
_BARS = {"█": "#6cb6ff", "▒": "#e5a84b", "░": "#4a5568", "x": "#e06c75"}
_BAR = re.compile(r"[█▒░x]{10}|[█▒░]|x(?= unavailable)")
# Select Graphic Rendition, of ECMA-48: the parameters that gpuward's commands use.
_SGR = re.compile(r"\x1b\[([\d;]*)m")
_COLORS = {"31": "#e06c75", "32": "#98c379", "33": "#e5a84b", "36": "#6cb6ff", "2": _PROMPT}
_BOLD = "1"


class _Letter(NamedTuple):
    text: str
    color: str
    is_bold: bool


def draw(outputs: list[tuple[str, str]]) -> str:
    """The SVG; `outputs` are commands, each with what it printed."""
    lines: list[list[_Letter]] = []
    for command, output in outputs:
        prompt = [_Letter(letter, _PROMPT, is_bold=False) for letter in "$ "]
        lines.append(prompt + [_Letter(letter, "", is_bold=False) for letter in command])
        for line in output.rstrip("\n").split("\n"):
            letters = list(_letters(line))
            lines += [letters[n : n + _COLUMNS] for n in range(0, len(letters) or 1, _COLUMNS)]
    width = max(map(len, lines)) * _LETTER + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    rows = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + _SIZE + row * _LINE}">{"".join(_spans(line))}</text>'
        for row, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img">\n'
        f"<title>{escape(outputs[0][0])}</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="{_SIZE}" fill="{_TEXT}">\n{rows}\n</g>\n</svg>\n'
    )


def _letters(line: str) -> Iterator[_Letter]:
    """The letters of a line, each with the colour that the terminal gives it, or a bar has."""
    color, is_bold = "", False
    plain = _SGR.sub("", line)
    in_bar = {place for bar in _BAR.finditer(plain) for place in range(*bar.span())}
    places = itertools.count()
    for index, part in enumerate(_SGR.split(line)):
        if index % 2:  # parameters of a control sequence
            codes = part.split(";")
            color = next((_COLORS[code] for code in codes if code in _COLORS), "")
            is_bold = _BOLD in codes
            continue
        for letter, place in zip(part, places, strict=False):
            yield _Letter(letter, _BARS[letter] if place in in_bar else color, is_bold)


def _spans(line: list[_Letter]) -> Iterator[str]:
    """The words of a line, each in its column; neighbours of one look together."""
    numbered = enumerate(line)
    for look, group in itertools.groupby(numbered, lambda item: (item[1][1:], item[1].text == " ")):
        (color, is_bold), is_blank = look
        found = list(group)
        if is_blank:
            continue
        column, text = found[0][0], "".join(letter.text for _, letter in found)
        place = f'x="{_MARGIN + column * _LETTER:g}" textLength="{len(text) * _LETTER:g}"'
        fill = f' fill="{color}"' if color else ""
        weight = ' font-weight="bold"' if is_bold else ""
        yield f"<tspan {place}{fill}{weight}>{escape(text)}</tspan>"
