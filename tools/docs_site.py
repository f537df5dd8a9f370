"""Hooks with which MkDocs makes a site from docs/, whose pages stay as GitHub shows them.

- The navigation is what docs/README.md and docs/rules/README.md list, below their headings.
- Links to files outside of docs/ lead to the repository, at the tag or branch that
  GPUWARD_DOCS_REF names, by default `main`.
- Headings have the anchors that they have on GitHub.
- For assistants, each page is also there as Markdown, under its name in docs/, and `llms.txt` lists
  these pages.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINTER_PAGE = ROOT / "build" / "try"  # which tools.browser_engine makes
REF = os.environ.get("GPUWARD_DOCS_REF", "main")
REPOSITORY = f"https://github.com/gpuward/gpuward/blob/{REF}"
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# Rows of the index, and of the list of rules.
_ROW = re.compile(r"^\| ([^|\n]+) \| \[[^\]]+\]\(([^)#]+)(#[^)]*)?\) \|$", re.MULTILINE)
_RULE_ROW = re.compile(
    r"^\| \[[\w-]+\]\(([\w-]+\.md)\) \|(?:[^|\n]+\|)+ ([^|\n]+) \|$", re.MULTILINE
)
_SUMMARY = """\
> Finds and fixes faults in Kubernetes manifests and pods that are about GPUs: a linter, a webhook
> for admission, and commands that look at a cluster."""
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Give the site its navigation."""
    config.nav = navigation()
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the repository."""
    return _with_links(markdown, (DOCS / page.file.src_path).parent)


def on_post_build(config: Any) -> None:
    """Write what assistants read beside the pages, and the page with the linter if it is there."""
    folder = Path(config.site_dir)
    if LINTER_PAGE.is_dir():
        shutil.copytree(LINTER_PAGE, folder / "try", dirs_exist_ok=True)
    for name, text in plain_pages().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "llms.txt").write_text(llms_text(), encoding="utf-8")


def plain_pages() -> dict[str, str]:
    """Each page as Markdown by its path in docs/. Links lead to such pages or to the repository."""
    pages = {}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        pages[page.relative_to(DOCS).as_posix()] = _with_links(text, page.parent)
    return pages


def llms_text() -> str:
    """The list of the pages that llmstxt.org describes, with links from the root of the site.

    What few readers need is under `Optional`.
    """
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    rules = (DOCS / "rules" / "README.md").read_text(encoding="utf-8")
    lines = [
        "# gpuward",
        "",
        _SUMMARY,
        "",
        "Links lead to Markdown.",
    ]
    for heading, text in _SECTION.findall(index):
        rows = _ROW.findall(text)
        pages = ((_title(name), name + part, what) for what, name, part in rows if _is_page(name))
        lines += ["", f"## {heading}", "", *(f"- [{a}]({b}): {c}" for a, b, c in pages)]
    lines += ["", "## Rules", ""]
    lines += (f"- [{name[:-3]}](rules/{name}): {what}" for name, what in _RULE_ROW.findall(rules))
    optional = [name for folder in ("vendors", "decisions") for name in _folder(folder)]
    lines += ["", "## Optional", "", *(f"- [{_title(name)}]({name})" for name in optional)]
    return "\n".join(lines) + "\n"


def _title(name: str) -> str:
    """The heading of a page."""
    found = _TITLE.search((DOCS / name).read_text(encoding="utf-8"))
    return found[1] if found else name


def navigation() -> list[Any]:
    """The pages by the headings of the index, and the rules by their families."""
    nav: list[Any] = ["README.md"]
    for heading, text in _SECTION.findall((DOCS / "README.md").read_text(encoding="utf-8")):
        pages = dict.fromkeys(name for name, _ in _LINK.findall(text) if _is_page(name))
        nav.append({heading: [*pages]})
    rules = (DOCS / "rules" / "README.md").read_text(encoding="utf-8")
    families: list[Any] = ["rules/README.md"]
    for heading, text in _SECTION.findall(rules):
        pages = dict.fromkeys(f"rules/{name}" for name, _ in _LINK.findall(text) if "/" not in name)
        families.append({heading: [*pages]})
    return [
        *nav,
        {"Rules": families},
        {"Vendors": _folder("vendors")},
        {"Decisions": _folder("decisions")},
    ]


def anchor(text: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", text.lower(), flags=re.UNICODE)
    return kept.strip().replace(" ", separator)


def _with_links(markdown: str, folder: Path) -> str:
    """The text of a page in `folder`, whose links out of docs/ lead to the repository."""
    return _LINK.sub(lambda match: _link(match, folder), markdown)


def _link(match: re.Match[str], folder: Path) -> str:
    target, fragment = match[1], match[2] or ""
    path = os.path.normpath(folder / target)
    if path.startswith(f"{DOCS}{os.sep}"):
        return match[0]
    return f"]({REPOSITORY}/{os.path.relpath(path, ROOT)}{fragment})"


def _is_page(name: str) -> bool:
    return not name.startswith("../") and name.endswith(".md") and name != "rules/README.md"


def _folder(name: str) -> list[str]:
    pages = sorted(page.name for page in (DOCS / name).glob("*.md"))
    return [f"{name}/{page}" for page in dict.fromkeys(["README.md", *pages])]
