"""Tests that no object takes long, however large it is and whatever it has many of.

The work is counted in calls of functions, in Python and in C, so the clock does not matter. Texts
that a single call could be slow with are bounded.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rules.base.json_values import Path, find_value, value_at
from rules.engine.bounds import (
    LARGE_OBJECT_BYTES,
    MAX_TEXT_CHARACTERS,
    MAX_VALUES,
    oversized_reason,
)
from rules.finding import Action
from tests.testkit.admission.heavy_manifests import HEAVY, LENGTHS, heavy_manifest
from tests.testkit.admission.heavy_parts import commands, each, heavy_pod, host
from tests.testkit.admission.reviews import Admission, review
from tests.testkit.full_pod import FULL_POD

SIZE = 100_000  # bytes; with fewer, the bounds are not checked
# Decoding alone makes one call in C for all of it.
CALLS_PER_BYTE = 12
FEW_CALLS = 50_000
# Every rule, also those that are off by default.
POLICY = """\
extends: [strict]
profiles: [ack]
rules: {idle-gpu-holder: {action: audit}}
"""
DENY, WARN = Admission(POLICY), Admission(POLICY, mode=Action.WARN)


def calls_of(function: Callable[[], Any]) -> int:
    """Return how many functions `function` calls, directly and indirectly."""
    count = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def check_work(new: Any, old: Any = None) -> None:
    size = review(new, old).size_bytes
    for decide in (DENY.mutate, WARN.mutate, DENY.validate):
        calls = calls_of(partial(decide, new, old))
        assert calls < CALLS_PER_BYTE * size + FEW_CALLS


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", HEAVY)
def test_the_work_is_bounded_by_the_size(name: str, length: int) -> None:
    if manifest := heavy_manifest(name, SIZE, length):
        check_work(manifest)


def test_of_long_commands_only_a_part_is_searched() -> None:
    """All of it would take two seconds: a word of a command takes several calls."""
    text = "docker run " + "-e A=b " * 7_000
    few, many = (
        review(heavy_pod(*each(n, lambda i: commands(f"c{i}", text)), volumes=[host("/srv")]))
        for n in (2, 25)
    )
    calls = [calls_of(partial(DENY.mutate, given.object)) for given in (few, many)]
    assert calls[1] < 2 * calls[0]


def parts(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value inside `node` with its path."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for step, value in pairs:
        yield (*path, step), value
        if isinstance(value, dict | list):
            yield from parts(value, (*path, step))


def grown(path: Path, length: int) -> Any:
    """A pod of about `SIZE` bytes that has many of what is at `path` of a complete pod.

    A text becomes longer. A list gets more elements and an object more members, with the text
    `length` characters longer.
    """
    manifest = copy.deepcopy(FULL_POD)
    parent: Any = value_at(manifest, path[:-1])
    value, text = parent[path[-1]], "a" * length
    if isinstance(value, str):
        parent[path[-1]] = value * (SIZE // max(len(value), 1))
        return manifest
    each = value if isinstance(value, list) else list(value.items())
    count = SIZE // (len(json.dumps(each)) + length * len(each))
    if isinstance(value, list):
        parent[path[-1]] = [named(item, text, number) for number in range(count) for item in value]
    else:
        parent[path[-1]] = {
            f"{key}{text}{number}": item for number in range(count) for key, item in value.items()
        }
    return manifest


def named(item: Any, text: str, number: int) -> Any:
    """A copy of the list element `item`, whose name, if any, is unlike that of other elements."""
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return {**item, "name": f"{item['name']}{text}{number}"}
    return f"{item}{text}" if isinstance(item, str) else item


GROWING = [path for path, value in parts(FULL_POD) if isinstance(value, str | list | dict)]


@pytest.mark.slow
@pytest.mark.parametrize("path", GROWING, ids=lambda path: ".".join(map(str, path)))
def test_no_field_makes_the_work_grow_faster_than_the_object(path: Path) -> None:
    manifest = grown(path, 20)
    check_work(manifest)
    check_work(manifest, FULL_POD)
    check_work(FULL_POD, manifest)


@pytest.mark.parametrize("name", HEAVY)
def test_long_texts_are_refused_or_read_once(name: str) -> None:
    """Beyond `MAX_TEXT_CHARACTERS`, only texts that rules compare or cut once may be evaluated."""
    manifest = heavy_manifest(name, 30 * MAX_TEXT_CHARACTERS, 2 * MAX_TEXT_CHARACTERS)
    if manifest is not None:
        check_work(manifest)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (("metadata", "generateName"), "its field generateName of 100,000 characters"),
        (("spec", "containers", 0, "image"), "its field image of 100,000 characters"),
        (("spec", "volumes", 0, "hostPath", "path"), "its field path of 100,000 characters"),
        (("spec", "containers", 0, "env", 0, "name"), "with a name of 100,000 characters"),
    ],
)
def test_a_text_that_kubernetes_cannot_use_is_not_evaluated(path: Path, what: str) -> None:
    manifest = copy.deepcopy(FULL_POD)
    parent: Any = find_value(manifest, path[:-1])
    parent[path[-1]] = "a" * 100_000
    for decision in (DENY.mutate(manifest), DENY.validate(manifest)):
        assert not decision.allowed
        assert "[too-large] cannot evaluate this object because of" in decision.message
        assert what in decision.message
    assert what in WARN.validate(manifest).warnings[0]


def test_a_long_key_is_not_evaluated() -> None:
    manifest = copy.deepcopy(FULL_POD)
    manifest["metadata"]["annotations"] = {"a" * 100_000: "x"}  # type: ignore[index]
    assert "characters" in DENY.validate(manifest).message


def test_long_texts_that_no_rule_reads_are_fine() -> None:
    manifest = copy.deepcopy(FULL_POD)
    container = manifest["spec"]["containers"][1]  # type: ignore[index]
    container["command"] = ["sh", "-c", "x" * 200_000]
    container["env"] = [{"name": "A", "value": "y" * 100_000}]
    manifest["metadata"]["annotations"] = {"a": "x" * 200_000}  # type: ignore[index]
    assert "too-large" not in DENY.validate(manifest).rule_outcomes


@pytest.mark.parametrize("variables", [[], None, ""])
def test_an_empty_field_that_is_not_counted_counts_as_little(variables: Any) -> None:
    """Programs that write objects often leave null in it, which the API server takes away."""
    containers = [{"env": variables}] * (MAX_VALUES - 10)
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    assert not oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)


def test_an_object_with_too_many_faults_is_refused() -> None:
    variables = [{"name": f"CUDA_DEVICE_MEMORY_LIMIT_{n}", "value": "1"} for n in range(9_000)]
    share = {"limits": {"aliyun.com/gpu-mem": 1}}
    container = {"name": "c", "image": "x", "resources": share, "env": variables}
    manifest = {**FULL_POD, "spec": {"containers": [container]}}
    decision = DENY.validate(manifest)
    assert not decision.allowed
    assert "the rules take more than" in decision.message
    assert WARN.validate(manifest).outcome == "not-evaluated"


def test_an_update_of_an_oversized_pod_is_bounded_too() -> None:
    old = copy.deepcopy(FULL_POD)
    old["spec"]["volumes"][0]["hostPath"]["path"] = "/x" * 100_000  # type: ignore[index]
    decision = DENY.validate(FULL_POD, old)
    assert not decision.allowed
    assert "its field path" in decision.message


def test_an_oversized_pod_may_be_labelled() -> None:
    old = copy.deepcopy(FULL_POD)
    old["spec"]["volumes"][0]["hostPath"]["path"] = "/x" * 100_000  # type: ignore[index]
    new = copy.deepcopy(old)
    new["metadata"].setdefault("labels", {})["a"] = "b"  # type: ignore[attr-defined]
    assert DENY.validate(new, old).outcome == "clean"
    for counted in ("runai-gpu-group", "quota.scheduling.koordinator.sh/name", "app"):
        new["metadata"]["labels"] = {counted: "b"}  # type: ignore[index]
        assert DENY.validate(new, old).outcome == "denied", "GPUs are given or counted by it"
