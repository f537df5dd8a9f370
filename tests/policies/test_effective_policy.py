"""Bundles, and `gpuward policy show`: what every rule does, and where that is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lint.policy.cli import main
from policies.bundles import BUNDLES, bundle
from policies.loading import load_policy
from policies.policy import SECURITY_FAMILIES, Policy
from policies.validation import find_problems, schema
from rules.catalog.index import CATALOG
from rules.finding import Action
from rules.rule import Rule
from tests.testkit.policy_mistakes import POLICY_HEADER

# Notes about what admission sets by default; no bundle makes them more.
PLACEMENT_DEFAULTS = {"affinity-default", "toleration-default"}
# Rules of hygiene about what cannot be meant; strict shows the others as notes.
WARNINGS_OF_HYGIENE = {"shared-memory-exceeds-limit"}
# What may be true no more when it is said; no bundle refuses it.
NEVER_REFUSED = {"no-fitting-node"}
# What may well be meant: a policy has to name it.
OFF_EVERYWHERE = {"idle-gpu-holder"}
POLICIES = {
    "nothing": "",
    "everything": """\
catalog: "0.1"
profiles: [amd, {name: ours, extends: [gke], limitQuotas: [nvidia.com/gpu]}]
extends: [essential, strict]
workloads: deny
onRuleError: deny
voidEveryContainer: true
nag: true
contact: "#gpu: help"
docsUrl: https://example.com/gpus
rules:
  zero-gpu: {action: "off"}
  absurd-count: {options: {max_devices: 9}, fix: false}
  reserved-gpushare-keys: {options: {writers: ["a:b", "c # d"]}, suppressible: true}
