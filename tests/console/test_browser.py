"""Tests of the console in a browser: by what a person sees and does."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, ViewportSize, expect

from cluster.api.reviews import Identity
from cluster.source.objects import PODS
from console.access import Access
from console.cli import main
from console.state import ClusterState
from tests.testkit.browser import browser as running_browser
from tests.testkit.console.server import demo_objects, demo_state, live_state, serve
from tests.testkit.paths import ROOT

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/?namespace=vision",
    "/nodes/h100-2",
    "/nodes/l40s-6",
    "/pods/training/pretrain-big",
    "/findings?level=note",
    "/findings?as=deny",
    "/owners?level=note",
    "/decisions",
    "/doctor",
    "/rules",
    "/rules/visible-devices-env",
    "/playground",
    "/no-such-page",
)
BYPASS = (ROOT / "examples" / "bypass.yaml").read_text(encoding="utf-8")
USER = "alice"
PHONE = ViewportSize(width=390, height=844)
COLLISIONS = """() => {
  const found = [];
  for (const row of document.querySelectorAll("tr, dl > div, .total, .legend")) {
    const boxes = [...row.children].map((one) => [one, one.getBoundingClientRect()]);
    for (const [one, a] of boxes) {
      for (const [other, b] of boxes) {
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (one !== other && width > 1 && height > 1) found.push(row.innerText);
      }
    }
    for (const [one, box] of boxes) {
      const style = getComputedStyle(one);
      const isWide = one.scrollWidth > one.clientWidth + 1 && style.overflowX === "visible";
      if (isWide && box.width > 1 && style.display !== "inline") found.push(one.innerText);
    }
  }
  return found;
}"""
WIDE, NARROW = ViewportSize(width=1360, height=900), ViewportSize(width=360, height=780)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(demo_state()) as found:
        yield found


class Complaints(list[str]):
    """The complaints of a browser: refusals by the policy, errors of scripts, other hosts."""

    def listen(self, page: Page, own: str) -> None:
        page.on("console", lambda message: self.append(message.text))
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith(own) else self.append(one.url))


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    complaints = Complaints()
    with browser.new_context(viewport=WIDE, base_url=address) as context:
        opened = context.new_page()
        complaints.listen(opened, address)
        yield opened
    assert complaints == []


def test_a_person_finds_the_stranded_cards_and_who_has_the_node(page: Page) -> None:
    page.goto("/")
    page.get_by_label("With GPUs that are").select_option("stranded")
    page.get_by_role("button", name="Apply").click()
    nodes = page.locator(".nodes tbody tr")
    expect(nodes).to_have_count(2)
    row = nodes.filter(has_text="h100-2")
    expect(row).to_contain_text("4 stranded")
    assert "4 stranded" in (row.locator("svg").get_attribute("aria-label") or "")
    row.get_by_role("link", name="h100-2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Node h100-2")
    expect(page.get_by_role("row").filter(has_text="tokenize")).to_contain_text("2 nvidia.com/gpu")


def test_a_person_finds_why_a_pod_is_pending(page: Page) -> None:
    page.goto("/")
    pending = page.get_by_role("region", name=re.compile("^Pending"))
    expect(pending).to_contain_text("does not tolerate the taint dedicated=vision:NoSchedule")
    pending.get_by_role("link", name="vision/annotate").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why is annotate Pending?")
    nearest = page.locator("table.refusing tbody tr").first
    expect(nearest).to_contain_text("2 nodes · NVIDIA-L40S")
    expect(nearest).to_contain_text("Add a toleration for dedicated=vision:NoSchedule")


def test_a_person_follows_a_finding_to_its_fix(page: Page) -> None:
    page.goto("/findings?level=note")
    page.get_by_role("link", name="1 note of toleration-default in vision").click()
    expect(page.locator("article")).to_have_count(1)
    page.locator("article").get_by_role("link", name="toleration-default").click()
    expect(page.locator(".diff .plus").first).to_contain_text("tolerations:")
    page.get_by_role("link", name="All about toleration-default").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("toleration-default")


def test_a_person_finds_why_a_pod_was_refused(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Decisions").click()
    page.get_by_label("Outcome").select_option("denied")
    page.get_by_role("button", name="Apply").click()
    decision = page.locator("article").filter(has_text="notebook-6c9d4-")
    expect(decision).to_contain_text("of ReplicaSet notebook-6c9d4")
    expect(decision).to_contain_text("/spec/containers/0/env/0/value")
    decision.get_by_role("link", name="visible-devices-env").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("visible-devices-env")


def test_a_person_pastes_a_manifest_and_copies_its_fix(browser: Browser, address: str) -> None:
    with browser.new_context(base_url=address, viewport=WIDE) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto("/playground")
        page.get_by_label("Manifest").fill(BYPASS)
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("Pod research/notebook")  # no longer of the example
        expect(verdict).to_contain_text('admission webhook "deny.gpuward.io" denied the request')
        marks = verdict.locator(".mark.error")
        expect(marks.first).to_contain_text("visible-devices-env")
        expect(verdict.locator(".line").nth(12)).to_have_class(re.compile("at-fault"))
        verdict.get_by_role("button", name="Copy").click()
        expect(verdict.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "value: void" in copied
        assert copied != BYPASS


def test_a_person_drops_a_file_and_sees_where_it_would_run(page: Page) -> None:
    page.goto("/playground")
    data = page.evaluate_handle(
        """text => {
          const data = new DataTransfer();
          data.items.add(new File([text], "pod.yaml"));
          return data;
        }""",
        BYPASS,
    )
    page.get_by_label("Manifest").dispatch_event("drop", {"dataTransfer": data})
    expect(page.get_by_label("Manifest")).to_have_value(BYPASS)
    expect(page.get_by_role("heading", name="Where it would run")).to_be_visible()
    expect(page.locator("#verdict")).to_contain_text("can take it")
    large = page.evaluate_handle(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["x".repeat(300000)], "large.yaml"));
          return data;
        }"""
    )
    page.get_by_label("Manifest").dispatch_event("drop", {"dataTransfer": large})
    expect(page.locator("#said")).to_contain_text("large.yaml is too large")
    expect(page.get_by_label("Manifest")).to_have_value(BYPASS)


