"""Tests of the bounds on objects: what they count."""

from __future__ import annotations

from typing import Any

import pytest

from rules.engine.bounds import LARGE_OBJECT_BYTES, oversized_reason, steps_of
from rules.objects.pod import Pod
from rules.workloads.discovery import find_subjects
from tests.testkit.workload_table import PROFILE


def steps(**spec: Any) -> int:
    """The steps that a rule takes for a pod of one container."""
    container = {"name": "main", "image": "example/x", **spec.pop("container", {})}
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container], **spec}}
    (subject,) = find_subjects(manifest, PROFILE, "home")
    assert isinstance(subject, Pod)
    return steps_of(subject)


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "x"}] * 40},
        {"volumes": [{"name": "x"}] * 40},
        {"container": {"volumeMounts": [{"name": "x"}] * 40}},
        {"container": {"envFrom": [{"prefix": "x"}] * 40}},
        {"container": {"env": [{"name": "x"}] * 320}},
        {"container": {"resources": {"limits": {f"example/{n}": 1 for n in range(40)}}}},
        {"container": {"resources": {"claims": [{"name": "x"}] * 40}}},
    ],
    ids=lambda spec: next(iter(spec.get("container", spec))),
)
def test_every_few_elements_of_a_list_take_a_step(spec: dict[str, Any]) -> None:
    assert steps(**spec) == steps() + 10


def test_the_longest_legal_key_is_evaluated_and_a_longer_one_is_not() -> None:
    def reason(key: str) -> str:
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {key: "x"}}}
        return oversized_reason(manifest, LARGE_OBJECT_BYTES + 1)

    assert not reason("d" * 253 + "/" + "n" * 63)
    assert "of 318 characters" in reason("d" * 253 + "/" + "n" * 64)
