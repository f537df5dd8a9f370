"""Properties of patches: random edits of random layouts, and every fix of every case in them."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kubeyaml import Chunk, read
from kubeyaml.patch import Operation, PatchError, patch
from rules.finding import FixScope
from tests.testkit.cases import Case, cases
from tests.testkit.for_every_case import for_every_case
from tests.testkit.yaml_layouts import Layout

# A refusal with another reason is a mistake of the patch, which its own check has found.
REASONS = (
    "a comment stands",
    "the value to replace contains comments",
    "a template fills in this text",
    "it is the only entry of the document",
)
VALUES = [
    *(1, 1.5, True, None, "", "x", "yes", "two words", "a: b", "#no", "- x", "---", "multi\nline"),
    *("é\u2028\x85", [], {}, ["a", "b"], {"k": "v", "l": [{"m": 1}]}, [[1, [2]], {}]),
    *([{"name": "n"}], {"a/b~c": {"": 1}}),
]
KEYS = ["new", "a b", "nvidia.com/gpu", "1", '"', ""]
CASES = cases()


def layout(source: random.Random) -> Layout:
    return Layout(source, flow=source.choice((0, 0.2, 0.6, 1)), noise=source.choice((0, 0.1, 0.3)))


def written(source: random.Random, manifest: Any) -> str:
    """`manifest` as YAML or JSON, at times with a byte order mark or Windows line breaks."""
    if source.random() < 0.15:
        return json.dumps(manifest, indent=source.choice((None, 2, 4)))
    text = layout(source).text(manifest)
    text = text.replace("\n", "\r\n") if source.random() < 0.2 else text
    return "\ufeff" + text if source.random() < 0.1 else text


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from paths(child, (*path, key))


def random_edit(source: random.Random, manifest: Any) -> Operation:
    """A random operation, which is also made in `manifest`."""
    *parents, key = source.choice(list(paths(manifest)))
    parent, kind = manifest, source.choice(("add", "replace", "remove"))
    for step in parents:
        parent = parent[step]
    value = copy.deepcopy(source.choice(VALUES))
    if kind == "remove":
        del parent[key]
    elif kind == "replace":
        parent[key] = value
    elif isinstance(parent, list):
        parent.insert(key, value)
    else:
        key = source.choice(KEYS)
        parent[key] = value
    pointer = "".join(
        "/" + str(step).replace("~", "~0").replace("/", "~1") for step in (*parents, key)
    )
    operation = {"op": kind, "path": pointer, "value": copy.deepcopy(value)}
    return operation if kind != "remove" else {"op": kind, "path": pointer}


def comments(text: str) -> list[str]:
    """The numbers of the comments in a text, in order."""
    return re.findall(r"#(\d+)# ", text)


def comments_in(text: str, pointer: str) -> list[str]:
    """The comments on the lines of the entry at `pointer`, which may go with it."""
    document = read(Chunk(text))
    assert document is not None
    place: Any = document.place
    for step in pointer.split("/")[1:]:
        inside = place.inside
        key = step.replace("~1", "/").replace("~0", "~")
        place = inside[int(key) if isinstance(inside, list) else key]
    start = place.start if place.key_start < 0 else place.key_start
    end = text.find("\n", place.end)
    return comments(text[start : end if end >= 0 else len(text)])


def refuse_unknown_reasons(error: PatchError, number: int) -> None:
    if not error.reason.startswith(REASONS):
        raise AssertionError(f"{number}: {error.reason} {error.path}") from error


def check_random_edit(seed: int) -> bool:
    """Return whether a random edit was made.

    Fail if it was made wrongly, or refused for no reason.
    """
    source = random.Random(seed)  # noqa: S311  # not for secrets
    manifest = json.loads(json.dumps(source.choice(CASES).manifest))
    text = written(source, manifest)
    operation = random_edit(source, manifest)
    try:
        new = patch(text, [operation], manifest).text
    except PatchError as error:
        refuse_unknown_reasons(error, seed)
        return False
    # A removed entry takes its comments along, and so do the entries that a new collection lacks.
    value = operation.get("value")
    removes = {"add": False, "remove": True, "replace": value and isinstance(value, dict | list)}
    may_go = comments_in(text, operation["path"]) if removes[operation["op"]] else []
    kept = [comment for comment in comments(text) if comment not in may_go]
    assert [comment for comment in comments(new) if comment not in may_go] == kept, seed
    return True


@pytest.mark.parametrize("part", range(4))
def test_random_edits_are_exact_or_refused(part: int) -> None:
    made = sum(check_random_edit(seed) for seed in range(part * 100, part * 100 + 100))
    assert made > 75


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_random_edits_are_exact_or_refused(part: int) -> None:
    for seed in range(10_000 + part * 1_000, 10_000 + (part + 1) * 1_000):
        check_random_edit(seed)


@for_every_case(CASES)
def test_every_fix_can_be_made_in_every_layout(case: Case) -> None:
    manifest = json.loads(json.dumps(case.manifest))
    rules = case.rules
    unsafe = (active._replace(fix_scope=FixScope.ALL) for active in rules.rules)
    fixed = case.fix(manifest, rules._replace(rules=tuple(unsafe)))
    if not fixed.operations:
        return
    for number in range(3):
        source = random.Random(f"{case.name} {number}")  # noqa: S311
        text = written(source, manifest)
        try:
            patched = patch(text, fixed.operations, fixed.manifest)
        except PatchError as error:
            refuse_unknown_reasons(error, number)
            continue
        again = case.fix(patched.document.value, rules)
        assert again.operations == []
