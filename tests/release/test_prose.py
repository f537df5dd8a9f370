"""Docstrings say what is returned or name the thing, and sentences say who acts."""

import ast
import re

import pytest

from tests.release.test_names_in_documents import MODULES
from tests.testkit.paths import ROOT

# The docstrings of these modules are the manual of their rule.
MANUALS = ("rules/catalog/", "rules/container_files/")
INDIRECT = re.compile(r"(What|Whether|Which|Who|How|Why|Where|The same)\b")
NO_ACTOR = re.compile(r"\b(nobody|whoever|somebody|anybody|everybody)\b", re.IGNORECASE)


def docstrings(file: str) -> dict[str, str]:
    """Return the docstrings of a module, by line and name."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {
        f"{node.lineno} {node.name}": ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    }
    return found if file.startswith(MANUALS) else found | {"1": ast.get_docstring(tree) or ""}


@pytest.mark.parametrize("file", MODULES)
def test_a_docstring_is_direct(file: str) -> None:
    found = docstrings(file)
    indirect = [place for place, text in found.items() if INDIRECT.match(text)]
    assert indirect == [], 'begin with "Return", "Yield" or the name of the thing'
    without_actor = [place for place, text in found.items() if NO_ACTOR.search(text)]
    assert without_actor == [], "say who acts"
