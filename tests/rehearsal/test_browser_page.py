"""The page on which the linter runs in a browser's tab, in Chromium."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.testkit.browser import PATIENCE
from tests.testkit.browser import browser as running_browser
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing
from tools import browser_engine

CASES = sorted((ROOT / "tests" / "cases").glob("*/*.yaml"))[::10]
LINT_ALL = """\
import io, json, sys
from gpuward.__main__ import main
reports = []
for text in json.load(sys.stdin):
    stdin, stdout = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(text.encode())), io.StringIO()
    main(["lint", "-o", "json", "--isolated", "-"])
    reports.append(json.loads(sys.stdout.getvalue()))
    sys.stdin, sys.stdout = stdin, stdout
json.dump(reports, sys.stdout)
"""
ASK_WORKER = """\
async (texts) => {
  const worker = new Worker("worker.mjs", { type: "module" });
  const answers = [];
  for (const text of texts) {
    const number = answers.length;
    answers.push(await new Promise((resolve) => {
      worker.onmessage = ({ data }) => { if (data.number === number) resolve(data); };
      worker.postMessage({ number, text });
    }));
  }
  return answers;
}
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, as a server of files gives it."""
    if not shutil.which("npm"):
        skip_missing("npm is not installed")
    home = tmp_path_factory.mktemp("site")
    runtime = browser_engine.install_runtime(tmp_path_factory.mktemp("runtime"))
    browser_engine.build(home / "try", runtime)
    handler = functools.partial(Quiet, directory=str(home))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/try/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser."""
    with running_browser() as running:
        yield running


def wait_for_findings(page: Page) -> None:
    expect(page.locator("#state")).to_contain_text("warning")


def test_the_findings_are_those_of_the_command(address: str, chromium: Browser) -> None:
    texts = [file.read_text(encoding="utf-8") for file in CASES]
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    answers = page.evaluate(ASK_WORKER, texts)
    page.close()
    done = subprocess.run(
        [sys.executable, "-c", LINT_ALL],
        cwd=ROOT,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    for file, answer, told in zip(CASES, answers, json.loads(done.stdout), strict=True):
        report = answer["report"]
        for one in (report, told):
            one["summary"].pop("seconds")
        assert report == told, file


def test_the_page_answers_without_a_network(address: str, chromium: Browser) -> None:
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.goto(address)
    wait_for_findings(page)
    expect(page.locator("#findings")).to_contain_text("visible-devices-env")
    expect(page.locator("#diff")).to_contain_text("NVIDIA_VISIBLE_DEVICES")
    page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    context.set_offline(True)  # what has been loaded serves from now on
    page.reload()
    wait_for_findings(page)
    page.locator("#manifest").fill("apiVersion: v1\nkind: Pod\nmetadata: {name: <b>x</b>}\nspec: [")
    expect(page.locator("#state")).to_contain_text("1 not evaluated")
    context.close()
    assert problems == []
    # Nothing leaves the tab.
    assert {url for url in asked if not url.startswith(address)} <= {"data:,"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_telephone(
    address: str, chromium: Browser, scheme: Literal["light", "dark"]
) -> None:
    size: ViewportSize = {"width": 390, "height": 800}
    context = chromium.new_context(color_scheme=scheme, viewport=size)
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#diff")).to_contain_text("NVIDIA_VISIBLE_DEVICES")
    found = Axe().run(page)
    width = page.evaluate("() => document.documentElement.scrollWidth")
    context.close()
    assert found.violations_count == 0, found.generate_report()
    assert width <= size["width"]
