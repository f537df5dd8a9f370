"""README.md shows what users read, and docs/README.md leads to every page."""

from __future__ import annotations

import re

import yaml

from tests.testkit.admission.reviews import Admission
from tests.testkit.paths import DOCS, ROOT

LINK = re.compile(r"\]\(([^)#]+)\)")


def test_the_refusal_in_the_readme_is_what_the_webhook_answers() -> None:
    text = (ROOT / "examples" / "bypass.yaml").read_text(encoding="utf-8")
    notebook = next(yaml.safe_load_all(text))
    message = Admission().validate(notebook).message
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f'webhook "deny.gpuward.io" denied the request: {message}\n' in readme


def test_the_index_of_the_documentation_leads_to_every_page() -> None:
    index = DOCS / "README.md"
    linked = LINK.findall(index.read_text(encoding="utf-8"))
    pages = {page.name for page in DOCS.glob("*.md")} - {index.name}
    folders = {str(page.relative_to(DOCS)) for page in DOCS.glob("*/README.md")}
    assert pages | folders <= set(linked)
