"""The answers of `gpuward doctor` about certificates before they expire."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest

from certs.authority import new_authority, sign_leaf
from cluster.doctor.rows import State
from tests.testkit.cluster_commands.doctor_rows import installed, rows, states
from tests.testkit.cluster_commands.gpu_objects import Object
from tests.testkit.registration.fake_servers import DAY, serve_answer

NAME = "localhost"
NOW = datetime.datetime.now(datetime.UTC)


def authority(lifetime: float, left: float) -> bytes:
    """The certificate of a CA, with this many days left of its lifetime."""
    start = NOW - (lifetime - left) * DAY
    return new_authority([NAME], start, lifetime * DAY).certificate_pem


def leaf() -> bytes:
    return sign_leaf(new_authority([NAME], NOW), [NAME], NOW, DAY).certificate_pem


def peer(*bundles: bytes, policy: str = "Fail") -> Object:
    """A webhook configuration of another project, with an entry for each caBundle."""
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "peer"},
        "webhooks": [
            {
                "name": "pods.example.com",
                "rules": [rule],
                "failurePolicy": policy,
                "clientConfig": {"caBundle": base64.b64encode(bundle).decode()} if bundle else {},
            }
            for bundle in bundles
        ],
    }


@pytest.mark.parametrize(
    ("bundle", "state", "message"),
    [
        (authority(365, 20), State.OK, "the CA is valid until 20"),
        (authority(365, 13), State.WRONG, "nobody has renewed it; then pods are refused"),
        (authority(7, 2), State.OK, "the CA is valid until 20"),
        (authority(7, 1), State.WRONG, "nobody has renewed it"),
        (authority(365, -1), State.WRONG, "the CA was valid until 20"),
        (authority(365, -1) + authority(365, 99), State.OK, "the CA is valid until 20"),
        ("# Főtanúsítvány\n".encode() + authority(365, 99), State.OK, "the CA is valid until 20"),
        (leaf(), State.NOT_KNOWN, "no CA's"),
        (authority(365, 13) + leaf(), State.NOT_KNOWN, "no CA's"),
        (b"no PEM", State.WRONG, "no certificate that can be read: pods are refused"),
        (b"", State.NOT_KNOWN, "there is no caBundle"),
    ],
)
def test_the_authority_of_another_webhook(bundle: bytes, state: State, message: str) -> None:
    (row,) = rows(peer(bundle))["CA bundle"]
    assert (row.subject, row.state) == ("peer (MutatingWebhookConfiguration)", state)
    assert message in row.message


def test_what_happens_depends_on_the_failure_policy() -> None:
    (row,) = rows(peer(authority(365, -1), policy="Ignore"))["CA bundle"]
    assert row.message.endswith(": pods are admitted without it")


def test_each_bundle_of_a_configuration_has_a_row_and_other_objects_have_none() -> None:
    good, late = authority(365, 99), authority(365, 9)
    assert len(rows(peer(good, late, good))["CA bundle"]) == 2
    other = peer(late)
    other["webhooks"][0]["rules"][0]["resources"] = ["services"]
    assert "CA bundle" not in rows(other)


@pytest.mark.parametrize(("days", "state"), [(9, State.OK), (12, State.WRONG)])
def test_a_serving_certificate_that_nobody_has_renewed(
    days: int, state: State, tmp_path: Path
) -> None:
    signer = new_authority([NAME], NOW - 20 * DAY)
    pair = sign_leaf(signer, [NAME], NOW - days * DAY, 14 * DAY)
    file = tmp_path / "serving.pem"
    file.write_bytes(pair.certificate_pem + pair.key_pem)
    with serve_answer(file) as (_, port):
        client: dict[str, Any] = {
            "url": f"https://{NAME}:{port}/mutate/deny",
            "caBundle": base64.b64encode(signer.certificate_pem).decode(),
        }
        found = rows(installed(clientConfig=client)[0])
        unsent = rows(installed(clientConfig=client)[0], tls_only=True)
    (checked,) = [row for row in unsent["webhook"] if row.subject == client["url"]]
    assert checked.message.startswith("only its certificate was checked; certificate until 20")
    assert checked.state is state
    assert states(found["CA bundle"]) == {"gpuward (MutatingWebhookConfiguration)": State.OK}
    (served,) = [row for row in found["webhook"] if row.subject == client["url"]]
    assert served.state is state
    assert ("docs/certificates.md" in served.remedy) is (state is State.WRONG)
