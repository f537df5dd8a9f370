"""Tests of the HTML report: what it says, that it loads nothing, and how it is in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.testkit.browser import browser as running_browser
from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: ml}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
        - {name: OTHER, value: "1"}
"""
TAKER = POD.replace("NAME", "taker")
REQUESTER = """\
apiVersion: v1
kind: Pod
metadata: {name: requester, namespace: ml}
spec:
  containers:
    - {name: main, image: i, resources: {requests: {nvidia.com/gpu: 1}}}
"""
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;{{7*7}}\x1b[2J\u202e"
)
VOID_ELEMENTS = {"meta", "input"}


class Outline(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID_ELEMENTS:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.text[self._open[-1]] = self.text.get(self._open[-1], "") + data


def report(command: LintCommand, *arguments: str) -> str:
    outcome = command("--output", "html", *arguments)
    assert outcome.errors == ""
    return outcome.out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture
def page_file(command: LintCommand) -> Path:
    """The report about two files with faults of two levels."""
    command.write("deploy/taker.yaml", TAKER)
    command.write("deploy/requester.yaml", REQUESTER)
    command.write("deploy/hostile.json", json.dumps(hostile_pod(HOSTILE)))
    command.write("report.html", report(command, "--notes", "deploy"))
    return command.folder / "report.html"


def hostile_pod(text: str) -> dict[str, object]:
    environment = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": text}]
    spec = {"containers": [{"name": text, "image": text, "env": environment}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": text}, "spec": spec}


def test_a_finding_has_its_place_its_lines_and_its_rule(command: LintCommand) -> None:
    command.write("pod.yaml", TAKER)
    page = Outline(report(command, "pod.yaml"))
    assert page.text["mark"] == "all"
    (links,) = [attributes for tag, attributes in page.elements if tag == "a"]
    assert str(links["href"]).endswith("/docs/rules/visible-devices-env.md")
    lines = [a["data-line"] for tag, a in page.elements if tag == "span" and "data-line" in a]
    assert lines == ["8", "9", "10", "11"]
    assert '10:18 · Pod ml/taker · container "main"' in page.text["p"]
    assert page.text["title"] == "gpuward: 1 error"


def test_long_lines_are_cut(command: LintCommand) -> None:
    command.write("pod.yaml", json.dumps(hostile_pod("x" * 1_000_000)))
    assert len(report(command, "pod.yaml")) < 60_000


def test_nothing_found_is_said_and_so_is_nothing_to_find(command: LintCommand) -> None:
    command.write("pod.yaml", TAKER.replace("value: all", "value: void"))
    assert "Nothing found." in report(command, "pod.yaml")
    command.write("none.yaml", "a: 1\n")
    outcome = command("--output", "html", "none.yaml")
    assert "nothing to evaluate: no Kubernetes object" in outcome.out
    assert "Nothing found." not in outcome.out


def test_what_no_rule_reports_is_on_the_page(command: LintCommand) -> None:
    command.write("torn.yaml", "kind: [")
    suppressed = TAKER.replace("value: all", "value: all # gpuward: ignore[visible-devices-env] ok")
    command.write("pod.yaml", suppressed)
    command.write("chart/Chart.yaml", "name: c\n")
    command.write("chart/templates/pod.yaml", "{{ if }}\n")
    page = Outline(command("--output", "html", ".").out)
    assert "not evaluated: " in page.text["p"]
    assert page.text["summary"] == "Suppressed (1)Skipped (1)"
    assert "pod.yaml:10: visible-devices-env: ok" in page.text["li"]
    assert "chart/templates/pod.yaml: a chart's template" in page.text["li"]


def test_hostile_text_stays_text(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    page = Outline(text)
    tags = [tag for tag, _ in page.elements]
    assert (tags.count("script"), tags.count("style"), tags.count("img")) == (1, 1, 0)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in {"src", "style"}}
    assert HOSTILE.partition("\x1b")[0] in page.text["p"]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)


def test_only_the_own_style_and_script_are_allowed(page_file: Path) -> None:
    page = Outline(page_file.read_text(encoding="utf-8"))
    (policy,) = [
        str(attributes["content"])
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    for element in ("style", "script"):
        digest = hashlib.sha256(page.text[element].encode()).digest()
        assert f"{element}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none';")


def opened(page: Page, file: Path) -> list[str]:
    """Open the file; what the browser loads, and what it complains about."""
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(file.as_uri())
    return heard


def test_a_browser_loads_nothing_and_filters(browser: Browser, page_file: Path) -> None:
    with browser.new_page() as page:
        heard = opened(page, page_file)
        assert heard == [page_file.as_uri()]
        total = page.locator("article").count()
        assert page.locator("article:visible").count() == total
        page.get_by_label("Level").select_option("error")
        errors = page.locator("article.error").count()
        assert 0 < page.locator("article:visible").count() == errors < total
        assert page.get_by_role("status").inner_text() == f"{errors} of {total} shown"
        page.get_by_label("File").select_option("deploy/taker.yaml")
        assert page.locator("section:visible").count() == 1
        page.get_by_label("File").select_option("")
        page.get_by_label("Rule").select_option("request-only")
        assert page.locator("article:visible h3 a").all_inner_texts() == ["request-only"]
        page.get_by_label("Text").fill("no such text")
        assert page.locator("article:visible").count() == 0
        assert heard == [page_file.as_uri()]


def test_without_a_script_everything_is_there(browser: Browser, page_file: Path) -> None:
    with browser.new_page(java_script_enabled=False) as page:
        opened(page, page_file)
        assert page.locator("article:visible").count() == page.locator("article").count() > 2
        assert not page.locator("form").is_visible()


def test_the_page_is_dark_where_the_user_wants_it(browser: Browser, page_file: Path) -> None:
    colors = set()
    for scheme in ("light", "dark"):
        with browser.new_page(color_scheme=scheme) as page:
            opened(page, page_file)
            colors.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colors) == 2


def test_notes_that_are_not_shown_are_counted(command: LintCommand) -> None:
    request = TAKER.replace("env:", "resources: {limits: {nvidia.com/gpu: 1}}\n      env:")
    command.write("pod.yaml", request)
    text = command("pod.yaml").out
    number = int(re.search(r"(\d+) notes? \(--notes shows them\)", text)[1])  # type: ignore[index]
    assert f"<strong>{number}</strong><span>note" in report(command, "pod.yaml")
    assert "(--notes shows them)" in report(command, "pod.yaml")
    with_notes = report(command, "--notes", "pod.yaml")
    assert f"<strong>{number}</strong>" in with_notes
    assert "(--notes shows them)" not in with_notes
