"""Find out which certificate each replica serves, and report one that expires soon.

It opens a TLS connection to each replica, so it needs no permissions in the cluster.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog
from cryptography import x509

from certs.validity import expires_soon, expiry_text, utc_now
from cluster.api.events import Reminders
from cluster.control_loop import Controller
from cluster.webhooks.webhook_client import Validity
from terminal import DOCS_URL

_TIMEOUT_SECONDS = 3.0
_MAX_CONNECTIONS = 8
_STALE_SECONDS = 60.0
_log = structlog.get_logger("gpuward.certs")


def served_certificates(
    host: str, port: int, server_name: str
) -> dict[str, x509.Certificate | None] | None:
    """Return the certificate on `port` of each address of `host`.

    The value is None for an address that serves no certificate. Returns None if `host` has no
    address. `server_name` is the name that the client sends.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = sorted({str(address[0]) for *_, address in infos})
    if not addresses:
        return None
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
        found = pool.map(lambda address: _certificate(address, port, server_name), addresses)
        return dict(zip(addresses, found, strict=True))


def served_validities(host: str, port: int, server_name: str) -> dict[str, Validity]:
    """Return the validity of the certificate on `port` of each address of `host` that serves one.

    `server_name` is the name that the client sends.
    """
    found = served_certificates(host, port, server_name) or {}
    return {address: validity_in(served) for address, served in found.items() if served}


def validity_in(certificate: x509.Certificate) -> Validity:
    """From when until when a certificate is valid."""
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _certificate(address: str, port: int, server_name: str) -> x509.Certificate | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The connection only reads the certificate and sends no data, so it need not verify anything.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # In TLS 1.3 the certificate arrives before the server can ask for a client certificate.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with (
            socket.create_connection((address, port), timeout=_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=server_name) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(der) if der else None
    except (OSError, ValueError):  # no server answers, or with what is no certificate
        return None


class CertificateWatch(Controller):
    """Reports a served certificate that expires soon, where gpuward does not renew it.

    `read` returns the validity of what each address serves, and `send_event` creates a Kubernetes
    Event with a reason and a text; it may raise ClusterError.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, Validity]],
        send_event: Callable[[str, str], None],
        *,
        now: Callable[[], datetime.datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _log, "certificates not checked", stale_seconds=_STALE_SECONDS, monotonic=monotonic
        )
        self._read = read
        self._now = now
        self._reminders = Reminders(send_event, _log, monotonic)

    def _reconcile(self, _report: object) -> None:
        served, now = self._read(), self._now()
        first = min(served.values(), key=lambda validity: validity.end, default=None)
        problems = {}
        if first and expires_soon(*first, now):
            text = f"the certificate that the webhook serves {expiry_text(first.end, now)}"
            problems["CertificateExpires"] = f"{text}: see {DOCS_URL}/certificates.md"
        self._reminders.update(problems)
