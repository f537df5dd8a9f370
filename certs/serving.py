"""The certificate of a TLS server, which can be replaced while the server runs.

The behavior of Python's `ssl` requires a new context for each certificate. If a key that does not
match is loaded into a context in use, every new handshake fails. If a key of another type is
loaded, the old certificate stays in use. So the server starts with a base context, whose callback
gives the newest context to each new connection. Whether clients must present a certificate is a
setting of the base context, and cannot change while the server runs.
"""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cryptography import x509

from certs.keypairs import (
    CERTIFICATE_FILE,
    KEY_FILE,
    CertificateError,
    certificate_names,
    fingerprint,
    parse_certificates,
    pem_bundle,
    validate_key_pair,
)
from certs.validity import utc_now
from terminal import reason_of

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; all ciphers of TLS 1.3 are authenticated


def new_context(*, clients_verified: bool) -> ssl.SSLContext:
    """Return a server context without a certificate; `clients_verified` requires mTLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without session tickets: a client whose CA is no longer trusted could resume its session.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])  # the server does not speak HTTP/2
    if clients_verified:
        context.verify_mode = ssl.CERT_REQUIRED
        # OpenSSL 3.5 resumes sessions of TLS 1.2 even without tickets.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load the PEM texts of a certificate, with its issuers, and of its key into a new `context`.

    Never pass a context in use: a key that does not match would break all its later handshakes.
    Raises CertificateError if OpenSSL refuses the certificate or the key.
    """
    try:
        with _as_file(certificate + b"\n" + key) as path:
            # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
            context.load_cert_chain(path, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"the TLS library refuses the certificate: {_error_reason(error)}"
        ) from None


def trust_clients(context: ssl.SSLContext, authorities: bytes) -> None:
    """Accept clients whose certificate one of these CAs (PEM text) signed.

    Raises CertificateError if there is no CA in the text, or one that cannot be used.
    """
    try:
        certificates = parse_certificates(authorities)
    except CertificateError:
        raise CertificateError("the client CA cannot be read") from None
    if not certificates:
        raise CertificateError("the client CA file has no certificate")
    try:
        context.load_verify_locations(cadata=pem_bundle(certificates).decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"the client CA is refused: {_error_reason(error)}") from None


def _error_reason(error: Exception) -> str:
    """Return a short reason that quotes no key. `ssl.SSLError` is an OSError."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or "not readable"


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary file with `content`, which only this user can read.

    The file is in memory if the system supports that, because a container may have no writable
    file system.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("certificate"), "wb") as stream:
            stream.write(content)
            stream.flush()
            yield f"/proc/self/fd/{stream.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(content)
        stream.flush()
        yield stream.name


_MAX_FILE_BYTES = 1024 * 1024  # the size of the largest Secret
_MAX_ATTEMPTS = 3


class _CertificateFiles(NamedTuple):
    """The contents of the files, read once: the same bytes are validated and then served."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class _LoadedCertificate(NamedTuple):
    files: _CertificateFiles
    certificate: x509.Certificate
    context: ssl.SSLContext


class ServingCertificate:
    """The certificate in a folder, and the TLS context that serves it.

    `directory` has tls.crt and tls.key, as a mounted Secret does. The certificate must be for
    `server_name`, unless that is None. `client_ca` is the path of a PEM file with CAs: if it is
    given, clients must present a certificate that one of them signed.

    Only `reload()` reads the files. A server calls it every few seconds. Any thread may call it,
    but not two threads at the same time.
    """

    def __init__(
        self,
        directory: str,
        server_name: str | None,
        client_ca: str | None = None,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._directory = directory
        self._server_name = server_name
        self._client_ca = client_ca
        self._clock = clock
        self._loaded: _LoadedCertificate | None = None
        self.failures = 0
        """The number of calls of `reload()` that failed."""
        self.last_error: str | None = None
        """Why the last `reload()` failed; None if it succeeded."""
        self.context = new_context(clients_verified=client_ca is not None)
        """The context to start the server with. Handshakes fail until a certificate is loaded."""
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Read the files; return whether the server now uses other contents.

        If the files cannot be used, the server continues with the previous certificate, and
        `last_error` and `failures` record the error.
        """
        try:
            files = self._read()
            if self._loaded is not None and files == self._loaded.files:
                self.last_error = None
                return False
            self._loaded = self._load(files)
        except CertificateError as error:
            self.failures += 1
            self.last_error = str(error)
            return False
        self.last_error = None
        return True

    @property
    def is_ready(self) -> bool:
        """Return whether a certificate is loaded."""
        return self._loaded is not None

    @property
    def not_after(self) -> datetime.datetime | None:
        """The time at which the served certificate expires; None if there is no certificate."""
        return self._loaded.certificate.not_valid_after_utc if self._loaded else None

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of the served certificate, in hexadecimal; None if there is none."""
        return fingerprint(self._loaded.certificate) if self._loaded else None

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names and IP addresses of the served certificate."""
        return certificate_names(self._loaded.certificate) if self._loaded else ()

    def expiry_seconds(self, now: datetime.datetime | None = None) -> float | None:
        """Return the seconds until the served certificate expires; negative if it has expired.

        Returns None if there is no certificate.
        """
        if self.not_after is None:
            return None
        return (self.not_after - (now or self._clock())).total_seconds()

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _base: object) -> int | None:
        """Give the newest context to a new connection, whatever name the client sends."""
        loaded = self._loaded
        if loaded is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = loaded.context
        return None

    def _read(self) -> _CertificateFiles:
        names = (CERTIFICATE_FILE, KEY_FILE)
        for _ in range(_MAX_ATTEMPTS):
            # The kubelet replaces a mounted Secret by switching the link ..data to a new folder. So
            # read the target of the link, and check afterwards that the link has not changed.
            folder = _versioned_folder(self._directory)
            certificate, key = (_read_file(os.path.join(folder, name), name) for name in names)
            if folder == _versioned_folder(self._directory):
                break
        else:
            raise CertificateError("the folder keeps changing")
        if self._client_ca is None:
            return _CertificateFiles(certificate, key, None)
        return _CertificateFiles(certificate, key, _read_file(self._client_ca, "the client CA"))

    def _load(self, files: _CertificateFiles) -> _LoadedCertificate:
        leaf = validate_key_pair(files.certificate, files.key, self._server_name, self._clock())
        context = new_context(clients_verified=files.client_ca is not None)
        load_key_pair(context, files.certificate, files.key)
        if files.client_ca is not None:
            trust_clients(context, files.client_ca)
        return _LoadedCertificate(files, leaf, context)


def _versioned_folder(directory: str) -> str:
    data = os.path.join(directory, "..data")
    return os.path.realpath(data) if os.path.lexists(data) else directory


def _read_file(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CertificateError(f"{name}: {reason_of(error)}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise CertificateError(f"{name} is larger than a Secret can be")
    return content
