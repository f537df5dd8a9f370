"""Tests of the webhook configurations, and of the mode that each namespace gets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rules.finding import Action
from rules.workloads.kinds import CUSTOM_POD_LAYOUTS, POD_TEMPLATE_PATHS
from webhook.registration import (
    BUILT_IN_WORKLOADS,
    CUSTOM_WORKLOADS,
    MODE_LABEL,
    NAME_LABEL,
    RegistrationOptions,
    configurations,
    effective_mode,
)

LABELS = ["deny", "warn", "audit", "off", "dney", "", None]
OPTIONS = [
    RegistrationOptions(default, minimum)
    for default, minimum in itertools.product(Action, Action)
    if default >= minimum
]


def client_config(path: str) -> dict[str, Any]:
    return {"url": f"https://127.0.0.1{path}"}


def both(options: RegistrationOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    return configurations("gpuward", client_config, options)


def selects(entry: dict[str, Any], labels: dict[str, str]) -> bool:
    """Label selection as Kubernetes defines it."""
    for term in entry["namespaceSelector"]["matchExpressions"]:
        inside = labels.get(term["key"]) in term["values"]
        assert term["operator"] in ("In", "NotIn")
        assert term["values"], "an empty list is refused by the API server"
        if inside != (term["operator"] == "In"):
            return False
    return True


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("label", LABELS)
def test_exactly_one_webhook_selects_a_namespace_for_its_mode(
    options: RegistrationOptions, label: str | None
) -> None:
    labels = {NAME_LABEL: "team"} | ({MODE_LABEL: label} if label is not None else {})
    mode = effective_mode(label, options)
    for configuration in both(options):
        paths = {
            entry["clientConfig"]["url"].rpartition("/")[2]
            for entry in configuration["webhooks"]
            if selects(entry, labels)
        }
        assert paths == (set() if mode is Action.OFF else {mode.name.lower()})


def test_a_misspelt_mode_is_the_default_and_a_weak_one_is_the_minimum() -> None:
    options = RegistrationOptions(default=Action.DENY, minimum=Action.WARN)
    assert effective_mode("dney", options) is Action.DENY
    assert effective_mode("off", options) is Action.WARN
    assert effective_mode("deny", RegistrationOptions(Action.WARN)) is Action.DENY


def test_a_default_below_the_minimum_is_refused() -> None:
    with pytest.raises(ValueError, match="weaker than the minimum"):
        both(RegistrationOptions(Action.AUDIT, Action.WARN))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_system_namespaces_are_never_selected(options: RegistrationOptions) -> None:
    options = options._replace(excluded_namespaces=("gpuward-system",))
    for configuration in both(options):
        for entry in configuration["webhooks"]:
            for name in ("kube-system", "kube-public", "kube-node-lease", "gpuward-system"):
                assert not selects(entry, {NAME_LABEL: name, MODE_LABEL: "deny"})


def test_webhooks_are_well_formed_and_those_for_workloads_fail_open() -> None:
    for configuration in both(RegistrationOptions(failure_policy="Fail")):
        names = [entry["name"] for entry in configuration["webhooks"]]
        assert len(names) == len(set(names))
        for entry in configuration["webhooks"]:
            assert entry["name"].count(".") >= 2
            assert entry["sideEffects"] == "None"
            assert entry["admissionReviewVersions"] == ["v1"]
            assert entry["matchPolicy"] == "Equivalent"
            is_advisory = entry["name"].startswith("workloads.")
            assert entry["failurePolicy"] == ("Ignore" if is_advisory else "Fail")


def test_no_resource_is_registered_that_a_cluster_needs_to_start() -> None:
    vital_resources = {"nodes", "leases", "events", "bindings", "tokenreviews", "*", "pods/binding"}
    for configuration in both(RegistrationOptions()):
        for entry in configuration["webhooks"]:
            for rule in entry["rules"]:
                assert rule["scope"] == "Namespaced"
                assert not vital_resources & set(rule["resources"])
                assert not any(r.endswith("/status") for r in rule["resources"])


def test_every_known_kind_with_pods_is_registered() -> None:
    built_in = {name for names in BUILT_IN_WORKLOADS.values() for name in names}
    assert built_in == {f"{kind.lower()}s" for kind in POD_TEMPLATE_PATHS if kind != "Pod"}
    # Cluster-scoped kinds belong to no namespace and so have no mode. A PodDefault is a patch of
    # pods that are created later. An experiment of Determined is no object of a cluster.
    unregistered = {"ClusterWorkflowTemplate", "ClusterTask", "ClusterServingRuntime"}
    unregistered |= {"PodDefault", "SidecarSet", "Experiment"}
    for group, kind in CUSTOM_POD_LAYOUTS:
        assert kind in unregistered or f"{kind.lower()}s" in CUSTOM_WORKLOADS[group]
