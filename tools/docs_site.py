"""Hooks with which MkDocs makes a site from docs/, whose pages stay as GitHub shows them.

- The navigation is what docs/README.md and docs/rules/README.md list, below their headings.
- Links to files outside of docs/ lead to the repository, at the tag or branch that
  GPUWARD_DOCS_REF names, by default `main`.
- Headings have the anchors that they have on GitHub.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REF = os.environ.get("GPUWARD_DOCS_REF", "main")
REPOSITORY = f"https://github.com/gpuward/gpuward/blob/{REF}"
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Give the site its navigation."""
    config.nav = navigation()
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the repository."""
    folder = (DOCS / page.file.src_path).parent
    return _LINK.sub(lambda match: _link(match, folder), markdown)


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
