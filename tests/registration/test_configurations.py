"""What is registered with the API server, and which namespace is in which mode."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from registration.configurations import (
    BUILT_IN_WORKLOADS,
    CUSTOM_WORKLOADS,
    MODE_LABEL,
    NAME_LABEL,
    RegistrationOptions,
    configurations,
    effective_mode,
)
from rules.finding import Action
from rules.workloads.kinds import CUSTOM_POD_LAYOUTS, POD_TEMPLATE_PATHS

LABELS = ["deny", "warn", "audit", "off", "dney", "", None]
CHOICES = [
    RegistrationOptions(default, minimum)
    for default, minimum in itertools.product(Action, Action)
    if default >= minimum
]


def client_config(path: str) -> dict[str, Any]:
    return {"url": f"https://127.0.0.1{path}"}


def both(choices: RegistrationOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    return configurations("gpuward", client_config, choices)


def selects(entry: dict[str, Any], labels: dict[str, str]) -> bool:
    """Label selection as Kubernetes defines it."""
    for term in entry["namespaceSelector"]["matchExpressions"]:
        inside = labels.get(term["key"]) in term["values"]
        assert term["operator"] in ("In", "NotIn")
        assert term["values"], "an empty list is refused by the API server"
        if inside != (term["operator"] == "In"):
            return False
    return True


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("label", LABELS)
def test_every_namespace_is_led_to_its_mode_by_exactly_one_entry(
    choices: RegistrationOptions, label: str | None
) -> None:
    labels = {NAME_LABEL: "team"} | ({MODE_LABEL: label} if label is not None else {})
    mode = effective_mode(label, choices)
    for configuration in both(choices):
        paths = {
            entry["clientConfig"]["url"].rpartition("/")[2]
            for entry in configuration["webhooks"]
            if selects(entry, labels)
        }
        assert paths == (set() if mode is Action.OFF else {mode.name.lower()})


def test_a_misspelt_mode_is_the_default_and_a_loose_one_is_the_minimum() -> None:
    choices = RegistrationOptions(default=Action.DENY, minimum=Action.WARN)
    assert effective_mode("dney", choices) is Action.DENY
    assert effective_mode("off", choices) is Action.WARN
    assert effective_mode("deny", RegistrationOptions(Action.WARN)) is Action.DENY


def test_a_default_below_the_minimum_is_refused() -> None:
    with pytest.raises(ValueError, match="weaker than the minimum"):
        both(RegistrationOptions(Action.AUDIT, Action.WARN))


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_the_system_s_own_namespaces_never_reach_us(choices: RegistrationOptions) -> None:
    choices = choices._replace(excluded_namespaces=("gpuward-system",))
    for configuration in both(choices):
        for entry in configuration["webhooks"]:
            for name in ("kube-system", "kube-public", "kube-node-lease", "gpuward-system"):
                assert not selects(entry, {NAME_LABEL: name, MODE_LABEL: "deny"})


def test_entries_are_well_formed_and_never_hold_up_what_is_only_spoken_of() -> None:
    for configuration in both(RegistrationOptions(failure_policy="Fail")):
        names = [entry["name"] for entry in configuration["webhooks"]]
        assert len(names) == len(set(names))
        for entry in configuration["webhooks"]:
            assert entry["name"].count(".") >= 2
            assert entry["sideEffects"] == "None"
            assert entry["admissionReviewVersions"] == ["v1"]
            assert entry["matchPolicy"] == "Equivalent"
            speaks = entry["name"].startswith("workloads.")
            assert entry["failurePolicy"] == ("Ignore" if speaks else "Fail")


def test_nothing_is_registered_that_could_keep_a_cluster_from_starting() -> None:
    fatal = {"nodes", "leases", "events", "bindings", "tokenreviews", "*", "pods/binding"}
    for configuration in both(RegistrationOptions()):
        for entry in configuration["webhooks"]:
            for rule in entry["rules"]:
                assert rule["scope"] == "Namespaced"
                assert not fatal & set(rule["resources"])
                assert not any(r.endswith("/status") for r in rule["resources"])


def test_every_kind_whose_pods_we_know_is_registered() -> None:
    built_in = {name for names in BUILT_IN_WORKLOADS.values() for name in names}
    assert built_in == {f"{kind.lower()}s" for kind in POD_TEMPLATE_PATHS if kind != "Pod"}
    # Those of the whole cluster belong to no namespace and so have no mode; a PodDefault
    # and a Task's parts are patches of pods that are yet to be made.
    left = {"ClusterWorkflowTemplate", "ClusterTask", "PodDefault"}
    for group, kind in CUSTOM_POD_LAYOUTS:
        assert kind in left or f"{kind.lower()}s" in CUSTOM_WORKLOADS[group]
