"""Documents and docstrings name only files, modules and members that exist."""

import ast
import importlib
import importlib.util
import itertools
import re
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from tests.testkit.paths import ROOT

_LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
FILES = [line for line in _LISTED.stdout.splitlines() if (ROOT / line).exists()]
PACKAGES = {file.split("/")[0] for file in FILES if file.endswith("/__init__.py")} - {"gpuward"}
# Rule pages and vendor pages are generated. They quote paths of other projects.
DOCUMENTS = [
    file
    for file in FILES
    if re.fullmatch(r"(README|CONTRIBUTING|docs/[\w-]+|docs/decisions/[\w-]+)\.md", file)
]
MODULES = [
    file for file in FILES if file.endswith(".py") and file.split("/")[0] in PACKAGES - {"tests"}
]
IN_A_USERS_REPOSITORY = {"tools/gpuward"}

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*")
_DOTTED = re.compile(r"[a-z_]+(\.\w+)+(?=$|\()")
_IN_CHART = yaml.safe_load((ROOT / "charts/gpuward/values.yaml").read_text(encoding="utf-8"))


def _is_missing_path(text: str) -> bool:
    path = text.rstrip("/")
    if not _PATH.fullmatch(path) or path in IN_A_USERS_REPOSITORY:
        return False
    if path.endswith(".py"):
        return not any(f"/{file}".endswith(f"/{path}") for file in FILES)
    is_ours = "/" in path and path.split("/")[0] in PACKAGES | {"docs", "charts", "examples"}
    return is_ours and not (ROOT / path).exists()


def _is_missing_name(text: str) -> bool:
    """Return whether `text` is a dotted name of gpuward's packages that cannot be imported."""
    found = _DOTTED.match(text)
    first, *rest = found[0].split(".") if found else ("",)
    if first not in PACKAGES or _is_value_of_chart(first, *rest):
        return False
    name, members = first, rest
    while members and importlib.util.find_spec(f"{name}.{members[0]}"):
        name, members = f"{name}.{members[0]}", members[1:]
        if not hasattr(importlib.import_module(name), "__path__"):
            break
    value: object = importlib.import_module(name)
    for member in members:
        annotations = getattr(value, "__annotations__", {})
        if not hasattr(value, member):
            return member not in annotations
        value = getattr(value, member)
    return False


def _is_value_of_chart(*keys: str) -> bool:
    value: object = _IN_CHART
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _docstrings(file: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_names_only_what_exists(document: str) -> None:
    quoted = _CODE.findall((ROOT / document).read_text(encoding="utf-8"))
    assert [text for text in quoted if _is_missing_path(text) or _is_missing_name(text)] == []


def test_docstrings_name_only_modules_that_exist() -> None:
    missing = [
        (file, text)
        for file in MODULES
        for docstring in _docstrings(file)
        for text in _CODE.findall(docstring)
        if _is_missing_name(text)
    ]
    assert missing == []


def _without_docstrings(file: str) -> Iterator[ast.AST]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (node for node in ast.walk(tree) if id(node) not in alone)


PRINTING = [f for f in MODULES if f.split("/")[0] not in {"tools", "benchmarks", "examples"}]


def test_messages_name_pages_by_addresses() -> None:
    """Those who install gpuward do not have the files of the repository."""
    texts = [
        (file, node.value)
        for file in PRINTING
        for node in _without_docstrings(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [each for each in texts if re.search(r"(?<![\w/])docs/[\w-]+\.md", each[1])] == []


def test_the_pages_that_messages_name_exist() -> None:
    named = [
        re.match(r"/(?:rules/)?[\w-]*", str(after.value))
        for file in PRINTING
        for node in _without_docstrings(file)
        if isinstance(node, ast.JoinedStr)
        for before, after in itertools.pairwise(node.values)
        if isinstance(before, ast.FormattedValue) and ast.unparse(before.value) == "DOCS_URL"
        if isinstance(after, ast.Constant)
    ]
    pages = {found[0] for found in named if found} - {"/rules/"}
    assert {page for page in pages if not (ROOT / f"docs{page}.md").is_file()} == set()
    assert "/install" in pages
