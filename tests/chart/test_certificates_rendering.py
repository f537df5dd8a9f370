"""In each certificate mode, exactly one program writes `caBundle`."""

from __future__ import annotations

import base64

import pytest
import yaml

from tests.testkit.chart.rendering import (
    CI_VALUES,
    NAMESPACE,
    Manifest,
    find_one,
    of_kind,
    pod_specs,
    render,
)

BUNDLE = yaml.safe_load(CI_VALUES["existing-secret"].read_text())["certificates"]["caBundle"]
INJECTION = {"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret"}


def certificates(**values: object) -> list[Manifest]:
    """The objects of the chart with these values below `certificates`."""
    return render(yaml.safe_dump({"certificates": values}))


def configurations(objects: list[Manifest]) -> list[Manifest]:
    """Both webhook configurations."""
    return [find_one(objects, f"{kind}WebhookConfiguration") for kind in ("Mutating", "Validating")]


def ca_bundles(objects: list[Manifest]) -> set[str | None]:
    """The caBundles that Helm writes, decoded; None for a webhook without one."""
    found = [e["clientConfig"] for made in configurations(objects) for e in made["webhooks"]]
    return {base64.b64decode(c["caBundle"]).decode() if "caBundle" in c else None for c in found}


def injection_annotations(objects: list[Manifest]) -> list[dict[str, str]]:
    """The annotations for cert-manager's injector, by configuration."""
    return [
        {name: text for name, text in made["metadata"]["annotations"].items() if name in INJECTION}
        for made in configurations(objects)
    ]


@pytest.mark.parametrize("given", ["", BUNDLE], ids=["alone", "with-a-bundle"])
def test_in_mode_self_only_the_controller_writes(given: str) -> None:
    objects = certificates(mode="self", caBundle=given)
    assert ca_bundles(objects) == {None}
    assert injection_annotations(objects) == [{}, {}]


def test_in_mode_cert_manager_only_the_injector_writes() -> None:
    objects = certificates(mode="certManager")
    assert ca_bundles(objects) == {None}
    assert (
        injection_annotations(objects)
        == [{"cert-manager.io/inject-ca-from": f"{NAMESPACE}/gpuward"}] * 2
    )
    assert find_one(objects, "Certificate", "gpuward")


def test_in_mode_cert_manager_the_injector_writes_a_given_bundle() -> None:
    objects = certificates(mode="certManager", caBundle=BUNDLE)
    assert ca_bundles(objects) == {None}
    source = {"cert-manager.io/inject-ca-from-secret": f"{NAMESPACE}/gpuward-trusted"}
    assert injection_annotations(objects) == [source, source]
    secret = find_one(objects, "Secret", "gpuward-trusted")
    assert secret["metadata"]["annotations"]["cert-manager.io/allow-direct-injection"] == "true"
    assert base64.b64decode(secret["data"]["ca.crt"]).decode() == BUNDLE


def test_in_mode_existing_secret_only_helm_writes() -> None:
    objects = certificates(mode="existingSecret", existingSecret={"name": "x"}, caBundle=BUNDLE)
    assert ca_bundles(objects) == {BUNDLE}
    assert injection_annotations(objects) == [{}, {}]


def test_preparing_cert_manager_only_adds_objects() -> None:
    prepared = certificates(mode="self", certManager={"prepare": True})
    for made in certificates(mode="self"):
        assert made in prepared
    assert {made["metadata"]["name"] for made in of_kind(prepared, "Certificate")} == {
        "gpuward",
        "gpuward-authority",
    }


def test_a_given_issuer_is_used_and_no_issuer_is_created() -> None:
    issuer = {"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    objects = certificates(mode="certManager", certManager={"issuerRef": issuer})
    assert find_one(objects, "Certificate")["spec"]["issuerRef"] == issuer
    assert of_kind(objects, "Issuer") == []


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "self"},
        {"mode": "certManager"},
        {"mode": "existingSecret", "existingSecret": {"name": "x"}, "caBundle": BUNDLE},
    ],
    ids=lambda values: str(values["mode"]),
)
def test_pods_mount_the_secret_that_the_mode_fills(values: dict[str, object]) -> None:
    objects = certificates(**values)
    (mounted,) = [v["secret"] for v in pod_specs(objects)["webhook"]["volumes"] if "secret" in v]
    assert {item["key"] for item in mounted["items"]} == {"tls.crt", "tls.key"}
    if values["mode"] == "certManager":
        assert (
            find_one(objects, "Certificate", "gpuward")["spec"]["secretName"]
            == mounted["secretName"]
        )
    elif values["mode"] == "self":
        assert (
            f"--secret={mounted['secretName']}"
            in pod_specs(objects)["certs"]["containers"][0]["args"]
        )
    else:
        assert mounted["secretName"] == "x"
