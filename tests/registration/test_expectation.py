"""Tests of reading the webhook configurations that a release should have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.api.errors import ConfigurationKind, ConfigurationRef
from cluster.webhooks.comparison import MAX_BYTES, ExpectationError, read_expectation

WEBHOOK = {"name": "deny.gpuward.io", "clientConfig": {"url": "https://127.0.0.1"}}
BAD = "ValidatingWebhookConfiguration: a namespaceSelector is no label selector"


def manifest(kind: str = "Validating", **fields: Any) -> dict[str, Any]:
    made = {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "gpuward"}}
    return {**made, "webhooks": [WEBHOOK], **fields}


def write(folder: Path, text: str) -> str:
    file = folder / "expected"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_it_finds_the_configurations_in_manifests_and_lists(tmp_path: Path) -> None:
    both = [manifest("Mutating"), manifest()]
    pod = {"kind": "Pod", "metadata": {"name": "x"}}
    as_list = json.dumps({"kind": "List", "items": [*both, pod]})
    as_stream = "\n---\n".join(["# a comment", *map(json.dumps, [pod, *both]), "", "text"])
    refs = [ConfigurationRef(kind, "gpuward") for kind in ConfigurationKind]
    expected = dict(zip(refs, both, strict=True))
    assert read_expectation(write(tmp_path, as_list)) == expected
    assert read_expectation(write(tmp_path, as_stream)) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it contains no webhook configuration"),
        ("- a\n- kind: Pod\n", "it contains no webhook configuration"),
        ("a: [", "while parsing a flow node"),
        (json.dumps(manifest(metadata={})), "ValidatingWebhookConfiguration: a name or a client"),
        (json.dumps(manifest(webhooks=[{"name": "x"}])), "a name or a clientConfig is missing"),
        (json.dumps(manifest(webhooks=["x"])), "a name or a clientConfig is missing"),
        ("kind: [a]", "it contains no webhook configuration"),
        ("items: 5", "it contains no webhook configuration"),
        *(
            (json.dumps(manifest(webhooks=[{**WEBHOOK, "namespaceSelector": selector}])), BAD)
            for selector in (
                *("text", [1, 2], {"matchExpressions": "text"}, {"matchExpressions": [5]}),
                {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": [["b"]]}]},
            )
        ),
        ("[" * 100_000, ""),
        ("#" * (MAX_BYTES + 1), "it is longer than"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, text: str, error: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ExpectationError, match=r"^[^\n]*$") as refused:
        read_expectation(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert error in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"no-file: no such file"):
        read_expectation(str(tmp_path / "no-file"))