def test_the_playground_keeps_its_text_on_reload_and_a_menu_replaces_it(page: Page) -> None:
    page.goto("/playground")
    manifest = page.get_by_label("Manifest")
    expect(manifest).to_have_value(re.compile("name: notebook"))
    expect(page.locator("#verdict")).to_contain_text("denied the request")
    manifest.fill(BYPASS)
    page.locator("[name=mode]").select_option("warn")
    page.reload()
    expect(manifest).to_have_value(BYPASS)
    expect(page.locator("[name=mode]")).to_have_value("warn")
    expect(page.locator("#verdict")).to_contain_text("Pod research/fine-tuning")
    page.get_by_role("link", name="GPUs").click()
    page.get_by_role("link", name="Playground").click()
    expect(manifest).to_have_value(BYPASS)
    page.get_by_label("Example").select_option(label="A RayCluster whose head also asks for a card")
    expect(manifest).to_have_value(re.compile("kind: RayCluster"))
    expect(page.locator("#verdict")).to_contain_text("pods of RayCluster research/ray")
    page.reload()
    expect(manifest).to_have_value(re.compile("kind: RayCluster"))


def test_a_word_explains_itself_on_a_click(page: Page) -> None:
    page.goto("/")
    meaning = page.locator("#word-stranded")
    expect(meaning).to_be_hidden()
    page.get_by_role("button", name="Stranded").first.click()
    expect(meaning).to_be_visible()
    expect(meaning).to_contain_text("no CPU, memory or room for a pod left")
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()


def test_a_person_searches_the_rules_on_a_page_that_is_short(
    browser: Browser, address: str
) -> None:
    with browser.new_context(base_url=address, viewport=NARROW) as context:
        page = context.new_page()
        page.goto("/rules")
        assert page.evaluate("document.documentElement.scrollHeight") < 3_000
        page.get_by_role("searchbox").fill("bypass variable")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("link", name="visible-devices-envfrom")).to_be_visible()
        expect(page.locator("main")).to_contain_text(re.compile(r"and \d+ rules hidden"))
        page.goto("/rules")
        page.locator("summary").filter(has_text="bypass").click()
        expect(page.get_by_role("link", name="visible-devices-envfrom")).to_be_visible()


