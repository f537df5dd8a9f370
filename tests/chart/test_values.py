"""Values: the schema describes every value, and helm refuses unknown and wrong ones."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.testkit.chart.rendering import CHART, HELMS, render, render_error

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
# Objects that accept any key, because Kubernetes or gpuward checks their content.
OPEN_OBJECTS = {
    *(
        "resources",
        "certificates.self.resources",
        "audit.resources",
        "console.resources",
        "doctor.resources",
        "clusterInventory.resources",
        "gpuExceptions.resources",
        "affinity",
        "tolerations[]",
        "global",
    ),
    *("topologySpreadConstraints[]", "podSecurityContext", "securityContext"),
    "console.from[]",
    "console.prometheus.to[]",
    *("networkPolicy.webhookFrom[]", "networkPolicy.apiServerTo[]", "networkPolicy.metricsFrom[]"),
    *("monitoring.serviceMonitor.relabelings[]", "monitoring.serviceMonitor.metricRelabelings[]"),
    "policy.rules.*.options",
    "policy.perPath[].rules.*.options",
}
# Keys that only parent charts use.
PARENT_CHART_KEYS = {"global", "enabled"}
every_helm = pytest.mark.parametrize("helm", HELMS)

KeyPath = tuple[str, ...]


def schema_objects(
    schema: dict[str, Any], key_path: KeyPath = ()
) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Every object that the schema describes, by its path of keys, `[]` and `*`."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for alternative in schema.get("oneOf", []):
        yield from schema_objects(alternative, key_path)
    if "else" in schema:
        yield from schema_objects(schema["else"], key_path)
    if "items" in schema:
        yield from schema_objects(schema["items"], (*key_path, "[]"))
    if schema.get("type") != "object":
        return
    yield key_path, schema
    for key, content in schema.get("properties", {}).items():
        yield from schema_objects(content, (*key_path, key))
    if isinstance(content := schema.get("additionalProperties"), dict):
        yield from schema_objects(content, (*key_path, "*"))


def nested_values(key_path: KeyPath, content: Any) -> Any:
    """Values that have `content` at a path."""
    for step in reversed(key_path):
        content = [content] if step == "[]" else {"x-any" if step == "*" else step: content}
    return content


def merged(first: Any, second: Any) -> Any:
    """Values that have both; lists have one item."""
    if isinstance(first, list):
        return [merged(*first, *second)]
    if not isinstance(first, dict):
        return second
    return first | {
        key: merged(first[key], value) if key in first else value for key, value in second.items()
    }


def pointer(key_path: KeyPath) -> str:
    """The path by which helm names what `nested_values` has at a path of keys."""
    words = {"[]": "0", "*": "x-any"}
    return "".join(f"/{words.get(step, step)}" for step in key_path)


def dotted(key_path: KeyPath) -> str:
    return ".".join(key_path).replace(".[]", "[]")


STRICT_PATHS = [
    key_path
    for key_path, found in schema_objects(SCHEMA)
    if found.get("additionalProperties") is False
]
# All rules have the same schema: one rule is enough.
TESTED_PATHS = [
    p for p in STRICT_PATHS if p[:2] != ("policy", "rules") or p[2:] in {(), ("absurd-count",)}
]


# Every unknown key at once: helm names each.
MISSPELT = json.dumps(
    functools.reduce(merged, (nested_values(path, {"misspelt": 1}) for path in TESTED_PATHS))
)


def test_only_objects_that_others_check_accept_unknown_keys() -> None:
    open_paths = {
        dotted(key_path)
        for key_path, found in schema_objects(SCHEMA)
        if found.get("additionalProperties", True) is True
    }
    open_objects = {name for name in open_paths if not name.startswith("policy.rules.")}
    assert open_objects == OPEN_OBJECTS - {"policy.rules.*.options"}


def test_every_default_satisfies_the_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert list(Draft7Validator(SCHEMA).iter_errors(DEFAULTS)) == []


def test_the_schema_and_the_defaults_have_the_same_keys() -> None:
    for key_path, found in schema_objects(SCHEMA):
        if {"[]", "*"} & {*key_path}:
            continue
        values = functools.reduce(lambda v, step: v.get(step) or {}, key_path, DEFAULTS)
        if key_path and not values:
            continue  # an object that is empty at first, such as `policy`
        assert set(found.get("properties", {})) - PARENT_CHART_KEYS <= set(values), dotted(key_path)
        if found.get("additionalProperties") is False:
            assert set(values) <= set(found["properties"]), dotted(key_path)


@every_helm
@pytest.mark.parametrize("key_path", TESTED_PATHS, ids=dotted)
def test_an_unknown_key_is_refused_with_its_path(key_path: KeyPath, helm: str) -> None:
    error = render_error(MISSPELT, helm=helm)
    assert f"at '{pointer(key_path)}': additional properties 'misspelt' not allowed" in error


@every_helm
@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("monitoring: {countedNamespaces: ['team-*']}", "/monitoring/countedNamespaces/0"),
        ("podAnnotations: {a: 1}", "/podAnnotations/a"),
        ("podSecurityContext: {runAsUser: nobody}", "/podSecurityContext/runAsUser"),
        ("podSecurityContext: {fsGroup: -1}", "/podSecurityContext/fsGroup"),
        ("networkPolicy: {webhookFrom: [{}]}", "/networkPolicy/webhookFrom/0"),
        ("console: {from: [{}]}", "/console/from/0"),
        ("networkPolicy: {apiServerPorts: []}", "/networkPolicy/apiServerPorts"),
        ("nameOverride: Guard", "/nameOverride"),
        ("fullnameOverride: gpu_guard", "/fullnameOverride"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(text: str, expected: str, helm: str) -> None:
    assert expected in render_error(text, helm=helm)


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_conflicting_values_are_refused_with_an_explanation(text: str, expected: str) -> None:
    assert expected in render_error(text)


@every_helm
@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "default"])
def test_an_installation_into_a_reserved_namespace_is_refused(namespace: str, helm: str) -> None:
    assert "a namespace of its own" in render_error(namespace=namespace, helm=helm)


@every_helm
def test_values_of_parent_charts_are_accepted(helm: str) -> None:
    text = "global: {imageRegistry: x, cattle: {systemDefaultRegistry: y}}\nenabled: true\n"
    assert render(text, helm=helm) == render(helm=helm)


@every_helm
def test_a_misspelt_profile_is_compared_with_the_names_alone(helm: str) -> None:
    error = render_error("profiles: [nvidai]", helm=helm)
    assert "/profiles/0': value must be one of 'ack'" in error
    assert "oneOf" not in error
    assert "want object" not in error
