"""Values: every one is known, described by the schema, and refused when it is misspelt."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.testkit.chart.rendering import CHART, HELMS, refusal, rendered

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
# What Kubernetes itself describes and checks.
OPEN = {
    *("resources", "certificates.self.resources", "affinity", "tolerations[]", "global"),
    *("topologySpreadConstraints[]", "podSecurityContext", "securityContext"),
    *("networkPolicy.webhookFrom[]", "networkPolicy.apiServerTo[]", "networkPolicy.metricsFrom[]"),
    *("monitoring.serviceMonitor.relabelings[]", "monitoring.serviceMonitor.metricRelabelings[]"),
    "policy.rules.*.options",
}
# Read by charts that contain this one, not by it.
OTHERS = {"global", "enabled"}
every_helm = pytest.mark.parametrize("helm", HELMS)

Place = tuple[str, ...]


def objects(schema: dict[str, Any], place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every object that the schema describes, by where it stands: `key`, `[]` or `*`."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for alternative in schema.get("oneOf", []):
        yield from objects(alternative, place)
    if "items" in schema:
        yield from objects(schema["items"], (*place, "[]"))
    if schema.get("type") != "object":
        return
    yield place, schema
    for key, inside in schema.get("properties", {}).items():
        yield from objects(inside, (*place, key))
    if isinstance(inside := schema.get("additionalProperties"), dict):
        yield from objects(inside, (*place, "*"))


def written(place: Place, inside: Any) -> Any:
    """`inside` at `place`, as values."""
    for step in reversed(place):
        inside = [inside] if step == "[]" else {"x-any" if step == "*" else step: inside}
    return inside


def dotted(place: Place) -> str:
    return ".".join(place).replace(".[]", "[]")


STRICT = [place for place, found in objects(SCHEMA) if found.get("additionalProperties") is False]
# With the rules by name, the first of them stands for all.
TRIED = [p for p in STRICT if p[:2] != ("policy", "rules") or p[2:] in {(), ("absurd-count",)}]


def test_only_what_kubernetes_or_other_charts_check_is_left_open() -> None:
    loose = {
        dotted(place)
        for place, found in objects(SCHEMA)
        if found.get("additionalProperties", True) is True
    }
    left = {name for name in loose if not name.startswith("policy.rules.")}
    assert left == OPEN - {"policy.rules.*.options"}


def test_every_default_satisfies_the_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert list(Draft7Validator(SCHEMA).iter_errors(DEFAULTS)) == []


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    for place, found in objects(SCHEMA):
        if {"[]", "*"} & {*place}:
            continue
        values = functools.reduce(lambda v, step: v.get(step) or {}, place, DEFAULTS)
        if place and not values:
            continue  # an object that is empty at first, such as `policy`
        assert set(found.get("properties", {})) - OTHERS <= set(values), dotted(place)
        if found.get("additionalProperties") is False:
            assert set(values) <= set(found["properties"]), dotted(place)


@every_helm
@pytest.mark.parametrize("place", TRIED, ids=dotted)
def test_an_unknown_key_is_refused_by_its_name(place: Place, helm: str) -> None:
    told = refusal(yaml.safe_dump(written(place, {"misspelt": 1})), helm=helm)
    assert "misspelt" in told


@every_helm
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("policy: {rules: {absurd-cuont: {action: deny}}}", "absurd-cuont"),
        ("policy: {rules: {absurd-count: {action: denny}}}", "/policy/rules/absurd-count/action"),
        ("policy: {rules: {absurd-count: {fix: 'yes'}}}", "/policy/rules/absurd-count/fix"),
        ("policy: {exceptions: [{rules: [absurd-cuont], match: {kind: A}, reason: r}]}", "rules/0"),
        ("policy: {catalog: 0.1}", "/policy/catalog"),
        ("policy: {profiles: [nvidai]}", "/policy/profiles/0"),
        ("profiles: [nvidai]", "/profiles/0"),
        ("profiles: []", "/profiles"),
        ("profiles: nvidia", "/profiles"),
        ("mode: enforce", "/mode"),
        ("mode: true", "/mode"),
        ("minimumMode: none", "/minimumMode"),
        ("registration: {failurePolicy: ignore}", "/registration/failurePolicy"),
        ("registration: {timeoutSeconds: 31}", "/registration/timeoutSeconds"),
        ("registration: {timeoutSeconds: 0}", "/registration/timeoutSeconds"),
        ("registration: {timeoutSeconds: 2.5}", "/registration/timeoutSeconds"),
        ("registration: {excludedNamespaces: ['gpu-*']}", "/registration/excludedNamespaces/0"),
        ("certificates: {mode: cert-manager}", "/certificates/mode"),
        ("certificates: {self: {servingDays: 0}}", "/certificates/self/servingDays"),
        ("certificates: {certManager: {issuerRef: {kind: Issuer}}}", "issuerRef"),
        ("image: {digest: 'sha256:abc'}", "/image/digest"),
        ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
        ("imagePullSecrets: [regcred]", "/imagePullSecrets/0"),
        ("replicaCount: two", "/replicaCount"),
        ("ports: {webhook: 443}", "/ports/webhook"),
        ("extraArgs: --drain-seconds=1", "/extraArgs"),
        ("extraArgs: [7]", "/extraArgs/0"),
        ("logLevel: INFO", "/logLevel"),
        ("podAnnotations: {a: 1}", "/podAnnotations/a"),
        ("networkPolicy: {webhookFrom: [{}]}", "/networkPolicy/webhookFrom/0"),
        ("networkPolicy: {apiServerPorts: []}", "/networkPolicy/apiServerPorts"),
        ("nameOverride: Guard", "/nameOverride"),
        ("fullnameOverride: gpu_guard", "/fullnameOverride"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(text: str, told: str, helm: str) -> None:
    assert told in refusal(text, helm=helm)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("certificates: {mode: existingSecret}", "set certificates.existingSecret.name"),
        (
            "certificates: {mode: existingSecret, existingSecret: {name: x}}",
            "set certificates.caBundle to the CA",
        ),
        ("certificates: {caBundle: abc}", "contains no certificate in PEM form"),
        (
            'certificates: {caBundle: "-----BEGIN CERTIFICATE-----\\n-----BEGIN PRIVATE KEY-----"}',
            "contains a private key",
        ),
        ("ports: {metrics: 10250}", "ports must differ"),
        ("hostNetwork: true", "10250 is the kubelet's port"),
        ("hostNetwork: true\nports: {webhook: 19443, certs: 8080}", "ports must differ"),
        ("autoscaling: {enabled: true, minReplicas: 9}", "minReplicas is larger than"),
    ],
)
def test_choices_that_do_not_go_together_are_refused_in_words(text: str, told: str) -> None:
    assert told in refusal(text)


@every_helm
@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "default"])
def test_it_is_not_installed_among_what_it_never_judges(namespace: str, helm: str) -> None:
    assert "a namespace of its own" in refusal(namespace=namespace, helm=helm)


@every_helm
def test_values_of_containing_charts_are_taken(helm: str) -> None:
    text = "global: {imageRegistry: x, cattle: {systemDefaultRegistry: y}}\nenabled: true\n"
    assert rendered(text, helm=helm) == rendered(helm=helm)
