"""The chart's webhook configurations are those of registration/configurations.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from registration.configurations import MODE_LABEL, NAME_LABEL, RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.chart.rendering import CI_VALUES, NAMESPACE, Manifest, refusal, rendered, the

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PAIRS = list(itertools.product(Action, Action))
EXCLUDED = ("gpu-operator", "kube-system")


def client_config(path: str) -> dict[str, Any]:
    service = {"name": "gpuward", "namespace": NAMESPACE, "port": 443, "path": path}
    return {"service": service}


def made(text: str) -> list[Manifest]:
    """Both configurations, without what only the chart knows."""
    objects = rendered(text)
    found = [the(objects, kind) for kind in KINDS]
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
def test_they_are_those_that_the_webhook_is_tested_with(
    mode: Action, minimum: Action, failure_policy: Any
) -> None:
    choices = RegistrationOptions(
        mode, minimum, failure_policy, excluded_namespaces=(*EXCLUDED, NAMESPACE)
    )
    expected = list(configurations("gpuward", client_config, choices))
    assert made(values(mode, minimum, failure_policy)) == expected


@pytest.mark.parametrize(("mode", "minimum"), [pair for pair in PAIRS if pair[0] < pair[1]])
def test_a_mode_below_the_floor_is_refused(mode: Action, minimum: Action) -> None:
    told = refusal(values(mode, minimum))
    assert f'mode "{mode.word}" is below minimumMode "{minimum.word}"' in told


def test_a_quoted_off_is_the_same_as_an_unquoted_one() -> None:
    assert made('mode: "off"') == made("mode: off")


def test_the_timeout_is_that_of_the_values() -> None:
    assert {entry["timeoutSeconds"] for one in made("") for entry in one["webhooks"]} == {3}
    other = made("registration: {timeoutSeconds: 7}")
    assert {entry["timeoutSeconds"] for one in other for entry in one["webhooks"]} == {7}


@pytest.mark.parametrize("name", CI_VALUES)
def test_nothing_that_a_tenant_writes_leads_past_the_webhook(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    for entry in (entry for kind in KINDS for entry in the(objects, kind)["webhooks"]):
        assert entry["objectSelector"] == {}
        assert set(entry["namespaceSelector"]) == {"matchExpressions"}
        away, *rest = entry["namespaceSelector"]["matchExpressions"]
        assert (away["key"], away["operator"]) == (NAME_LABEL, "NotIn")
        assert {"kube-system", "kube-public", "kube-node-lease", NAMESPACE} <= {*away["values"]}
        assert {term["key"] for term in rest} <= {MODE_LABEL}


@pytest.mark.parametrize("name", CI_VALUES)
def test_what_is_only_warned_about_is_never_held_up(name: str) -> None:
    webhooks = the(rendered(CI_VALUES[name]), KINDS[0])["webhooks"]
    workloads = [entry for entry in webhooks if entry["name"].startswith("workloads.")]
    assert workloads
    assert all(entry["failurePolicy"] == "Ignore" for entry in workloads)


@pytest.mark.parametrize("name", CI_VALUES)
def test_annotations_say_who_may_write_into_them(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    for kind in KINDS:
        metadata = the(objects, kind)["metadata"]
        injected = metadata.get("annotations", {}).get("cert-manager.io/inject-ca-from")
        assert injected == (f"{NAMESPACE}/gpuward" if name.startswith("cert-manager") else None)
        aks = metadata.get("annotations", {}).get("admissions.enforcer/disabled")
        assert aks == (None if name == "everything" else "true")


def test_only_a_given_authority_is_written_by_the_chart() -> None:
    for name in CI_VALUES:
        objects = rendered(CI_VALUES[name])
        for entry in (entry for kind in KINDS for entry in the(objects, kind)["webhooks"]):
            assert ("caBundle" in entry["clientConfig"]) == (name == "existing-secret")
