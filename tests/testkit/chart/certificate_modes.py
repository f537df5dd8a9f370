"""The certificate modes of the chart: their values, what is served in them, and what they leave."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from typing import Any

from cryptography import x509

from certs.pki.authority import new_authority, service_names, sign_leaf
from certs.pki.keypairs import KeyPair, fingerprint, parse_certificates
from tests.testkit.chart.installation import Installed, merged
from tests.testkit.control_plane.processes import eventually

#: Nobody may get through unjudged, and servers have the time to answer whoever still asks.
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


def values(mode: str, trusted: bytes = b"", *, prepare: bool = False) -> dict[str, Any]:
    """Values of the chart by which `mode` is in force, with `trusted` as caBundle (PEM)."""
    chosen = {
        "mode": mode,
        "caBundle": trusted.decode(),
        "certManager": {"prepare": prepare},
        "existingSecret": {"name": SECRETS["existingSecret"]},
    }
    found: dict[str, Any] = merged(STRICT, {"certificates": chosen})
    return found


def new_signer(installed: Installed) -> KeyPair:
    """An authority of somebody's own."""
    names = service_names(installed.release, installed.namespace)
    return new_authority(names, datetime.datetime.now(datetime.UTC))


def fill_secret(installed: Installed, signer: KeyPair) -> None:
    """Put a new certificate of that authority into the Secret of mode `existingSecret`."""
    names = service_names(installed.release, installed.namespace)
    leaf = sign_leaf(signer, names, datetime.datetime.now(datetime.UTC))
    data = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRETS["existingSecret"], "namespace": installed.namespace},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(text).decode() for name, text in data.items()},
    }
    installed.plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest))


def trusted(installed: Installed) -> set[x509.Certificate]:
    """The authorities by which API servers trust the webhooks, all of them by the same."""
    (same,) = installed.bundles()
    return set(parse_certificates(same))


def is_served(installed: Installed, mode: str) -> bool:
    """Whether there are two pods, none is leaving, and both serve what the mode's Secret has."""
    data = installed.get(f"secret/{SECRETS[mode]}")["data"]
    wanted = fingerprint(parse_certificates(base64.b64decode(data["tls.crt"]))[0])
    path = f"/api/v1/namespaces/{installed.namespace}/pods"
    label = "labelSelector=app.kubernetes.io/component%3Dwebhook"
    found = installed.plane.request("GET", f"{path}?{label}").body["items"]
    served = [_fingerprint(pod.endpoint("https")) for pod in installed.pods()]
    return len(found) == 2 and served == [wanted, wanted]


def wait_for_pods(installed: Installed, mode: str) -> None:
    """Wait until all pods serve the certificate of that mode, and the others have gone."""
    eventually(lambda: is_served(installed, mode), seconds=100, what=f"{mode} is served by all")


def objects(installed: Installed) -> set[str]:
    """What of the release there is in its namespace, as KIND/NAME."""
    got = installed.plane.kubectl("get", _OBJECTS, "-n", installed.namespace, "-o", "json")
    found = json.loads(got.stdout)["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}"
        for item in found
        # What is owned goes with its owner.
        if "ownerReferences" not in item["metadata"]
        and item.get("type") != "helm.sh/release.v1"
        and item["metadata"]["name"] not in ("default", SECRETS["existingSecret"])
    }


def _fingerprint(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    (leaf,) = parse_certificates(ssl.get_server_certificate((host, int(port))).encode())
    return fingerprint(leaf)
