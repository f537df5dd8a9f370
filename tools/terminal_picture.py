"""Draw what a command prints on a terminal, as an SVG for the documentation.

    gpuward gpus --color always | python -m tools.terminal_picture 'gpuward gpus' > gpus.svg

The first argument is the command that the picture shows above its output.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from html import escape

_LETTER, _LINE, _MARGIN, _SIZE = 8.4, 20, 20, 14
_BACKGROUND, _TEXT, _PROMPT = "#1e2430", "#d8dee9", "#8fa1b3"
_COLORS = {"█": "#6cb6ff", "▒": "#e5a84b", "░": "#4a5568", "x": "#e06c75"}
_BAR = re.compile(r"[█▒░x]{10}|[█▒░]|x(?= unavailable)")


def picture(command: str, output: str) -> str:
    """The SVG of a terminal in which `command` printed `output`."""
    lines = output.rstrip("\n").split("\n")
    width = max(map(len, (*lines, f"$ {command}"))) * _LETTER + 2 * _MARGIN
    height = (len(lines) + 1) * _LINE + 2 * _MARGIN
    prompt = f'<tspan fill="{_PROMPT}">$ </tspan>{escape(command)}'
    texts = [prompt, *("".join(_spans(line)) for line in lines)]
    rows = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + _SIZE + row * _LINE}">{text}</text>'
        for row, text in enumerate(texts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img">\n'
        f"<title>{escape(command)}</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="{_SIZE}" fill="{_TEXT}">\n{rows}\n</g>\n</svg>\n'
    )


def _spans(line: str) -> Iterator[str]:
    """The words of a line, each in its column; those of bars in their colours."""
    in_bar = {place for bar in _BAR.finditer(line) for place in range(*bar.span())}
    colors = [_COLORS[letter] if n in in_bar else "" for n, letter in enumerate(line)]
    for word in re.finditer(r"\S+", line):
        column = word.start()
        for color, places in itertools.groupby(colors[word.start() : word.end()]):
            text = line[column : column + sum(1 for _ in places)]
            place = f'x="{_MARGIN + column * _LETTER:g}" textLength="{len(text) * _LETTER:g}"'
            fill = f' fill="{color}"' if color else ""
            yield f"<tspan {place}{fill}>{escape(text)}</tspan>"
            column += len(text)


if __name__ == "__main__":
    sys.stdout.write(picture(sys.argv[1], sys.stdin.read()))
