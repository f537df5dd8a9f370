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
from policies.validation import check_policy, policy_schema
from rules.catalog.index import CATALOG
from rules.finding import Action
from tests.testkit.policy_mistakes import POLICY_HEADER

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
    """Return what `gpuward policy show` prints about a policy."""
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
    """Return how every rule acts."""
    return {rule.name: policy.activate(rule)[1:] for rule in CATALOG}


def test_bundles_are_policies_that_set_rules_only() -> None:
    names, _ = policy_schema()["properties"]["extends"]["items"]["oneOf"]
    assert tuple(names["enum"]) == BUNDLES
    for name in BUNDLES:
        assert not check_policy(bundle(name), 1).problems
        assert set(bundle(name)) <= {"apiVersion", "kind", "profiles", "rules"}


def actions(bundle_name: str) -> dict[str, Action]:
    """Return the action of every rule in a policy that extends one bundle."""
    policy = load_policy(f"{POLICY_HEADER}profiles: [ack]\nextends: [{bundle_name}]\n", "x")
    return {rule.name: policy.activate(rule).action for rule in CATALOG}


def by_default(action: Action) -> set[str]:
    return {rule.name for rule in CATALOG if rule.action is action}


def test_essential_leaves_only_the_rules_that_refuse() -> None:
    found = actions("essential")
    assert {name for name, action in found.items() if action is Action.DENY} == by_default(
        Action.DENY
    )
    assert set(found.values()) == {Action.DENY, Action.OFF}


def test_strict_makes_every_rule_stricter_but_those_that_the_manual_names() -> None:
    found = actions("strict")
    assert {n for n in by_default(Action.WARN) if found[n] is not Action.DENY} == {
        "no-fitting-node"
    }
    assert {n for n in by_default(Action.AUDIT) if found[n] is not Action.WARN} == {
        "affinity-default",
        "toleration-default",
    }
    off = by_default(Action.OFF)
    hygiene = {rule.name: found[rule.name] for rule in CATALOG if rule.family == "hygiene"}
    hygiene = {name: action for name, action in hygiene.items() if name in off}
    assert {found[name] for name in off - set(hygiene)} == {Action.OFF}
    odd = {name: action for name, action in hygiene.items() if action is not Action.AUDIT}
    assert odd == {"idle-gpu-holder": Action.OFF, "shared-memory-exceeds-limit": Action.WARN}
    assert all(found[name] is Action.DENY for name in by_default(Action.DENY))


def test_strict_lets_no_comment_suppress_what_protects_others() -> None:
    policy = load_policy(POLICY_HEADER + "extends: [strict]\n", "x")
    for rule in CATALOG:
        assert policy.activate(rule).suppressible != (rule.family in SECURITY_FAMILIES), rule.name


def test_recommended_changes_nothing() -> None:
    assert actions("recommended") == {rule.name: rule.action for rule in CATALOG}


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
