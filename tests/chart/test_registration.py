"""The chart's webhook configurations are those of webhook/registration.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rules.finding import Action
from tests.testkit.chart.rendering import (
    CI_VALUES,
    NAMESPACE,
    Manifest,
    find_one,
    render,
    render_error,
)
from webhook.registration import MODE_LABEL, NAME_LABEL, RegistrationOptions, configurations

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PAIRS = list(itertools.product(Action, Action))
EXCLUDED = ("gpu-operator", "kube-system")


def client_config(path: str) -> dict[str, Any]:
    service = {"name": "gpuward", "namespace": NAMESPACE, "port": 443, "path": path}
    return {"service": service}


def rendered_configurations(text: str) -> list[Manifest]:
    """Both configurations, without metadata and matchConditions, which only the chart has."""
    objects = render(text)
    found = [find_one(objects, kind) for kind in KINDS]
    for configuration in found:
        configuration["metadata"] = {"name": configuration["metadata"]["name"]}
        for entry in configuration["webhooks"] or []:
            entry.pop("matchConditions", None)
    return found


def values(mode: Action, minimum: Action, failure_policy: str = "Ignore") -> str:
    registration = f"failurePolicy: {failure_policy}, excludedNamespaces: [{', '.join(EXCLUDED)}]"
    return f"mode: {mode.word}\nminimumMode: {minimum.word}\nregistration: {{{registration}}}\n"


@pytest.mark.parametrize("failure_policy", ["Ignore", "Fail"])
@pytest.mark.parametrize(("mode", "minimum"), [pair for pair in PAIRS if pair[0] >= pair[1]])
def test_they_equal_the_configurations_that_the_webhook_is_tested_with(
    mode: Action, minimum: Action, failure_policy: Any
) -> None:
    choices = RegistrationOptions(
        mode, minimum, failure_policy, excluded_namespaces=(*EXCLUDED, NAMESPACE)
    )
    expected = list(configurations("gpuward", client_config, choices))
    assert rendered_configurations(values(mode, minimum, failure_policy)) == expected


@pytest.mark.parametrize(("mode", "minimum"), [pair for pair in PAIRS if pair[0] < pair[1]])
def test_a_mode_below_the_minimum_mode_is_refused(mode: Action, minimum: Action) -> None:
    error = render_error(values(mode, minimum))
    assert f'mode "{mode.word}" is below minimumMode "{minimum.word}"' in error


def test_a_quoted_off_is_the_same_as_an_unquoted_one() -> None:
    assert rendered_configurations('mode: "off"') == rendered_configurations("mode: off")


def test_the_timeout_comes_from_the_values() -> None:
    assert {
        entry["timeoutSeconds"] for one in rendered_configurations("") for entry in one["webhooks"]
    } == {3}
    other = rendered_configurations("registration: {timeoutSeconds: 7}")
    assert {entry["timeoutSeconds"] for one in other for entry in one["webhooks"]} == {7}


@pytest.mark.parametrize("name", CI_VALUES)
def test_no_label_of_a_tenant_bypasses_the_webhook(name: str) -> None:
    objects = render(CI_VALUES[name])
    for entry in (entry for kind in KINDS for entry in find_one(objects, kind)["webhooks"]):
        assert entry["objectSelector"] == {}
        assert set(entry["namespaceSelector"]) == {"matchExpressions"}
        excluded, *rest = entry["namespaceSelector"]["matchExpressions"]
        assert (excluded["key"], excluded["operator"]) == (NAME_LABEL, "NotIn")
        assert {"kube-system", "kube-public", "kube-node-lease", NAMESPACE} <= {*excluded["values"]}
        assert {term["key"] for term in rest} <= {MODE_LABEL}


@pytest.mark.parametrize("name", CI_VALUES)
def test_webhooks_that_only_warn_always_have_failure_policy_ignore(name: str) -> None:
    webhooks = find_one(render(CI_VALUES[name]), KINDS[0])["webhooks"]
    workloads = [entry for entry in webhooks if entry["name"].startswith("workloads.")]
    assert workloads
    assert all(entry["failurePolicy"] == "Ignore" for entry in workloads)


@pytest.mark.parametrize("name", CI_VALUES)
def test_annotations_name_who_may_change_the_configurations(name: str) -> None:
    objects = render(CI_VALUES[name])
    for kind in KINDS:
        metadata = find_one(objects, kind)["metadata"]
        injected = metadata.get("annotations", {}).get("cert-manager.io/inject-ca-from")
        assert injected == (f"{NAMESPACE}/gpuward" if name.startswith("cert-manager") else None)
        aks = metadata.get("annotations", {}).get("admissions.enforcer/disabled")
        assert aks == (None if name == "everything" else "true")


def test_the_chart_writes_only_a_given_ca_bundle() -> None:
    for name in CI_VALUES:
        objects = render(CI_VALUES[name])
        for entry in (entry for kind in KINDS for entry in find_one(objects, kind)["webhooks"]):
            assert ("caBundle" in entry["clientConfig"]) == (name == "existing-secret")
