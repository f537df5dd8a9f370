"""What the two Secrets hold: everything there is to know, so that a crash loses nothing.

The authority's Secret: the signing authority (`ca.crt`, `ca.key`), its successor that is being
published (`next.crt`, `next.key`), authorities that sign no more but are still trusted
(`retired.crt`), and until when certificates of theirs may be in use (`retired-until`).
The serving Secret: `tls.crt`, `tls.key`, and as `ca.crt` the authority that signed them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cryptography import x509

from certs.checks import CERTIFICATE, KEY
from certs.pairs import CertificateError, Pair, bundle, issued, parse_certificates, parse_pair

CA, CA_KEY = "ca.crt", "ca.key"
NEXT, NEXT_KEY = "next.crt", "next.key"
RETIRED, RETIRED_UNTIL = "retired.crt", "retired-until"


class Stored(NamedTuple):
    """The contents of both Secrets, of which any part may be missing."""

    signer: Pair | None = None
    successor: Pair | None = None
    retired: tuple[x509.Certificate, ...] = ()
    retired_until: datetime.datetime | None = None
    """When the last certificate of a retired authority has expired; None without any."""
    leaf: Pair | None = None
    settled: bool = True
    """Whether the authority's Secret says just this; False if something was mended in reading."""

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """The authorities to be published."""
        pairs = (self.signer, self.successor)
        return (*(pair.certificate for pair in pairs if pair), *self.retired)

    def issuer(self) -> x509.Certificate | None:
        """The trusted authority that signed the leaf."""
        return _issuer(self.leaf, self.trusted)


def decode(authority: Mapping[str, bytes], serving: Mapping[str, bytes]) -> Stored:
    """What the data of the two Secrets say; whatever cannot be read is missing.

    An authority whose key is lost, or that only the serving Secret still knows, counts as
    retired: certificates of its making are in use.
    """
    signer = _pair(authority, CA, CA_KEY)
    leaf = _pair(serving, CERTIFICATE, KEY)
    retired = set(_certificates(authority, RETIRED))
    found = set() if signer else set(_certificates(authority, CA))
    successor = _pair(authority, NEXT, NEXT_KEY)
    known = {pair.certificate for pair in (signer, successor) if pair} | retired | found
    if _issuer(leaf, known) is None:
        found |= {ca for ca in _certificates(serving, CA) if _issuer(leaf, [ca])}
    until = _time(authority) or latest(ca.not_valid_after_utc for ca in retired)
    if found and leaf:
        until = latest((until, leaf.certificate.not_valid_after_utc))
    elif found:
        until = latest((until, *(ca.not_valid_after_utc for ca in found)))
    trusted = tuple(sorted(retired | found, key=lambda ca: ca.not_valid_after_utc))
    stored = Stored(signer, successor, trusted, until if trusted else None, leaf)
    present = {name: content for name, content in authority.items() if content}
    return stored._replace(settled=encode_authority(stored) == present)


def encode_authority(stored: Stored) -> dict[str, bytes]:
    """The data of the authority's Secret."""
    data: dict[str, bytes] = {}
    for pair, certificate, key in (
        (stored.signer, CA, CA_KEY),
        (stored.successor, NEXT, NEXT_KEY),
    ):
        if pair:
            data |= {certificate: pair.certificate_pem, key: pair.key_pem}
    if stored.retired:
        data[RETIRED] = bundle(stored.retired)
        if stored.retired_until:
            data[RETIRED_UNTIL] = stored.retired_until.isoformat().encode()
    return data


def encode_serving(stored: Stored) -> dict[str, bytes]:
    """The data of the serving Secret; without the authority's key."""
    issuer = stored.issuer()
    if stored.leaf is None or issuer is None:
        raise ValueError("there is no certificate of a known authority to write")
    leaf = stored.leaf
    return {CERTIFICATE: leaf.certificate_pem, KEY: leaf.key_pem, CA: bundle([issuer])}


def latest(times: Iterable[datetime.datetime | None]) -> datetime.datetime | None:
    """The last of `times`, None if there is none."""
    return max((time for time in times if time is not None), default=None)


def _issuer(leaf: Pair | None, among: Iterable[x509.Certificate]) -> x509.Certificate | None:
    if leaf is None:
        return None
    return next((ca for ca in among if issued(ca, leaf.certificate)), None)


def _pair(data: Mapping[str, bytes], certificate: str, key: str) -> Pair | None:
    try:
        return parse_pair(data.get(certificate, b""), data.get(key, b""))
    except CertificateError:
        return None


def _certificates(data: Mapping[str, bytes], name: str) -> tuple[x509.Certificate, ...]:
    try:
        return parse_certificates(data.get(name, b""))
    except CertificateError:
        return ()


def _time(data: Mapping[str, bytes]) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(data.get(RETIRED_UNTIL, b"").decode("ascii"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
