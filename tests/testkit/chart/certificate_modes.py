"""The certificate modes of the chart: their values, served certificates and objects."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from typing import Any

from cryptography import x509

from certs.authority import new_authority, service_names, sign_leaf
from certs.keypairs import KeyPair, fingerprint, parse_certificates
from tests.testkit.chart.installation import Installation, merge_values
from tests.testkit.control_plane.processes import eventually

#: No pod may be admitted without evaluation; servers drain, so that they answer late requests.
STRICT = {
    "mode": "deny",
    "registration": {"failurePolicy": "Fail", "timeoutSeconds": 30},
    "drainSeconds": 3,
}
#: By mode, the Secret from which the pods serve
SECRETS = {
    "self": "gpuward-tls",
    "certManager": "gpuward-cert-manager-tls",
    "existingSecret": "our-own",
}
_OBJECTS = "secrets,deployments,leases,roles,serviceaccounts,certificates,issuers"


def values(mode: str, ca_bundle: bytes = b"", *, prepare: bool = False) -> dict[str, Any]:
    """Values of the chart for a certificate mode, with `ca_bundle` (PEM) as caBundle."""
    chosen = {
        "mode": mode,
        "caBundle": ca_bundle.decode(),
        "certManager": {"prepare": prepare},
        "existingSecret": {"name": SECRETS["existingSecret"]},
    }
    found: dict[str, Any] = merge_values(STRICT, {"certificates": chosen})
    return found


def new_signer(installation: Installation) -> KeyPair:
    """A new authority that belongs to neither gpuward nor cert-manager."""
    names = service_names(installation.release, installation.namespace)
    return new_authority(names, datetime.datetime.now(datetime.UTC))


def fill_secret(installation: Installation, signer: KeyPair) -> None:
    """Write a new certificate of an authority into the Secret of mode `existingSecret`."""
    names = service_names(installation.release, installation.namespace)
    leaf = sign_leaf(signer, names, datetime.datetime.now(datetime.UTC))
    data = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRETS["existingSecret"], "namespace": installation.namespace},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(text).decode() for name, text in data.items()},
    }
    installation.plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest))


def trusted_authorities(installation: Installation) -> set[x509.Certificate]:
    """The authorities in the caBundle, once all webhooks trust the same."""
    # The two configurations are written one after the other: in between they differ. Until Helm has
    # removed the certificate controller, it may write the same authorities in another order.

    def authorities() -> set[frozenset[x509.Certificate]]:
        found = {frozenset(parse_certificates(text)) for text in installation.ca_bundles()}
        assert len(found) == 1, f"{len(found)} different sets of authorities"
        return found

    (same,) = eventually(authorities, what="all webhooks trust the same authorities")
    return set(same)


def is_served(installation: Installation, mode: str) -> bool:
    """Return whether there are exactly two pods, and both serve the certificate of the mode.

    The certificate is in the mode's Secret.
    """
    own = f"/api/v1/namespaces/{installation.namespace}"
    secret = installation.plane.request("GET", f"{own}/secrets/{SECRETS[mode]}")
    assert secret.status == 200, secret
    wanted = fingerprint(parse_certificates(base64.b64decode(secret.body["data"]["tls.crt"]))[0])
    label = "labelSelector=app.kubernetes.io/component%3Dwebhook"
    found = installation.plane.request("GET", f"{own}/pods?{label}").body["items"]
    served = [_fingerprint(pod.endpoint("https")) for pod in installation.pods()]
    return len(found) == 2 and served == [wanted, wanted]


def wait_for_pods(installation: Installation, mode: str) -> None:
    """Wait until all pods serve the certificate of the mode, and older pods are gone."""
    eventually(
        lambda: is_served(installation, mode),
        seconds=100,
        what=f"all pods serve the certificate of {mode}",
    )


def release_objects(installation: Installation) -> set[str]:
    """The objects of the release in its namespace, as KIND/NAME."""
    got = installation.plane.kubectl("get", _OBJECTS, "-n", installation.namespace, "-o", "json")
    found = json.loads(got.stdout)["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}"
        for item in found
        # Owned objects are deleted with their owner.
        if "ownerReferences" not in item["metadata"]
        and item.get("type") != "helm.sh/release.v1"
        and item["metadata"]["name"] not in ("default", SECRETS["existingSecret"])
    }


def _fingerprint(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    (leaf,) = parse_certificates(ssl.get_server_certificate((host, int(port))).encode())
    return fingerprint(leaf)
