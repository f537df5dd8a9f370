"""Tests of `gpuward webhooks check` with servers that answer in place of the webhook."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path
from typing import Any

import pytest

from cluster.webhooks import webhook_client
from cluster.webhooks.webhook_client import MAX_BYTES
from tests.testkit.control_plane.pki import Authority
from tests.testkit.https_server import Answer
from tests.testkit.registration.fake_servers import (
    DAY,
    NAME,
    Respond,
    SignedCertificate,
    allow,
    check_result,
    review,
    serve_answer,
    serve_bytes,
)


@pytest.fixture
def certificate(tmp_path: Path) -> SignedCertificate:
    return SignedCertificate(tmp_path, datetime.datetime.now(tz=datetime.UTC))


@pytest.mark.parametrize(
    ("path", "respond", "expected"),
    [
        ("/mutate/deny", lambda _: Answer(b"no such\n page", 404), "HTTP 404: no such page"),
        ("/mutate/deny", lambda _: Answer(b"\x1b[31mhello"), "no AdmissionReview: ?[31mhello"),
        ("/mutate/deny", lambda _: Answer(b""), "no AdmissionReview: (nothing)"),
        ("/mutate/deny", lambda _: Answer(b"[" * 100_000), "no AdmissionReview: [[["),
        ("/mutate/deny", lambda _: Answer(b'{"kind": "Status"}'), "no AdmissionReview"),
        ("/mutate/deny", lambda _: Answer(b" " * (MAX_BYTES + 1)), "longer than 1048576 bytes"),
        ("/mutate/deny", lambda _: Answer(review("x", allowed=True)), "its uid differs"),
        ("/mutate/deny", lambda r: Answer(review(r["uid"])), "neither allows nor refuses"),
        (
            "/validate/warn",
            lambda r: Answer(review(r["uid"], allowed=False)),
            "it refuses the sample on a path that refuses nothing",
        ),
    ],
)
def test_a_wrong_answer_is_reported(
    certificate: SignedCertificate, path: str, respond: Respond, expected: str
) -> None:
    with serve_answer(certificate.file, respond) as address:
        only = check_result(certificate.bundle, address, path)
    assert not only.ok
    assert expected in only.message
    assert len(only.message) < 300
    slices = "kubectl get endpointslices -n gpuward-system -l kubernetes.io/service-name=gpuward"
    assert slices in only.hint


def test_the_sample_is_a_dry_run(certificate: SignedCertificate) -> None:
    requests: list[dict[str, Any]] = []

    def respond(request: dict[str, Any]) -> Answer:
        requests.append(request)
        return allow(request)

    with serve_answer(certificate.file, respond) as address:
        assert check_result(certificate.bundle, address).ok
    (request,) = requests
    assert request["dryRun"] is True
    assert request["object"]["metadata"] == {"name": "gpuward-check", "namespace": "gpuward-check"}


def test_a_leaf_certificate_in_the_bundle_is_trusted_as_by_an_api_server(
    certificate: SignedCertificate,
) -> None:
    with serve_answer(certificate.file) as address:
        assert check_result(certificate.certificate, address).ok


@pytest.mark.parametrize(
    ("days", "expected"), [(-3, "certificate has expired"), (3, "certificate is not yet valid")]
)
def test_a_certificate_outside_of_its_validity_is_reported(
    tmp_path: Path, days: int, expected: str
) -> None:
    certificate = SignedCertificate(tmp_path, datetime.datetime.now(tz=datetime.UTC) + days * DAY)
    with serve_answer(certificate.file) as address:
        only = check_result(certificate.bundle, address)
    assert not only.ok
    assert only.message == f"the certificate is not trusted by caBundle: {expected}"
    assert "app.kubernetes.io/component=certs" in only.hint
    assert "existingSecret  put a new certificate into your Secret" in only.hint


@pytest.mark.parametrize(("age", "is_late"), [(23.75, True), (12, False)])
def test_a_certificate_that_expires_soon_is_a_warning_and_no_failure(
    tmp_path: Path, age: float, *, is_late: bool
) -> None:
    created = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(hours=age)
    certificate = SignedCertificate(tmp_path, created)
    with serve_answer(certificate.file) as address:
        only = check_result(certificate.bundle, address)
    assert only.ok
    assert only.warning.startswith("its certificate expires in 14 minutes, at ") == is_late
    assert ("app.kubernetes.io/component=certs" in only.hint) == is_late


def test_the_common_name_does_not_count(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue(NAME)  # as common name only
    file = tmp_path / "both.pem"
    file.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    with serve_answer(file) as address:
        only = check_result(authority.bundle, address)
    assert (only.ok, only.message) == (False, f"the certificate is not for {NAME}")


def test_a_bundle_that_cannot_be_read_is_reported() -> None:
    only = check_result(b"none", ("127.0.0.1", 1))
    assert (only.ok, only.message) == (False, "caBundle holds no certificate that can be read")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"SSH-2.0-OpenSSH_9\r\n", "TLS failed: WRONG_VERSION_NUMBER"), (b"", "UNEXPECTED_EOF")],
)
def test_a_server_without_tls_is_reported(
    certificate: SignedCertificate, content: bytes, expected: str
) -> None:
    with serve_bytes(content) as address:
        only = check_result(certificate.bundle, address)
    assert not only.ok
    assert expected in only.message


def test_a_name_that_only_the_cluster_resolves_is_reported(
    certificate: SignedCertificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_resolve(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail_to_resolve)
    only = check_result(certificate.bundle, None)
    assert not only.ok
    assert only.message == "the name cannot be resolved here: Name or service not known"
    forward = "  kubectl port-forward -n gpuward-system service/gpuward 8443:443\n"
    assert forward in only.hint
    assert only.hint.endswith("--address 127.0.0.1:8443")


def test_a_server_that_never_answers_is_reported(
    certificate: SignedCertificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_client, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        only = check_result(certificate.bundle, silent.getsockname())
    assert (only.ok, only.message) == (False, "no response within 0.2 seconds")
    assert "kubectl get pods" in only.hint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://gpuward.gpuward-system.svc/mutate/deny", f"https://{NAME}:443/mutate/deny"),
        ("https://[::1]:8443/mutate/deny", "https://[::1]:8443/mutate/deny"),
    ],
)
def test_a_webhook_with_a_url_is_checked(
    certificate: SignedCertificate, url: str, expected: str
) -> None:
    with serve_answer(certificate.file) as address:
        only = check_result(certificate.bundle, address, url=url)
    assert only.subject == expected
    assert only.ok == (NAME in url), only
