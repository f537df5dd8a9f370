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
from policies.profiles import built_in
from rules.finding import Action
from rules.policy import Policy
from tests.testkit.chart.rendering import CHART, CI_VALUES, HELMS, refusal, rendered
from tests.testkit.paths import ROOT

BEGINNING = "apiVersion: gpuward.io/v1\nkind: Policy\n"
YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUARD, OTHER = "visible-devices-env", "absurd-count"


def text_of(*values: Path | str, helm: str = "helm3") -> str:
    """The file that the webhook's pods mount."""
    (made,) = (m for m in rendered(*values, helm=helm) if m["metadata"]["name"].endswith("-policy"))
    text: str = made["data"]["gpuward.yaml"]
    return text


def loaded(*values: Path | str, helm: str = "helm3") -> Policy:
    return load_policy(text_of(*values, helm=helm), "gpuward.yaml")


def means(text: str) -> Any:
    """What a policy file says, as the linter reads it, and the profiles that it leaves unsaid."""
    (document,) = (read(chunk) for chunk in split(text))
    assert document
    whole: Any = document.value
    return {"profiles": ["nvidia"], **whole}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", CI_VALUES)
def test_every_rendered_policy_is_taken(name: str, helm: str) -> None:
    policy = loaded(CI_VALUES[name], helm=helm)
    expected = {"deny": "gke", "everything": "hami"}.get(name, "nvidia")
    assert policy.profile.name == expected


def test_what_the_pods_would_refuse_is_refused_before() -> None:
    excepted = "policy: {exceptions: [{rules: [%s], match: {image: x}, reason: r}]}"
    assert "missing property 'namespace'" in refusal(excepted % GUARD)
    assert rendered(excepted % OTHER)
    rivals = "the profiles hami and nvidia describe the same resource"
    assert rivals in refusal("profiles: [nvidia, hami]")
    assert rivals in refusal("policy: {profiles: [nvidia, hami]}")
    assert rendered("profiles: [gke, amd]")


def test_who_says_nothing_has_the_default_policy() -> None:
    assert means(text_of()) == means(BEGINNING)
    default = default_policy()
    assert loaded()._replace(profile=default.profile) == default


def test_what_the_values_say_arrives() -> None:
    policy = loaded(CI_VALUES["deny"])
    assert policy.catalog == "0.1"
    assert policy.rules["runtime-socket"].action is Action.DENY
    assert policy.rules["redundant-request"].action is Action.OFF
    (exception,) = policy.exceptions
    assert str(exception.expires) == "2031-03-31"
    assert exception.images == ("registry.example.com/nccl-tests:*",)
    assert loaded(CI_VALUES["everything"]).void_every_container


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("off", ["off", "'off'"])
def test_off_needs_no_quotes(off: str, helm: str) -> None:
    policy = loaded(f"policy: {{rules: {{{OTHER}: {{action: {off}}}}}}}", helm=helm)
    assert policy.rules[OTHER].action is Action.OFF


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("number", [1, 1_000_000, 10_000_000_000, 2**53])
def test_numbers_stay_whole(number: int, helm: str) -> None:
    options = f"{{options: {{max_devices: {number}}}}}"
    policy = loaded(f"policy: {{rules: {{{OTHER}: {options}}}}}", helm=helm)
    assert policy.rules[OTHER].options == {"max_devices": number}


@pytest.mark.parametrize("profile", sorted(built_in()))
def test_every_built_in_profile_can_be_chosen(profile: str) -> None:
    assert loaded(f"profiles: [{profile}]").profile.name == profile


def test_a_profile_of_one_s_own_can_stand_beside_the_built_in_ones() -> None:
    own = "profiles: [amd, {name: own, resources: {x.example.com/gpu: {vendor: x}}}]"
    assert loaded(own).profile.name == "amd+own"
    assert "x.example.com/gpu" in loaded(own).profile.resources


def test_profiles_may_stand_in_the_policy_but_not_differ() -> None:
    assert loaded("policy: {profiles: [gke]}").profile.name == "gke"
    assert loaded("profiles: [gke]\npolicy: {profiles: [gke]}").profile.name == "gke"
    told = refusal("profiles: [eks]\npolicy: {profiles: [gke]}")
    assert "profiles and policy.profiles differ: give one of them" in told


@pytest.mark.parametrize("helm", HELMS)
def test_every_policy_file_of_the_manual_can_be_given_as_it_is(helm: str) -> None:
    blocks = YAML_BLOCK.findall((ROOT / "docs" / "policy.md").read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        text = block if block.startswith("apiVersion") else BEGINNING + block
        values = "policy:\n" + textwrap.indent(text, "  ")
        assert means(text_of(values, helm=helm)) == means(text)
        assert loaded(values, helm=helm)


def test_a_change_of_the_policy_alone_restarts_no_pod() -> None:
    """The pods read it again by themselves: nothing in their template may change with it."""
    before, after = rendered(), rendered(f"policy: {{rules: {{{GUARD}: {{action: warn}}}}}}")
    changed = [
        one["metadata"]["name"] for one, other in zip(before, after, strict=True) if one != other
    ]
    assert changed == ["gpuward-policy"]


def test_the_chart_s_own_copy_of_the_schema_is_no_older_than_the_policy_s() -> None:
    policy = json.loads((ROOT / "policies" / "policy.schema.json").read_text(encoding="utf-8"))
    values = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(values["definitions"]["policy"]["properties"]) == set(policy["properties"])
    assert set(policy["$defs"]) < set(values["definitions"])
