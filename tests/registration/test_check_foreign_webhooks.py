"""What `gpuward webhooks check` makes of whatever else may answer."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path
from typing import Any

import pytest

from registration import webhook_client as calling
from registration.webhook_client import MAX_BYTES
from tests.testkit.control_plane.pki import Authority
from tests.testkit.registration.fake_servers import (
    DAY,
    NAME,
    Answer,
    Signed,
    allowing,
    answering,
    check_result,
    review,
    saying,
)


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    return Signed(tmp_path, datetime.datetime.now(tz=datetime.UTC))


@pytest.mark.parametrize(
    ("path", "answer", "expected"),
    [
        ("/mutate/deny", lambda _: (404, b"no such\n page"), "HTTP 404: no such page"),
        ("/mutate/deny", lambda _: (200, b"\x1b[31mhello"), "no AdmissionReview: ?[31mhello"),
        ("/mutate/deny", lambda _: (200, b""), "no AdmissionReview: (nothing)"),
        ("/mutate/deny", lambda _: (200, b"[" * 100_000), "no AdmissionReview: [[["),
        ("/mutate/deny", lambda _: (200, b'{"kind": "Status"}'), "no AdmissionReview"),
        ("/mutate/deny", lambda _: (200, b" " * (MAX_BYTES + 1)), "longer than 1048576 bytes"),
        ("/mutate/deny", lambda _: (200, review("x", allowed=True)), "its uid differs"),
        ("/mutate/deny", lambda r: (200, review(r["uid"])), "neither allows nor refuses"),
        (
            "/validate/warn",
            lambda r: (200, review(r["uid"], allowed=False)),
            "it refuses the sample on a path that refuses nothing",
        ),
    ],
)
def test_an_answer_that_is_not_ours(
    signed: Signed, path: str, answer: Answer, expected: str
) -> None:
    with answering(signed.file, answer) as address:
        only = check_result(signed.bundle, address, path)
    assert not only.ok
    assert expected in only.message
    assert len(only.message) < 300
    slices = "kubectl get endpointslices -n gpuward-system -l kubernetes.io/service-name=gpuward"
    assert slices in only.hint


def test_the_sample_is_a_pod_for_show(signed: Signed) -> None:
    requests: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> tuple[int, bytes]:
        requests.append(request)
        return allowing(request)

    with answering(signed.file, answer) as address:
        assert check_result(signed.bundle, address).ok
    (request,) = requests
    assert request["dryRun"] is True
    assert request["object"]["metadata"] == {"name": "gpuward-check", "namespace": "gpuward-check"}


def test_whatever_stands_in_the_bundle_is_trusted_as_by_an_api_server(signed: Signed) -> None:
    with answering(signed.file) as address:
        assert check_result(signed.certificate, address).ok


@pytest.mark.parametrize(
    ("days", "expected"), [(-3, "certificate has expired"), (3, "certificate is not yet valid")]
)
def test_a_certificate_out_of_date(tmp_path: Path, days: int, expected: str) -> None:
    signed = Signed(tmp_path, datetime.datetime.now(tz=datetime.UTC) + days * DAY)
    with answering(signed.file) as address:
        only = check_result(signed.bundle, address)
    assert not only.ok
    assert only.message == f"the certificate is not trusted by caBundle: {expected}"
    assert "app.kubernetes.io/component=certs" in only.hint


def test_a_name_outside_of_the_alternative_names_does_not_count(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue(NAME)  # as its common name alone
    file = tmp_path / "both.pem"
    file.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    with answering(file) as address:
        only = check_result(authority.bundle, address)
    assert (only.ok, only.message) == (False, f"the certificate is not for {NAME}")


def test_a_bundle_that_cannot_be_read() -> None:
    only = check_result(b"none", ("127.0.0.1", 1))
    assert (only.ok, only.message) == (False, "caBundle holds no certificate that can be read")


@pytest.mark.parametrize(
    ("words", "expected"),
    [(b"SSH-2.0-OpenSSH_9\r\n", "TLS failed: WRONG_VERSION_NUMBER"), (b"", "UNEXPECTED_EOF")],
)
def test_somebody_who_speaks_no_tls(signed: Signed, words: bytes, expected: str) -> None:
    with saying(words) as address:
        only = check_result(signed.bundle, address)
    assert not only.ok
    assert expected in only.message


def test_a_name_that_only_the_cluster_knows(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    only = check_result(signed.bundle, None)
    assert not only.ok
    assert only.message == "the name cannot be resolved here: Name or service not known"
    forward = "  kubectl port-forward -n gpuward-system service/gpuward 8443:443\n"
    assert forward in only.hint
    assert only.hint.endswith("--address 127.0.0.1:8443")


def test_somebody_who_never_answers(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        only = check_result(signed.bundle, silent.getsockname())
    assert (only.ok, only.message) == (False, "no response within 0.2 seconds")
    assert "kubectl get pods" in only.hint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://gpuward.gpuward-system.svc/mutate/deny", f"https://{NAME}:443/mutate/deny"),
        ("https://[::1]:8443/mutate/deny", "https://[::1]:8443/mutate/deny"),
    ],
)
def test_a_webhook_with_a_url(signed: Signed, url: str, expected: str) -> None:
    with answering(signed.file) as address:
        only = check_result(signed.bundle, address, url=url)
    assert only.subject == expected
    assert only.ok == (NAME in url), only
