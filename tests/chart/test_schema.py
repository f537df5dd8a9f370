"""The values' schema accepts and refuses the same policies as the policy's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from kubeyaml import YamlError, read, split
from tests.testkit.chart.rendering import CHART
from tests.testkit.paths import ROOT
from tests.testkit.policy_mistakes import MISTAKES, POLICY_HEADER
from tools import chart_files

POLICY = Draft202012Validator(
    json.loads((ROOT / "policies" / "policy.schema.json").read_text(encoding="utf-8"))
)
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
IN_VALUES = Draft7Validator(SCHEMA)
VALID = (
    "",
    "catalog: '0.10'\nonRuleError: deny\nworkloads: fix\nvoidEveryContainer: true\n",
    "rules: {absurd-count: {action: 'off', fix: false, options: {max_devices: 3}}}\n",
    "profiles: [gke, {name: own, extends: [nvidia], resources: {x.com/g: {vendor: x}}}]\n",
    "exceptions: [{rules: [absurd-count], reason: r, expires: 2030-06-15, match: {kind: [a*]}}]\n",
    "gpuExceptions: [{rules: [absurd-count], namespaces: a*, longestDays: 30}]\n",
)


@pytest.mark.parametrize(
    ("key", "refusal"),
    [
        ("audit", "audit: Additional properties are not allowed ('new' was unexpected)"),
        ("", "the outermost keys: Additional properties are not allowed ('new' was unexpected)"),
    ],
)
def test_a_value_that_the_schema_lacks_is_reported(
    key: str, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(chart_files.refused_defaults()) == []
    values = json.loads(json.dumps(DEFAULTS))
    (values[key] if key else values)["new"] = 1
    (tmp_path / "values.yaml").write_text(json.dumps(values), encoding="utf-8")
    monkeypatch.setattr(chart_files, "VALUES", tmp_path / "values.yaml")
    (message,) = chart_files.refused_defaults()
    assert message == f"values.yaml: {refusal}: change it, or values.schema.json"


def mistakes() -> list[str]:
    """The wrong policies of the policy's own tests, where they are valid YAML."""
    return [text for text, *_ in MISTAKES if parsed_policy(text) is not None]


def parsed_policy(text: str) -> Any:
    """The parsed policy that ends with `text`; None if it is not valid YAML."""
    try:
        (document,) = (read(chunk) for chunk in split(POLICY_HEADER + text))
    except (YamlError, ValueError):
        return None
    return document.value if document else None


def is_valid_in_values(policy: Any) -> bool:
    return IN_VALUES.is_valid({**DEFAULTS, "policy": policy})


@pytest.mark.parametrize("text", VALID)
def test_policies_that_the_policy_schema_accepts_are_accepted(text: str) -> None:
    policy = parsed_policy(text)
    assert POLICY.is_valid(policy)
    assert is_valid_in_values(policy)
    assert is_valid_in_values({k: v for k, v in policy.items() if k not in {"apiVersion", "kind"}})


@pytest.mark.parametrize(
    "text", [text for text in mistakes() if not POLICY.is_valid(parsed_policy(text))]
)
def test_policies_that_the_policy_schema_refuses_are_refused(text: str) -> None:
    # Helm parses an unquoted `off` as false, and the chart writes it as `off` again.
    assert is_valid_in_values(parsed_policy(text)) == (": off}" in text)


def test_unknown_rule_and_profile_names_are_refused_too() -> None:
    refused_by_values_only = [
        t
        for t in mistakes()
        if POLICY.is_valid(parsed_policy(t)) and not is_valid_in_values(parsed_policy(t))
    ]
    for misspelt in ("visible-device-env", "nvidai", "absurd-cont"):
        assert any(misspelt in text for text in refused_by_values_only)


@pytest.mark.parametrize("fields", [{"apiVersion": "v1"}, {"kind": "Pod"}, {"apiVersion": None}])
def test_another_kind_of_file_is_refused(fields: dict[str, Any]) -> None:
    assert not is_valid_in_values(fields)
