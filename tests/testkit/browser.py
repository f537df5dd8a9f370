"""A headless Chromium, or a browser made from it, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from tests.testkit.skipping import skip_missing

# As Debian, other distributions and Google call it. Playwright would download one of its own.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

PATIENCE = 60_000  # milliseconds: no test is about how long a page takes


def chromium() -> str:
    """The browser's program; empty if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), "")


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser. Skips the test if there is none."""
    program = chromium()
    if not program:
        skip_missing("Chromium is not installed")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        # Chromium's sandbox needs rights that containers lack; the pages are our own.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
