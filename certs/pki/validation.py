"""Validate a serving certificate before a server uses it."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.keypairs import CertificateError, is_in_date, parse_certificates, parse_key_pair

CERTIFICATE, KEY = "tls.crt", "tls.key"


def validate_key_pair(
    certificate: bytes, key: bytes, server_name: str | None, now: datetime.datetime
) -> x509.Certificate:
    """Return the serving certificate, if a server may use it at the time `now`.

    `certificate` is PEM text: the serving certificate, then its issuers. `key` is the PEM text of
    its private key. The certificate must be for `server_name`, unless that is None. Raises
    CertificateError with the reason if a server must not use the certificate.
    """
    for name, content in ((CERTIFICATE, certificate), (KEY, key)):
        if not content.strip():
            raise CertificateError(f"{name} is empty")
    if not parse_certificates(certificate):
        raise CertificateError(f"there is no certificate in {CERTIFICATE}")
    leaf = parse_key_pair(certificate, key).certificate
    if not is_in_date(leaf, now):
        first, last = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        word = "not valid before" if now < first else "expired at"
        raise CertificateError(f"{word} {(first if now < first else last).isoformat()}")
    names = names_of(leaf)
    if server_name is not None and not any(_covers(name, server_name) for name in names):
        covered = ", ".join(names) or "no name"
        raise CertificateError(f"the certificate is for {covered}, and not for {server_name}")
    if not _may_serve(leaf):
        raise CertificateError("the extended key usage of the certificate does not allow serving")
    return leaf


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
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


def _covers(pattern: str, name: str) -> bool:
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
