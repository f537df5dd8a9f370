"""The policy in the values is the policy that the webhook reads."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kubeyaml import read, split
from policies.loading import default_policy, load_policy
from policies.policy import Policy
from policies.profiles import built_in_profiles
from rules.finding import Action
from tests.testkit.chart.rendering import (
    CHART,
    CI_VALUES,
    HELMS,
    of_kind,
    render,
    render_error,
)
from tests.testkit.paths import ROOT

BEGINNING = "apiVersion: gpuward.io/v1\nkind: Policy\n"
YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECURITY_RULE, OTHER_RULE = "visible-devices-env", "absurd-count"


def policy_file(*values: Path | str, helm: str = "helm3") -> str:
    """The policy file: the pods mount it and a copy as the fallback, and the hook checks it."""
    objects = of_kind(render(*values, helm=helm), "ConfigMap")
    policies = [m for m in objects if "-policy" in m["metadata"]["name"]]
    assert len(policies) == 3
    (text,) = {made["data"]["gpuward.yaml"] for made in policies}
    return str(text)


def rendered_policy(*values: Path | str, helm: str = "helm3") -> Policy:
    return load_policy(policy_file(*values, helm=helm), "gpuward.yaml")


def policy_content(text: str) -> Any:
    """The content of a policy file as the linter reads it, with the default profiles."""
    (document,) = (read(chunk) for chunk in split(text))
    assert document
    content: Any = document.value
    return {"profiles": ["nvidia"], **content}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", CI_VALUES)
def test_every_rendered_policy_is_valid(name: str, helm: str) -> None:
    policy = rendered_policy(CI_VALUES[name], helm=helm)
    expected = {"deny": "gke", "everything": "hami"}.get(name, "nvidia")
    assert policy.profile.name == expected


def test_helm_refuses_policies_that_the_webhook_would_refuse() -> None:
    with_exception = "policy: {exceptions: [{rules: [%s], match: {image: x}, reason: r}]}"
    assert "missing property 'namespace'" in render_error(with_exception % SECURITY_RULE)
    assert render(with_exception % OTHER_RULE)
    conflict = "the profiles hami and nvidia describe the same resource"
    assert conflict in render_error("profiles: [nvidia, hami]")
    assert conflict in render_error("policy: {profiles: [nvidia, hami]}")
    assert render("profiles: [gke, amd]")


def test_empty_values_give_the_default_policy() -> None:
    assert policy_content(policy_file()) == policy_content(BEGINNING)
    default = default_policy()
    assert rendered_policy()._replace(profile=default.profile) == default


def test_the_webhook_reads_the_policy_of_the_values() -> None:
    policy = rendered_policy(CI_VALUES["deny"])
    assert policy.catalog == "0.1"
    assert policy.rules["runtime-socket"].action is Action.DENY
    assert policy.rules["redundant-request"].action is Action.OFF
    (exception,) = policy.exceptions
    assert str(exception.expires) == "2031-03-31"
    assert exception.images == ("registry.example.com/nccl-tests:*",)
    assert rendered_policy(CI_VALUES["everything"]).void_every_container


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("off", ["off", "'off'"])
def test_off_needs_no_quotes(off: str, helm: str) -> None:
    policy = rendered_policy(f"policy: {{rules: {{{OTHER_RULE}: {{action: {off}}}}}}}", helm=helm)
    assert policy.rules[OTHER_RULE].action is Action.OFF


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("number", [1, 1_000_000, 10_000_000_000, 2**53])
def test_numbers_stay_integers(number: int, helm: str) -> None:
    options = f"{{options: {{max_devices: {number}}}}}"
    policy = rendered_policy(f"policy: {{rules: {{{OTHER_RULE}: {options}}}}}", helm=helm)
    assert policy.rules[OTHER_RULE].options == {"max_devices": number}


@pytest.mark.parametrize("profile", sorted(built_in_profiles()))
def test_every_built_in_profile_can_be_chosen(profile: str) -> None:
    assert rendered_policy(f"profiles: [{profile}]").profile.name == profile


def test_a_custom_profile_can_be_combined_with_built_in_ones() -> None:
    own = "profiles: [amd, {name: own, resources: {x.example.com/gpu: {vendor: x}}}]"
    assert rendered_policy(own).profile.name == "amd+own"
    assert "x.example.com/gpu" in rendered_policy(own).profile.resources


def test_profiles_may_be_in_the_policy_but_must_not_differ() -> None:
    assert rendered_policy("policy: {profiles: [gke]}").profile.name == "gke"
    assert rendered_policy("profiles: [gke]\npolicy: {profiles: [gke]}").profile.name == "gke"
    error = render_error("profiles: [eks]\npolicy: {profiles: [gke]}")
    assert "profiles and policy.profiles differ: give one of them" in error


@pytest.mark.parametrize("helm", HELMS)
def test_every_policy_file_of_the_manual_is_accepted_unchanged(helm: str) -> None:
    blocks = YAML_BLOCK.findall((ROOT / "docs" / "policy.md").read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        if "extends: [../" in block:  # a file, which only the linter reads
            continue
        text = block if block.startswith("apiVersion") else BEGINNING + block
        values = "policy:\n" + textwrap.indent(text, "  ")
        assert policy_content(policy_file(values, helm=helm)) == policy_content(text)
        assert rendered_policy(values, helm=helm)


def test_a_change_of_the_policy_alone_restarts_no_pod() -> None:
    """The pods reload the policy themselves, so nothing in their template may change with it."""
    before, after = render(), render(f"policy: {{rules: {{{SECURITY_RULE}: {{action: warn}}}}}}")
    changed = [
        one["metadata"]["name"] for one, other in zip(before, after, strict=True) if one != other
    ]
    # The policy itself, what the hook checks, and the fallback.
    assert sorted(changed) == ["gpuward-policy", "gpuward-policy-check", "gpuward-policy-fallback"]


def test_the_charts_copy_of_the_policy_schema_is_up_to_date() -> None:
    policy = json.loads((ROOT / "policies" / "policy.schema.json").read_text(encoding="utf-8"))
    values = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(values["definitions"]["policy"]["properties"]) == set(policy["properties"])
    assert set(policy["$defs"]) < set(values["definitions"])
