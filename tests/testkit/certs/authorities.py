"""Certificate authorities for tests."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from certs.keypairs import KeyPair


def foreign_authority(now: datetime.datetime) -> KeyPair:
    """A CA that gpuward has not made, valid for a day."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=Corp")
    end = now + datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, end)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    for extension in (x509.BasicConstraints(ca=True, path_length=None), identifier):
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)
