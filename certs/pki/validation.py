"""What a serving certificate must be before it is served."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.pki.keypairs import CertificateError, is_in_date, parse_certificates, parse_key_pair

CERTIFICATE, KEY = "tls.crt", "tls.key"


def validate_key_pair(
    certificate: bytes, key: bytes, server_name: str | None, now: datetime.datetime
) -> x509.Certificate:
    """The certificate that would be served; CertificateError says why it must not be.

    `certificate` is PEM, the certificate itself before its issuers; `key` is its private key
    as PEM. With no `server_name` any name will do.
    """
    for name, content in ((CERTIFICATE, certificate), (KEY, key)):
        if not content.strip():
            raise CertificateError(f"{name} is empty")
    if not parse_certificates(certificate):
        raise CertificateError(f"there is no certificate in {CERTIFICATE}")
    served = parse_key_pair(certificate, key).certificate
    if not is_in_date(served, now):
        first, last = served.not_valid_before_utc, served.not_valid_after_utc
        word = "not valid before" if now < first else "expired at"
        raise CertificateError(f"{word} {(first if now < first else last).isoformat()}")
    names = names_of(served)
    if server_name is not None and not any(_covers(name, server_name) for name in names):
        covered = ", ".join(names) or "no name"
        raise CertificateError(f"it is for {covered}, and not for {server_name}")
    if not _may_serve(served):
        raise CertificateError("its extended key usage does not allow serving")
    return served


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names and IP addresses that `certificate` is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except ValueError:
        raise CertificateError("its names cannot be read") from None
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


def _covers(pattern: str, name: str) -> bool:
    """Whether a name in a certificate stands for `name`; a wildcard stands for one label."""
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
