"""What the site has for assistants: llms.txt, and each page as Markdown."""

from __future__ import annotations

import os
import re

from rules.all_rules import ALL_RULES
from tests.testkit.paths import ROOT
from tools import docs_site

PAGES = docs_site.plain_pages()
TEXT = docs_site.llms_text()
ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#]+)(?:#[\w-]+)?\)(?:: .+)?$")


def test_the_list_has_the_form_that_assistants_know() -> None:
    title, empty, summary, *rest = TEXT.splitlines()
    assert (title, empty, summary[:2]) == ("# gpuward", "", "> ")
    headings = [line for line in rest if line.startswith("#")]
    assert all(line.startswith("## ") for line in headings)
    assert headings[-1] == "## Optional"
    entries = [line for line in rest if line.startswith("- ")]
    assert all(ENTRY.match(line) for line in entries)


def test_the_list_names_every_page_of_the_index_every_rule_and_every_decision() -> None:
    listed = set(re.findall(r"\]\(([^)#]+)", TEXT))
    assert listed <= {*PAGES}
    assert {f"rules/{rule.name}.md" for rule in ALL_RULES} <= listed
    assert {"mcp.md", "lint.md", "skills/gpu-manifests/SKILL.md", "vendors/dra.md"} <= listed
    decisions = {f"decisions/{file.name}" for file in (ROOT / "docs" / "decisions").glob("*.md")}
    assert decisions <= listed


def test_links_of_the_plain_pages_lead_to_plain_pages_and_files_of_the_site() -> None:
    assert PAGES["lint.md"].startswith("# ")
    for name, text in PAGES.items():
        for target in re.findall(r"\]\((?!https?:|#)([^)\s#]+)", text):
            path = os.path.normpath(os.path.join(os.path.dirname(name), target))
            assert path in PAGES or (ROOT / "docs" / path).exists(), f"{name}: {target}"
            assert not path.startswith(".."), f"{name}: {target}"
