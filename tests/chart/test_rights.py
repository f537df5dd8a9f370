"""What the chart's accounts may do: what the tests of their programs gave them, no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.chart.permissions import (
    CONTROLLER_VERBS,
    NAMESPACED,
    REMOVAL_VERBS,
    on_configurations,
)
from tests.testkit.chart.rendering import CI_VALUES, Manifest, of_kind, pod_specs, rendered, the

every_values = pytest.mark.parametrize("name", CI_VALUES)
ROLES = ("Role", "ClusterRole")
WITH_TOKEN = {"certs", "removal", "test"}


def as_sets(rules: list[dict[str, list[str]]]) -> list[dict[str, set[str]]]:
    """Rules whose lists may be in any order."""
    found = [{key: set(words) for key, words in rule.items()} for rule in rules]
    return sorted(found, key=lambda rule: sorted(rule["resources"]))


def rules(objects: list[Manifest], kind: str, name: str) -> list[dict[str, set[str]]]:
    return as_sets(the(objects, kind, name)["rules"])


def test_the_certificate_controller_may_do_what_it_was_tested_with() -> None:
    objects = rendered()
    used = [{**rule, "verbs": ["get", "update"]} for rule in NAMESPACED]
    assert rules(objects, "Role", "gpuward-certs") == as_sets(used)
    whole = on_configurations("gpuward", CONTROLLER_VERBS)
    assert rules(objects, "ClusterRole", "gpuward-certs") == as_sets([whole])


def test_the_removal_may_do_what_it_was_tested_with() -> None:
    whole = on_configurations("gpuward", REMOVAL_VERBS)
    assert rules(rendered(), "ClusterRole", "gpuward-removal") == as_sets([whole])


def test_the_installation_s_own_test_may_only_read_what_it_tests() -> None:
    whole = on_configurations("gpuward", ["get"])
    assert rules(rendered(), "ClusterRole", "gpuward-test") == as_sets([whole])


@every_values
def test_every_right_is_limited_to_named_objects_and_harmless_verbs(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    granted = [rule for kind in ROLES for role in of_kind(objects, kind) for rule in role["rules"]]
    for rule in granted:
        assert set(rule) == {"apiGroups", "resources", "resourceNames", "verbs"}
        assert rule["resourceNames"]
        assert not any("*" in words for words in rule.values())
        assert {*rule["verbs"]} <= {"get", "update", "patch", "delete"}


@every_values
def test_tokens_are_mounted_only_where_they_are_needed(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    assert not any(a["automountServiceAccountToken"] for a in of_kind(objects, "ServiceAccount"))
    for component, spec in pod_specs(objects).items():
        assert spec["automountServiceAccountToken"] == (component in WITH_TOKEN), component


@every_values
def test_every_pod_has_an_account_of_its_own_and_the_serving_ones_a_powerless_one(
    name: str,
) -> None:
    objects = rendered(CI_VALUES[name])
    accounts = [account["metadata"]["name"] for account in of_kind(objects, "ServiceAccount")]
    used = {component: spec["serviceAccountName"] for component, spec in pod_specs(objects).items()}
    assert sorted(used.values()) == sorted(accounts)
    bound = {
        subject["name"]
        for kind in ROLES
        for binding in of_kind(objects, f"{kind}Binding")
        for subject in binding["subjects"]
    }
    assert bound == {used[component] for component in used if component in WITH_TOKEN}


@every_values
def test_bindings_lead_from_an_account_to_a_role_of_this_release(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    for kind in ROLES:
        for binding in of_kind(objects, f"{kind}Binding"):
            reference = binding["roleRef"]
            role = the(objects, reference["kind"], reference["name"])
            (subject,) = binding["subjects"]
            account = the(objects, "ServiceAccount", subject["name"])
            assert subject["namespace"] == account["metadata"]["namespace"]
            assert hook(binding) == hook(role) == hook(account)


def hook(made: Manifest) -> tuple[Any, ...]:
    """When it is made and goes away."""
    annotations = made["metadata"].get("annotations", {})
    return tuple(annotations.get(f"helm.sh/hook{end}") for end in ("", "-weight", "-delete-policy"))


@pytest.mark.parametrize(("kind", "when"), [("Job", "pre-delete"), ("Pod", "test")])
def test_a_hook_s_rights_are_there_before_it_runs_and_go_with_it(kind: str, when: str) -> None:
    objects = rendered()
    runs = the(objects, kind)
    assert hook(runs)[0] == when
    others = [made for made in objects if hook(made)[0] == when and made is not runs]
    found = {made["kind"] for made in others}
    assert found == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for made in others:
        assert int(hook(made)[1]) < int(hook(runs)[1])
        assert set(hook(made)[2].split(",")) == {"before-hook-creation", "hook-succeeded"}


def test_the_removal_can_be_left_out_with_all_its_rights() -> None:
    objects = rendered("removalHook: {enabled: false}")
    assert not [made for made in objects if hook(made)[0] == "pre-delete"]
    assert not of_kind(objects, "ClusterRole", "gpuward-removal")
