"""The values' schema says of a policy what the policy's own schema says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from kubeyaml import YamlError, read, split
from tests.testkit.chart.rendering import CHART
from tests.testkit.paths import ROOT
from tests.testkit.policy_mistakes import BEGINNING, MISTAKES

POLICY = Draft202012Validator(
    json.loads((ROOT / "policies" / "policy.schema.json").read_text(encoding="utf-8"))
)
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
IN_VALUES = Draft7Validator({**SCHEMA, "type": "object"})
GOOD = (
    "",
    "catalog: '0.10'\nonRuleError: deny\nworkloads: fix\nvoidEveryContainer: true\n",
    "rules: {absurd-count: {action: 'off', fix: false, options: {max_devices: 3}}}\n",
    "profiles: [gke, {name: own, extends: [nvidia], resources: {x.com/g: {vendor: x}}}]\n",
    "exceptions: [{rules: [absurd-count], reason: r, expires: 2030-06-15, match: {kind: [a*]}}]\n",
)


def mistakes() -> list[str]:
    """The texts that the policy's own tests call wrong, where they are YAML."""
    return [text for text, *_ in MISTAKES if value(text) is not None]


def value(text: str) -> Any:
    """What kubectl would read in a policy that goes on with `text`; None if it is no YAML."""
    try:
        (document,) = (read(chunk) for chunk in split(BEGINNING + text))
    except (YamlError, ValueError):
        return None
    return document.value if document else None


def in_values(policy: Any) -> bool:
    return IN_VALUES.is_valid({"policy": policy})


@pytest.mark.parametrize("text", GOOD)
def test_what_the_policy_s_schema_takes_is_taken(text: str) -> None:
    policy = value(text)
    assert POLICY.is_valid(policy)
    assert in_values(policy)
    assert in_values({k: v for k, v in policy.items() if k not in {"apiVersion", "kind"}})


@pytest.mark.parametrize("text", [text for text in mistakes() if not POLICY.is_valid(value(text))])
def test_what_the_policy_s_schema_refuses_is_refused(text: str) -> None:
    # Helm has read an unquoted `off` by then, and the chart writes it as the word again.
    assert in_values(value(text)) == (": off}" in text)


def test_names_that_the_policy_s_schema_does_not_know_are_refused_too() -> None:
    beyond = [t for t in mistakes() if POLICY.is_valid(value(t)) and not in_values(value(t))]
    for misspelt in ("visible-device-env", "nvidai", "absurd-cont"):
        assert any(misspelt in text for text in beyond)


@pytest.mark.parametrize("wrong", [{"apiVersion": "v1"}, {"kind": "Pod"}, {"apiVersion": None}])
def test_what_is_another_kind_of_file_is_refused(wrong: dict[str, Any]) -> None:
    assert not in_values(wrong)
