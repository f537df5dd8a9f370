"""Create a certificate authority (CA) and the serving certificates that it signs.

The functions read no clock: `now` is a parameter, an aware datetime in UTC. Keys are ECDSA P-256.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.keypairs import KeyPair

CA_LIFETIME = datetime.timedelta(days=365)
LEAF_LIFETIME = datetime.timedelta(days=90)
BACKDATING = datetime.timedelta(hours=1)  # for API servers whose clock is slow
_ALL_NETWORKS = ("0.0.0.0/0", "::/0")
_AUTHORITY_NAME, _LEAF_NAME = "gpuward webhook CA", "gpuward serving certificate"


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service; API servers use the last one."""
    return (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")


def new_authority(
    permitted_names: Sequence[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta = CA_LIFETIME,
) -> KeyPair:
    """Return a self-signed CA. It can sign only for `permitted_names`: DNS names, IP addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # No two CAs share a subject, so a verifier never picks the wrong one of a bundle.
    subject = _x509_name(f"{_AUTHORITY_NAME} {serial:x}"[:32])
    builder = _certificate_builder(subject, subject, key, serial, now, now + lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    builder = builder.add_extension(_name_constraints(permitted_names), critical=True)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def sign_leaf(
    authority: KeyPair,
    names: Sequence[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta = LEAF_LIFETIME,
) -> KeyPair:
    """Return a serving certificate for `names`, which expires no later than its CA."""
    issuer = authority.certificate
    key = ec.generate_private_key(ec.SECP256R1())
    not_after = min(now + lifetime, issuer.not_valid_after_utc)
    # The names are in the extension, because a common name is limited to 64 characters.
    subject = _x509_name(_LEAF_NAME)
    serial = x509.random_serial_number()
    builder = _certificate_builder(subject, issuer.subject, key, serial, now, not_after)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(_general_names(names)), False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def may_sign_for(authority: x509.Certificate, names: Sequence[str]) -> bool:
    """Return whether `authority` is a CA that can sign for all of `names`, by its constraints."""
    try:
        if not authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return False
    except ValueError:  # an extension that cannot be parsed
        return False
    return set(constraints.permitted_subtrees or ()) >= set(
        _name_constraints(names).permitted_subtrees or ()
    )


def is_made_by_gpuward(certificate: x509.Certificate) -> bool:
    """Return whether `certificate` has the subject of a CA or leaf certificate of this module."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(name.value).startswith((_AUTHORITY_NAME, _LEAF_NAME)) for name in names)


def _certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    now: datetime.datetime,
    not_after: datetime.datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial)
    builder = builder.not_valid_before(now - BACKDATING).not_valid_after(not_after)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False)


def _x509_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_address(name) or x509.DNSName(name) for name in names]


def _address(name: str) -> x509.IPAddress | None:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return None


def _name_constraints(names: Sequence[str]) -> x509.NameConstraints:
    permitted: list[x509.GeneralName] = []
    for name in names:
        address = _address(name)
        permitted.append(
            x509.IPAddress(ipaddress.ip_network(name)) if address else x509.DNSName(name)
        )
    # Without a permitted name of some kind, every name of that kind is allowed. So exclude all IP
    # addresses, unless some are permitted.
    excluded = [x509.IPAddress(ipaddress.ip_network(network)) for network in _ALL_NETWORKS]
    has_addresses = any(isinstance(name, x509.IPAddress) for name in permitted)
    return x509.NameConstraints(permitted, None if has_addresses else excluded)
