"""Make a certificate authority and the serving certificates that it signs.

Pure: the time is passed in, always aware and in UTC. Keys are ECDSA P-256.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pki.keypairs import KeyPair

CA_LIFETIME = datetime.timedelta(days=365)
LEAF_LIFETIME = datetime.timedelta(days=90)
BACKDATING = datetime.timedelta(hours=1)  # for clocks that are behind ours
_ALL_NETWORKS = ("0.0.0.0/0", "::/0")


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names of a Service; API servers ask for the last."""
    return (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")


def new_authority(
    names: Sequence[str], now: datetime.datetime, lifetime: datetime.timedelta = CA_LIFETIME
) -> KeyPair:
    """A self-signed authority that can vouch for `names` (DNS names, IP addresses) alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # No two authorities share a subject, so a verifier never picks the wrong one of a bundle.
    subject = _name(f"gpuward webhook CA {serial:x}"[:32])
    builder = _builder(subject, subject, key, serial, now, now + lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    builder = builder.add_extension(_name_constraints(names), critical=True)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def sign_leaf(
    authority: KeyPair,
    names: Sequence[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta = LEAF_LIFETIME,
) -> KeyPair:
    """A serving certificate for `names`, which never outlives its authority."""
    issuer = authority.certificate
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + lifetime, issuer.not_valid_after_utc)
    # The names stand in the extension; a common name is limited to 64 characters.
    subject = _name("gpuward serving certificate")
    serial = x509.random_serial_number()
    builder = _builder(subject, issuer.subject, key, serial, now, until)
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
    """Whether `authority` is an authority, and not one made for other names."""
    try:
        if not authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        found = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return False
    except ValueError:  # an extension that cannot be parsed
        return False
    return set(found.permitted_subtrees or ()) >= set(
        _name_constraints(names).permitted_subtrees or ()
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    now: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial)
    builder = builder.not_valid_before(now - BACKDATING).not_valid_after(until)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False)


def _name(text: str) -> x509.Name:
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
    # What is not permitted is free where no name of its kind is permitted: addresses here.
    excluded = [x509.IPAddress(ipaddress.ip_network(network)) for network in _ALL_NETWORKS]
    some = any(isinstance(name, x509.IPAddress) for name in permitted)
    return x509.NameConstraints(permitted, None if some else excluded)
