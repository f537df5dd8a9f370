"""TLS contexts for serving."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from certs.pki.keypairs import CertificateError, bundle, parse_certificates

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all authenticated


def new_context(*, clients_verified: bool) -> ssl.SSLContext:
    """A context for serving without a certificate yet; with `clients_verified` for mTLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Seen: a client of an authority that is no longer trusted gets in by resuming its session.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])  # a client on loopback would take h2
    if clients_verified:
        context.verify_mode = ssl.CERT_REQUIRED
        # OpenSSL 3.5 resumes sessions of TLS 1.2 without a ticket as well.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Give a fresh `context` its certificate, with issuers, and key; CertificateError if refused.

    Never one in use: a key that does not fit would break every handshake from then on.
    """
    try:
        with _as_file(certificate + b"\n" + key) as path:
            # For an encrypted key OpenSSL would ask at the terminal.
            context.load_cert_chain(path, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(f"the TLS library refuses it: {_reason(error)}") from None


def trust_clients(context: ssl.SSLContext, authorities: bytes) -> None:
    """Let in clients whose certificates these authorities (PEM) signed; CertificateError."""
    try:
        trusted = parse_certificates(authorities)
    except CertificateError:
        raise CertificateError("the client CA cannot be read") from None
    if not trusted:
        raise CertificateError("the client CA holds no certificate")
    try:
        context.load_verify_locations(cadata=bundle(trusted).decode("ascii"))
    except (OSError, ValueError) as error:
        raise CertificateError(f"the client CA is refused: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """A few words on `error`, none of them out of a key. `ssl.SSLError` is an OSError."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or "not readable"


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path under which `content` can be read for now, by us alone.

    In memory where that is possible: a container may have no file system to write to.
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
