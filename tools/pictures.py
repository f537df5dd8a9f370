"""Draw the pictures in docs/images: `python -m tools.pictures`.

- An SVG of each terminal is drawn from what commands print about docs/example-cluster.yaml and
  examples/. With `--check`, only report those that are stale. The commands are real, and so is what
  they print, but for the seconds that they take.
- With `--report`, the picture of the HTML report about the examples is taken instead, and with
  `--console` those of the console about its demo, in headless Chromium.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from tools.generated_files import ROOT, write_or_compare

DOCS = ROOT / "docs"
CLUSTER = "example-cluster.yaml"
PICTURES = {
    "lint": ("gpuward lint --select bypass examples/bypass.yaml",),
    "gpus": (f"gpuward gpus -f {CLUSTER}",),
    "gpus-cards": (f"gpuward gpus -d t4-1 dra-1 -f {CLUSTER}",),
    "audit": (f"gpuward audit -f {CLUSTER}",),
    "doctor": (f"gpuward doctor -f {CLUSTER}",),
    "init": (f"gpuward init -f {CLUSTER}", "cat gpuward.yaml"),
}
_SECONDS = re.compile(r"\d+\.\d\d s$", re.MULTILINE)

_LETTER, _LINE, _MARGIN, _SIZE = 8.4, 20, 20, 14
_COLUMNS = 190  # longer lines go on in the next, as on a terminal
_BACKGROUND, _TEXT, _PROMPT = "#1e2430", "#d8dee9", "#8fa1b3"
_BARS = {"█": "#6cb6ff", "▒": "#e5a84b", "░": "#4a5568", "x": "#e06c75"}
_BAR = re.compile(r"[█▒░x]{10}|[█▒░]|x(?= unavailable)")
# Select Graphic Rendition, of ECMA-48: the parameters that gpuward's commands use.
_SGR = re.compile(r"\x1b\[([\d;]*)m")
_COLORS = {"31": "#e06c75", "32": "#98c379", "33": "#e5a84b", "36": "#6cb6ff", "2": _PROMPT}
_BOLD = "1"


def main(arguments: list[str]) -> int:
    """Draw the pictures, or compare them if `arguments` is `["--check"]`; the exit status."""
    if arguments == ["--report"]:
        take_report_picture()
        return 0
    if arguments == ["--console"]:
        take_console_pictures()
        return 0
    terminals = (
        (DOCS / "images" / f"{name}.svg", draw(list(_outputs(commands))))
        for name, commands in PICTURES.items()
    )
    return write_or_compare(terminals, arguments)


def take_report_picture() -> None:
    """Write docs/images/html-report.png."""
    from tests.testkit.browser import browser  # noqa: PLC0415  # only this needs a browser

    command = (sys.executable, "-m", "gpuward", "lint", "--output", "html", "examples/")
    report = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False).stdout
    with tempfile.TemporaryDirectory() as folder, browser() as running:
        file = Path(folder) / "report.html"
        file.write_bytes(report)
        with running.new_page(viewport={"width": 1000, "height": 900}) as page:
            page.goto(file.as_uri())
            page.screenshot(path=DOCS / "images" / "html-report.png")


def take_console_pictures() -> None:
    """Write docs/images/console-*.png, each of the upper part of a page."""
    from tests.testkit.browser import browser  # noqa: PLC0415  # only this needs a browser
    from tests.testkit.console.server import demo_state, serve  # noqa: PLC0415  # the same

    pages = {"gpus": "/", "why": "/pods/vision/annotate", "findings": "/findings?level=note"}
    pages |= {"decisions": "/decisions", "node": "/nodes/h100-2"}
    size = {"width": 1280, "height": 900}
    with (
        serve(demo_state()) as address,
        browser() as running,
        running.new_page(viewport=size) as page,  # type: ignore[arg-type]  # a plain dict will do
    ):
        for name, path in pages.items():
            page.goto(f"{address}{path}")
            page.screenshot(path=DOCS / "images" / f"console-{name}.png")
        page.goto(f"{address}/playground")
        page.evaluate("window.scrollTo(0, 520)")
        page.screenshot(path=DOCS / "images" / "console-playground.png")


def _outputs(commands: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each command, and what it prints; they run in one new folder, one after another."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "FORCE_COLOR": "1",
        "PYTHONUTF8": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(DOCS / CLUSTER, folder)
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        for command in commands:
            done = subprocess.run(
                command.split(),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=False,
            )
            # Python itself ends a program that failed with status 1.
            if done.returncode not in {0, 1, 3} or "Traceback" in done.stdout:
                raise SystemExit(f"{command}: status {done.returncode}: {done.stdout}")
            yield command, _SECONDS.sub("0.20 s", done.stdout)


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
