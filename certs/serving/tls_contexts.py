"""Create TLS contexts for servers."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from certs.keypairs import CertificateError, bundle, parse_certificates

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
            f"the TLS library refuses the certificate: {_reason(error)}"
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
        context.load_verify_locations(cadata=bundle(certificates).decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"the client CA is refused: {_reason(error)}") from None


def _reason(error: Exception) -> str:
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