def test_nothing_collides_in_a_narrow_window(browser: Browser, address: str) -> None:
    """No two texts of a page share a place, and a number has a space before what follows."""
    with browser.new_context(base_url=address, viewport=PHONE) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(path)
            assert page.evaluate(COLLISIONS) == [], path
        page.goto("/")
        eight = page.get_by_role("columnheader", name="8 cards")
        assert eight.evaluate("one => one.getBoundingClientRect().right") <= PHONE["width"]
        expect(page.locator(".nodes .left").first).to_have_text(re.compile(r"^96 CPU\s+1024Gi$"))


def test_a_link_has_the_manifest_where_the_server_does_not_see_it(
    browser: Browser, address: str
) -> None:
    with browser.new_context(base_url=address) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto("/playground")
        page.get_by_label("Manifest").fill(BYPASS)
        page.locator("[name=mode]").select_option("warn")
        page.get_by_role("button", name="Copy link").click()
        expect(page.locator("#said")).to_have_text("Copied.")
        link = page.evaluate("navigator.clipboard.readText()")
        colleague = context.new_page()
        asked: list[str] = []
        colleague.on("request", lambda request: asked.append(request.url))
        colleague.goto(link)
        expect(colleague.get_by_label("Manifest")).to_have_value(BYPASS)
        expect(colleague.locator("[name=mode]")).to_have_value("warn")
        expect(colleague.locator("#verdict")).to_contain_text("visible-devices-env")
        assert not [url for url in asked if "visible" in url.partition("#")[0].lower()]


def test_without_a_script_the_pages_and_the_playground_work(browser: Browser, address: str) -> None:
    with browser.new_context(java_script_enabled=False, base_url=address) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(path)
            assert page.locator("h1").count() == 1
        page.goto("/playground")
        page.get_by_label("Manifest").fill(BYPASS)
        page.get_by_role("button", name="Check").click()
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("Pod research/notebook")  # no longer of the example
        expect(verdict).to_contain_text("denied the request")
        expect(page.get_by_label("Manifest")).to_have_value(BYPASS)


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main$"))  # a browser goes to a fragment later
    wanted = page.get_by_role("link", name="vision/annotate")
    for _ in range(60):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
        if wanted.evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Why is annotate Pending?")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, address: str, scheme: Any) -> None:
    axe = Axe()
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    with browser.new_context(base_url=address, viewport=WIDE, color_scheme=scheme) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(path)
            if path == "/playground":
                page.get_by_label("Manifest").fill(BYPASS)
                expect(page.locator("#verdict .mark").first).to_be_visible()
            found = axe.run(page, options={"runOnly": {"type": "tag", "values": tags}})
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_page_is_wider_than_the_window(browser: Browser, address: str, viewport: Any) -> None:
    with browser.new_context(base_url=address, viewport=viewport) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(path)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], path


def test_the_page_is_dark_where_the_user_wants_it(browser: Browser, address: str) -> None:
    colors = set()
    for scheme in ("light", "dark"):
        with browser.new_page(color_scheme=scheme) as page:
            page.goto(address)
            colors.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colors) == 2


def test_states_differ_without_colours(page: Page) -> None:
    page.goto("/")
    fills = {
        state: page.locator(f".cards .{state} rect").first.evaluate(
            "shape => [getComputedStyle(shape).fill, getComputedStyle(shape).strokeDasharray]"
        )
        for state in ("taken", "starting", "stranded", "free", "unavailable")
    }
    assert "hatch" in fills["stranded"][0]
    assert "cross" in fills["unavailable"][0]
    assert fills["starting"][1] != fills["free"][1]
    assert fills["taken"] != fills["free"]


