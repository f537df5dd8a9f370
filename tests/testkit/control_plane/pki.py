"""A certificate authority for the control plane and for the webhooks that it calls."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class KeyPairFiles:
    """A certificate, or a public key, and its private key: two PEM files."""

    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """The TLS settings of a server with this certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority:
    """Creates a root certificate, and issues certificates into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("gpuward-test-ca")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(name, name, self._key).add_extension(basic, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        #: The PEM of the root certificate: `caBundle` before base64
        self.bundle = self._certificate.public_bytes(Encoding.PEM)
        #: A file with the same content
        self.file = folder / "ca.crt"
        self.file.write_bytes(self.bundle)

    def issue(
        self,
        name: str,
        *,
        common_name: str | None = None,
        groups: Iterable[str] = (),
        hosts: Iterable[str] = (),
    ) -> KeyPairFiles:
        """A certificate for a user (`common_name` and `groups`) or a server (`hosts`).

        `hosts` are DNS names and IP addresses. `name` is the name of the files.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(common_name or name, groups)
        builder = _builder(subject, self._certificate.subject, key)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return _write(self.folder, name, certificate, key)


def signing_keys(folder: Path, name: str) -> KeyPairFiles:
    """A key pair without a certificate, with which tokens are signed and verified."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return _write(folder, name, public, key)


def _write(folder: Path, name: str, public: bytes, key: ec.EllipticCurvePrivateKey) -> KeyPairFiles:
    pair = KeyPairFiles(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(public)
    pair.key.touch(mode=0o600)
    pair.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    return pair


def _name(common_name: str, groups: Iterable[str] = ()) -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
    parts.append((NameOID.COMMON_NAME, common_name))
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    # The validity begins a day ago, in case the clocks differ.
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 7 * DAY)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
