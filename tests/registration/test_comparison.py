"""Tests of the comparison of webhook configurations with what the release should have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.webhooks.comparison import differences
from webhook.registration import RegistrationOptions, configurations

Path = tuple[str | int, ...]


def client_config(path: str) -> dict[str, Any]:
    return {
        "service": {"name": "gpuward", "namespace": "gpuward-system", "port": 443, "path": path}
    }


MUTATING, VALIDATING = configurations(
    "gpuward", client_config, RegistrationOptions(excluded_namespaces=("gpuward-system",))
)
CONDITION = {"name": "may-concern-a-rule", "expression": "true"}
for each in VALIDATING["webhooks"]:
    each["matchConditions"] = [CONDITION]


def stored(expected: dict[str, Any]) -> dict[str, Any]:
    """The configuration in a cluster: with metadata and a caBundle."""
    found: dict[str, Any] = json.loads(json.dumps(expected))  # entries share nothing
    found["metadata"] |= {"uid": "1", "resourceVersion": "1", "generation": 1}
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["caBundle"] = "LS0t"
    return found


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value that is no object and no list."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path
    for key, content in items:
        yield from leaves(content, (*path, key))


def parent(value: Any, path: Path) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


@pytest.mark.parametrize("expected", [MUTATING, VALIDATING], ids=lambda one: one["kind"])
def test_what_the_release_should_have_is_no_difference(expected: dict[str, Any]) -> None:
    assert differences(expected, stored(expected)) == []
    reordered = stored(expected)
    reordered["webhooks"].reverse()
    assert differences(expected, reordered) == []


@pytest.mark.parametrize("expected", [MUTATING, VALIDATING], ids=lambda one: one["kind"])
def test_a_change_of_any_value_is_a_difference(expected: dict[str, Any]) -> None:
    paths = list(leaves(expected["webhooks"]))
    assert len(paths) > 100
    for path in paths:
        changed, shortened = stored(expected), stored(expected)
        parent(changed["webhooks"], path)[path[-1]] = "changed"
        assert differences(expected, changed), path
        if path[1:] != ("name",):
            del parent(shortened["webhooks"], path)[path[-1]]
            (difference,) = differences(expected, shortened)
            assert difference.startswith(f"{expected['webhooks'][path[0]]['name']}: "), path


def test_a_missing_configuration_a_missing_webhook_and_an_added_one_are_differences() -> None:
    assert differences(VALIDATING, None) == ["it does not exist"]
    found = stored(VALIDATING)
    found["webhooks"][0]["name"] = "pods.example.com"
    assert differences(VALIDATING, found) == [
        "deny.gpuward.io: it is missing",
        "pods.example.com: it is not gpuward's",
    ]
    assert len(differences(VALIDATING, {**found, "webhooks": None})) == len(VALIDATING["webhooks"])


def test_a_difference_names_the_webhook_the_field_and_both_values() -> None:
    found = stored(VALIDATING)
    webhook = found["webhooks"][1]
    webhook["failurePolicy"] = "Fail"
    webhook["namespaceSelector"]["matchExpressions"].append({"key": "no", "operator": "Exists"})
    webhook["matchConditions"] = [{**CONDITION, "expression": "false" * 100}]
    webhook["rules"][0]["operations"] = ["CREATE"]
    webhook["objectSelector"] = {"matchLabels": {"a": "b"}}
    assert differences(VALIDATING, found) == [
        "warn.gpuward.io: namespaceSelector.matchExpressions differs",
        'warn.gpuward.io: failurePolicy: expected "Ignore", found "Fail"',
        "warn.gpuward.io: matchConditions[0].expression differs",
        'warn.gpuward.io: objectSelector.matchLabels: expected nothing, found {"a": "b"}',
        'warn.gpuward.io: rules[0].operations: expected ["CREATE", "UPDATE"], found ["CREATE"]',
    ]


def test_a_match_condition_that_somebody_added_is_a_difference() -> None:
    found = stored(MUTATING)
    found["webhooks"][0]["matchConditions"] = [{"name": "never", "expression": "false"}]
    (difference,) = differences(MUTATING, found)
    assert difference.startswith("pods.deny.gpuward.io: matchConditions: expected nothing, found ")


def test_the_ca_bundle_must_be_the_given_one_or_any() -> None:
    found, given = stored(VALIDATING), stored(VALIDATING)
    assert differences(given, found) == []
    found["webhooks"][0]["clientConfig"]["caBundle"] = "b3RoZXI="
    assert differences(VALIDATING, found) == []
    assert differences(given, found) == ["deny.gpuward.io: clientConfig.caBundle differs"]
    del found["webhooks"][0]["clientConfig"]["caBundle"]
    for expected in (VALIDATING, given):
        (difference,) = differences(expected, found)
        assert difference.startswith("deny.gpuward.io: clientConfig.caBundle is empty")


AKS = [
    {"key": "control-plane", "operator": "DoesNotExist"},
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
]
GKE = ["kube-system", "gke-gmp-system", "gke-managed-cim"]
NAME = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}


@pytest.mark.parametrize("added", [AKS, [{**NAME, "values": GKE}]], ids=["AKS", "GKE"])
def test_what_providers_add_to_selectors_is_no_difference(added: list[Any]) -> None:
    found = stored(VALIDATING)
    for webhook in found["webhooks"]:
        webhook["namespaceSelector"]["matchExpressions"] += added
    assert differences(VALIDATING, found) == []


def test_names_that_providers_merge_into_the_chart_s_own_are_no_difference() -> None:
    found = stored(VALIDATING)
    terms = found["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    terms[0]["values"] = [*terms[0]["values"], *GKE]
    assert differences(VALIDATING, found) == []


@pytest.mark.parametrize(
    "term",
    [
        {**NAME, "values": ["team-a"]},
        {**NAME, "values": [*GKE, "team-a"]},
        {"key": "control-plane", "operator": "Exists"},
        {"key": "team", "operator": "DoesNotExist"},
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system"]},
    ],
    ids=str,
)
def test_other_terms_of_selectors_are_differences(term: dict[str, Any]) -> None:
    found = stored(VALIDATING)
    found["webhooks"][0]["namespaceSelector"]["matchExpressions"].append(term)
    assert len(differences(VALIDATING, found)) == 1


def test_a_namespace_that_is_no_longer_excluded_is_a_difference() -> None:
    for name in ("kube-system", "gpuward-system"):
        found = stored(VALIDATING)
        found["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"].remove(name)
        assert len(differences(VALIDATING, found)) == 1


def test_a_field_that_gpuward_does_not_know_is_no_difference() -> None:
    found = stored(VALIDATING)
    found["webhooks"][0]["fieldOfTheFuture"] = "Default"
    assert differences(VALIDATING, found) == []
