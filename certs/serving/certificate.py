"""The certificate that a server serves, replaced while it serves.

What Python's `ssl` does decides the shape. Loading a key that does not fit into a live context
breaks every new handshake, and loading one of another type leaves the old one in use; so each
certificate gets a context of its own, which a callback of the base context hands to every new
connection. Whether clients must show a certificate is fixed by the base context for good.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Callable
from typing import NamedTuple

from cryptography import x509

from certs.clock import utc_now
from certs.pki.keypairs import CertificateError, fingerprint
from certs.pki.validation import CERTIFICATE, KEY, names_of, validate_key_pair
from certs.serving.tls_contexts import load_key_pair, new_context, trust_clients

_MAX_BYTES = 1024 * 1024  # the size of the largest Secret
_ATTEMPTS = 3


class _Files(NamedTuple):
    """What was read, all at once: these very bytes are checked and then served."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class _LoadedCertificate(NamedTuple):
    files: _Files
    certificate: x509.Certificate
    context: ssl.SSLContext


class ServingCertificate:
    """The certificate in a folder, and the TLS context that serves it.

    `directory` holds tls.crt and tls.key, as a mounted Secret does. `server_name` must be
    among the names of the certificate; None accepts any. With `client_ca`, a PEM file, only
    clients with a certificate of these authorities are let in.

    Nothing is read until `reload()` is called; it may be called from any thread, by one
    thread at a time, and a server calls it every few seconds.
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
        """How many times `reload()` found something that it could not serve."""
        self.last_error: str | None = None
        """Why the last `reload()` kept what it had; None if it did not have to."""
        self.context = new_context(clients_verified=client_ca is not None)
        """The context to start the server with. Until a certificate is there, handshakes fail."""
        self.context.sni_callback = self._choose

    def reload(self) -> bool:
        """Read the folder; whether another certificate, or client CA, is served from now on.

        Whatever is wrong, what was served before still is: see `last_error` and `failures`.
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
    def ready(self) -> bool:
        """Whether there is a certificate to serve."""
        return self._loaded is not None

    @property
    def not_after(self) -> datetime.datetime | None:
        """When the certificate being served expires."""
        return self._loaded.certificate.not_valid_after_utc if self._loaded else None

    @property
    def fingerprint(self) -> str | None:
        """SHA-256 of the certificate being served, in hexadecimal."""
        return fingerprint(self._loaded.certificate) if self._loaded else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names and addresses that the certificate being served is for."""
        return names_of(self._loaded.certificate) if self._loaded else ()

    def expiry_seconds(self, now: datetime.datetime | None = None) -> float | None:
        """Seconds until the certificate being served expires; negative if it has."""
        if self.not_after is None:
            return None
        return (self.not_after - (now or self._clock())).total_seconds()

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _base: object) -> int | None:
        """Hand the newest context to a new connection, whatever name it asks for, or none."""
        loaded = self._loaded
        if loaded is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = loaded.context
        return None

    def _read(self) -> _Files:
        names = (CERTIFICATE, KEY)
        for _ in range(_ATTEMPTS):
            # The kubelet swaps the link ..data, so only below what it points to is one version.
            home = _versioned_folder(self._directory)
            certificate, key = (_read_file(os.path.join(home, name), name) for name in names)
            if home == _versioned_folder(self._directory):
                break
        else:
            raise CertificateError("the folder does not stop changing")
        if self._client_ca is None:
            return _Files(certificate, key, None)
        return _Files(certificate, key, _read_file(self._client_ca, "the client CA"))

    def _load(self, files: _Files) -> _LoadedCertificate:
        served = validate_key_pair(files.certificate, files.key, self._server_name, self._clock())
        context = new_context(clients_verified=files.client_ca is not None)
        load_key_pair(context, files.certificate, files.key)
        if files.client_ca is not None:
            trust_clients(context, files.client_ca)
        return _LoadedCertificate(files, served, context)


def _versioned_folder(directory: str) -> str:
    data = os.path.join(directory, "..data")
    return os.path.realpath(data) if os.path.lexists(data) else directory


def _read_file(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CertificateError(f"{name}: {(error.strerror or str(error)).lower()}") from None
    if len(content) > _MAX_BYTES:
        raise CertificateError(f"{name} is larger than a Secret can be")
    return content