def test_a_change_in_the_cluster_is_seen_without_a_reload(browser: Browser) -> None:
    state = demo_state()
    pod = next(raw for raw in demo_objects() if raw["metadata"]["name"] == "annotate")
    with serve(state) as address, browser.new_context(viewport=WIDE) as context:
        page = context.new_page()
        page.goto(address)
        expect(page.locator("#live")).to_have_text("live")
        page.get_by_role("link", name="vision/annotate").focus()
        other = page.get_by_role("link", name="search/rerank")
        other.focus()
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = "l40s-1"
        bound["status"] = {"phase": "Running"}
        state.put(PODS, bound)
        expect(page.get_by_role("link", name="vision/annotate")).to_have_count(0)
        expect(page.locator("tr").filter(has_text="l40s-1")).to_contain_text("7/8")
        assert other.evaluate("link => link === document.activeElement")


def test_many_nodes_are_grouped_then_opened(browser: Browser) -> None:
    with serve(large_state(1_000)) as address, browser.new_context(viewport=WIDE) as context:
        page = context.new_page()
        page.goto(address)
        assert page.locator(".nodes").count() == 0
        page.get_by_role("link", name="Show 500 nodes").first.click()
        expect(page.locator(".nodes tbody tr")).to_have_count(100)
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_role("navigation", name="Pages of nodes")).to_contain_text(
            re.compile("101.200 of 500 nodes")
        )


class OneTeam:
    """Stands for an API server, which here would take longer than the test: one token, one team."""

    def identity(self, token: str, audience: str) -> Identity | None:
        return Identity(f"{USER}@example.com") if audience and token == USER else None

    def may_list_pods(self, _identity: Identity, namespace: str) -> bool:
        return namespace == "vision"


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_person_signs_in_looks_and_signs_out(browser: Browser, viewport: Any) -> None:
    axe = Axe()
    complaints = Complaints()
    with (
        serve(demo_state(), Access(OneTeam())) as address,
        browser.new_context(base_url=address, viewport=viewport) as context,
    ):
        page = context.new_page()
        page.goto("/?namespace=vision")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert axe.run(page).violations_count == 0
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main")).to_contain_text("does not accept this token")
        complaints.listen(page, address)
        page.get_by_label("Token").fill(USER)
        page.keyboard.press("Enter")
        expect(page.get_by_role("banner")).to_contain_text(f"{USER}@example.com")
        expect(page).to_have_url(f"{address}/?namespace=vision")
        page.goto("/")
        expect(page.get_by_role("link", name="vision/annotate")).to_be_visible()
        expect(page.locator("#live")).to_have_text("live")
        for path in ("/", "/findings?level=note", "/decisions"):
            page.goto(path)
            assert "training" not in page.content(), path
        assert "gpuward-5f7d9c6b8" not in page.content()  # a pod of the webhook
        assert axe.run(page).violations_count == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert complaints == []
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def large_state(nodes: int) -> ClusterState:
    """Nodes of two models, each with a pod."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    objects: list[Any] = []
    for number in range(nodes):
        name = f"gpu-{number:04}"
        labels = {"nvidia.com/gpu.product": ("A100", "H100")[number % 2]}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        limits = {"nvidia.com/gpu": "4"}
        containers = [{"name": "main", "image": "i", "resources": {"limits": limits}}]
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number}", "namespace": "ml", "uid": str(number)},
                "spec": {"nodeName": name, "containers": containers},
                "status": {"phase": "Running"},
            }
        )
    return live_state(objects)


def test_the_exported_file_loads_nothing(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "gpus.html"
    assert main(["--demo", "--isolated", "--export", str(file)]) == 0
    complaints = Complaints()
    with browser.new_context(viewport=WIDE) as context:
        page = context.new_page()
        complaints.listen(page, file.as_uri())
        page.goto(file.as_uri())
        assert page.locator(".nodes tbody tr").count() > 10
        pending = page.locator("details").filter(has_text="vision/annotate:")
        pending.locator("summary").click()
        expect(pending.get_by_text("Add a toleration for dedicated=vision").first).to_be_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") == "flex"
    assert complaints == []
    assert "<script" not in file.read_text(encoding="utf-8")
