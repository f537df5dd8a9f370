"""Read, compare and write certificates and keys in PEM form."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes


class CertificateError(Exception):
    """A certificate or key cannot be used. The message has the reason, and never a key."""


class KeyPair(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as unencrypted PKCS #8 PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def parse_key_pair(certificate_pem: bytes, key_pem: bytes) -> KeyPair:
    """Return the first certificate and the private key.

    Raises CertificateError if one of them cannot be read, or if they do not belong together.
    """
    certificates = parse_certificates(certificate_pem)
    if not certificates:
        raise CertificateError("there is no certificate in the PEM text")
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except TypeError:
        raise CertificateError("the private key is encrypted") from None
    except Exception:  # noqa: BLE001  # the library raises many types, and may quote the key
        raise CertificateError("the private key cannot be read") from None
    if key.public_key() != certificates[0].public_key():
        raise CertificateError("the private key does not belong to the certificate")
    return KeyPair(certificates[0], key)  # type: ignore[arg-type]  # a key with a certificate can sign


def parse_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates in `pem`, in their order; an empty tuple if there is none.

    Raises CertificateError if one cannot be read.
    """
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError:
        raise CertificateError("the certificate cannot be read") from None


def bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return the PEM text of `certificates`, which does not depend on their order."""
    pems = {c.public_bytes(serialization.Encoding.PEM) for c in certificates}
    return b"".join(sorted(pems))


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate, in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def is_in_date(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether `certificate` is valid at `now` as far as its dates go."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def is_issued_by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the key of `authority` signed `certificate`. The dates are not checked."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
