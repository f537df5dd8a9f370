"""In each certificate mode one writes `caBundle`, and the chart asks no other to."""

from __future__ import annotations

import base64

import pytest
import yaml

from tests.testkit.chart.rendering import (
    CI_VALUES,
    NAMESPACE,
    Manifest,
    of_kind,
    pod_specs,
    rendered,
    the,
)

BUNDLE = yaml.safe_load(CI_VALUES["existing-secret"].read_text())["certificates"]["caBundle"]
INJECTION = {"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret"}


def certificates(**values: object) -> list[Manifest]:
    """What the chart makes with these values below `certificates`."""
    return rendered(yaml.safe_dump({"certificates": values}))


def configurations(objects: list[Manifest]) -> list[Manifest]:
    """Both webhook configurations."""
    return [the(objects, f"{kind}WebhookConfiguration") for kind in ("Mutating", "Validating")]


def bundles(objects: list[Manifest]) -> set[str | None]:
    """What Helm writes into the entries, decoded; None for an entry that it leaves alone."""
    found = [e["clientConfig"] for made in configurations(objects) for e in made["webhooks"]]
    return {base64.b64decode(c["caBundle"]).decode() if "caBundle" in c else None for c in found}


def injected(objects: list[Manifest]) -> list[dict[str, str]]:
    """The annotations that ask cert-manager's injector for something."""
    return [
        {name: text for name, text in made["metadata"]["annotations"].items() if name in INJECTION}
        for made in configurations(objects)
    ]


@pytest.mark.parametrize("given", ["", BUNDLE], ids=["alone", "with-a-bundle"])
def test_our_controller_writes_alone(given: str) -> None:
    objects = certificates(mode="self", caBundle=given)
    assert bundles(objects) == {None}
    assert injected(objects) == [{}, {}]


def test_the_injector_writes_alone() -> None:
    objects = certificates(mode="certManager")
    assert bundles(objects) == {None}
    assert injected(objects) == [{"cert-manager.io/inject-ca-from": f"{NAMESPACE}/gpuward"}] * 2
    assert the(objects, "Certificate", "gpuward")


def test_the_injector_is_given_what_it_writes_instead() -> None:
    objects = certificates(mode="certManager", caBundle=BUNDLE)
    assert bundles(objects) == {None}
    source = {"cert-manager.io/inject-ca-from-secret": f"{NAMESPACE}/gpuward-trusted"}
    assert injected(objects) == [source, source]
    secret = the(objects, "Secret", "gpuward-trusted")
    assert secret["metadata"]["annotations"]["cert-manager.io/allow-direct-injection"] == "true"
    assert base64.b64decode(secret["data"]["ca.crt"]).decode() == BUNDLE


def test_helm_writes_alone() -> None:
    objects = certificates(mode="existingSecret", existingSecret={"name": "x"}, caBundle=BUNDLE)
    assert bundles(objects) == {BUNDLE}
    assert injected(objects) == [{}, {}]


def test_what_is_prepared_changes_nothing_else() -> None:
    prepared = certificates(mode="self", certManager={"prepare": True})
    for made in certificates(mode="self"):
        assert made in prepared
    assert {made["metadata"]["name"] for made in of_kind(prepared, "Certificate")} == {
        "gpuward",
        "gpuward-authority",
    }


def test_an_issuer_that_is_there_is_asked_and_no_other_is_made() -> None:
    asked = {"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    objects = certificates(mode="certManager", certManager={"issuerRef": asked})
    assert the(objects, "Certificate")["spec"]["issuerRef"] == asked
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
        assert the(objects, "Certificate", "gpuward")["spec"]["secretName"] == mounted["secretName"]
    elif values["mode"] == "self":
        assert (
            f"--secret={mounted['secretName']}"
            in pod_specs(objects)["certs"]["containers"][0]["args"]
        )
    else:
        assert mounted["secretName"] == "x"