exceptions:
- {rules: [privileged-gpu], match: {namespace: [a, "b*"]}, reason: "w: # n", expires: 2031-01-02}
""",
}


def show(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> str:
    """What `gpuward policy show` prints about a policy."""
    file = folder / "gpuward.yaml"
    file.write_text(POLICY_HEADER + text)
    assert main(["show", str(file), *options]) == 0
    return capsys.readouterr().out.replace(f"{folder}/", "")


def test_it_shows_which_gpu_exceptions_it_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = "{rules: [absurd-count], namespaces: [a, 'b*'], longestDays: 7, approval: none}"
    shown = show(tmp_path, capsys, f"gpuExceptions:\n- {limits}\n")
    end = "GpuExceptions\n  gpuward.yaml:4  absurd-count: in a, b*, 7 days, without approval\n"
    assert shown.endswith(end)


def acts(policy: Policy) -> dict[str, Any]:
    """How every rule acts."""
    return {rule.name: policy.activate(rule)[1:] for rule in CATALOG}


def test_bundles_are_policies_that_set_rules_only() -> None:
    assert tuple(schema()["properties"]["extends"]["items"]["enum"]) == BUNDLES
    for name in BUNDLES:
        assert not list(find_problems(bundle(name)))
        assert set(bundle(name)) <= {"apiVersion", "kind", "profiles", "rules"}


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_every_rule_has_its_place_in_the_bundles(rule: Rule[Any]) -> None:
    """Whoever adds a rule decides about it: essential refuses, strict refuses other warnings.

    Rules of hygiene are off, and strict shows them.
    """
    settings = {name: bundle(name).get("rules", {}).get(rule.name, {}) for name in BUNDLES}
    refuses = rule.action is Action.DENY
    assert settings["essential"] == ({} if refuses else {"action": "off"})
    assert settings["recommended"] == {}
    wanted: dict[str, Any] = {}
    if rule.action is Action.WARN and rule.name not in NEVER_REFUSED:
        wanted["action"] = "deny"
    elif rule.action is Action.AUDIT and rule.name not in PLACEMENT_DEFAULTS:
        wanted["action"] = "warn"
    elif rule.family == "hygiene" and rule.name not in OFF_EVERYWHERE:
        wanted["action"] = "warn" if rule.name in WARNINGS_OF_HYGIENE else "audit"
    if rule.family in SECURITY_FAMILIES:
        wanted["suppressible"] = False
    assert settings["strict"] == wanted


def test_later_bundles_win_and_the_policy_wins_over_all() -> None:
    text = (
        "extends: [strict, essential]\nrules: {zero-gpu: {fix: true}, ld-preload: {action: warn}}\n"
    )
    policy = load_policy(POLICY_HEADER + text, "x")
    assert policy.rules["runtime-socket"].action is Action.OFF
    assert not policy.rules["runtime-socket"].suppressible
    assert (policy.rules["zero-gpu"].action, policy.rules["zero-gpu"].fix) == (Action.OFF, True)
    assert policy.rules["ld-preload"].action is Action.WARN


def test_a_bundle_for_a_platform_wants_its_profile() -> None:
    for profiles in ("[ack]", "[ack-registered]", "[{name: own, extends: [ack]}]"):
        text = f"extends: [ack]\nprofiles: {profiles}\n"
        policy = load_policy(POLICY_HEADER + text, "x")
        assert policy.rules["placement-label"].action is Action.DENY


@pytest.mark.parametrize("text", POLICIES.values(), ids=POLICIES)
def test_the_yaml_is_a_policy_that_acts_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    shown = show(tmp_path, capsys, text, "--output=yaml")
    original, again = load_policy(POLICY_HEADER + text, "x"), load_policy(shown, "y")
    assert acts(again) == acts(original)
    facts = ("name", "active", "taints", "affinities", "schedulers", "components", "limit_quotas")
    for fact in facts:
        assert getattr(again.profile, fact) == getattr(original.profile, fact)
    plain = [one._replace(rules={}, profile=original.profile) for one in (again, original)]
    assert plain[0] == plain[1]
    assert "extends" not in yaml.safe_load(shown)


def test_each_setting_has_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = POLICIES["everything"]
    shown = json.loads(show(tmp_path, capsys, text, "--output=json"))
    assert shown["extends"] == ["essential", "strict"]
    rules = shown["rules"]
    assert rules["zero-gpu"]["sources"] == {"action": "gpuward.yaml:13"}
    assert rules["absurd-count"]["sources"] == {
        "action": "bundle strict",
        "fix": "gpuward.yaml:14",
        "max_devices": "gpuward.yaml:14",
    }
    assert rules["visible-devices-env"]["sources"] == {
        "action": "default",
        "suppressible": "bundle strict",
    }
    lines = show(tmp_path, capsys, text).splitlines()
    assert lines[0] == "gpuward.yaml: profiles amd, ours, extends essential, strict"
    (line,) = (line.split() for line in lines if "absurd-count" in line)
    assert " ".join(line) == (
        "absurd-count deny bundle strict; fix: false (gpuward.yaml:14); "
        "max_devices: 9 (gpuward.yaml:14)"
    )
    assert lines[-1].startswith("  gpuward.yaml:17  privileged-gpu: ")


def test_newer_rules_say_that_the_catalog_holds_them_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = tuple(
        rule._replace(since="0.2") if rule.name == "zero-gpu" else rule for rule in CATALOG
    )
    monkeypatch.setattr("policies.effective.ALL_RULES", newer)
    text = show(tmp_path, capsys, 'catalog: "0.1"\nrules: {zero-gpu: {action: deny}}\n')
    (line,) = (line.split() for line in text.splitlines() if "zero-gpu" in line)
    assert " ".join(line) == (
        "zero-gpu audit newer than catalog 0.1; fix: false (newer than catalog 0.1)"
    )


def test_without_a_file_the_nearest_policy_or_the_default_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 0
    assert capsys.readouterr().out.startswith("default policy: profiles nvidia\n")
    assert "zero-gpu" in show(tmp_path, capsys, "extends: [strict]\n")
    assert main(["show"]) == 0
    assert capsys.readouterr().out.startswith("gpuward.yaml: profiles nvidia, extends strict\n")
    (tmp_path / "gpuward.yaml").write_text("broken")
    assert main(["show"]) == 2
    assert capsys.readouterr().err.startswith("gpuward: gpuward.yaml:1:1: ")
