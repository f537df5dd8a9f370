"""Write docs/images/html-report.png: the HTML report about the examples, in headless Chromium."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from lint import cli
from tests.testkit.browser import browser
from tests.testkit.paths import DOCS, ROOT

_IMAGE = DOCS / "images" / "html-report.png"


def main() -> int:
    """Write the picture; the exit status."""
    os.chdir(ROOT)
    page_text = io.StringIO()
    with contextlib.redirect_stdout(page_text):
        cli.main(["--output", "html", "examples/"])
    with tempfile.TemporaryDirectory() as folder, browser() as running:
        file = Path(folder) / "report.html"
        file.write_text(page_text.getvalue(), encoding="utf-8")
        with running.new_page(viewport={"width": 1000, "height": 900}) as page:
            page.goto(file.as_uri())
            page.screenshot(path=_IMAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
