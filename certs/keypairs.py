"""Read, compare and write certificates and keys in PEM form."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID


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


def pem_bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return the PEM text of `certificates`, which does not depend on their order."""
    pems = {c.public_bytes(serialization.Encoding.PEM) for c in certificates}
    return b"".join(sorted(pems))


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate, in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def is_in_date(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    """Return whether `certificate` is valid at `now` as far as its dates go."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def is_issued_by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the key of `authority` signed `certificate`. The dates are not checked."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


CERTIFICATE_FILE, KEY_FILE = "tls.crt", "tls.key"


def validate_key_pair(
    certificate: bytes, key: bytes, server_name: str | None, now: datetime.datetime
) -> x509.Certificate:
    """Return the serving certificate, if a server may use it at the time `now`.

    `certificate` is PEM text: the serving certificate, then its issuers. `key` is the PEM text of
    its private key. The certificate must be for `server_name`, unless that is None. Raises
    CertificateError with the reason if a server must not use the certificate.
    """
    for name, content in ((CERTIFICATE_FILE, certificate), (KEY_FILE, key)):
        if not content.strip():
            raise CertificateError(f"{name} is empty")
    if not parse_certificates(certificate):
        raise CertificateError(f"there is no certificate in {CERTIFICATE_FILE}")
    leaf = parse_key_pair(certificate, key).certificate
    if not is_in_date(leaf, now):
        first, last = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        word = "not valid before" if now < first else "expired at"
        raise CertificateError(f"{word} {(first if now < first else last).isoformat()}")
    names = certificate_names(leaf)
    if server_name is not None and not any(_covers_name(name, server_name) for name in names):
        covered = ", ".join(names) or "no name"
        raise CertificateError(f"the certificate is for {covered}, and not for {server_name}")
    if not _may_serve(leaf):
        raise CertificateError("the extended key usage of the certificate does not allow serving")
    return leaf


def certificate_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses that `certificate` is for.

    Raises CertificateError if its extension of names cannot be read.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except ValueError:
        raise CertificateError("the names of the certificate cannot be read") from None
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


def _covers_name(pattern: str, name: str) -> bool:
    """Return whether a name in a certificate matches `name`; a wildcard matches one label."""
    pattern, name = pattern.lower(), name.lower()
    if pattern.startswith("*."):
        label, _, rest = name.partition(".")
        return bool(label) and rest == pattern[2:]
    return pattern == name


def _may_serve(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return any(
        oid in usage
        for oid in (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
    )
