"""The contents of the two Secrets: the whole state of the rotation, so that a crash loses nothing.

- The authority's Secret: the signing authority (`ca.crt`, `ca.key`), its successor while that is
  being published (`next.crt`, `next.key`), authorities that no longer sign and are still trusted
  (`retired.crt`), and until when certificates of theirs may be in use (`retired-until`).
- The serving Secret: `tls.crt`, `tls.key`, and in `ca.crt` the authority that signed them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cryptography import x509

from certs.authority import is_made_by_gpuward
from certs.keypairs import (
    CERTIFICATE_FILE,
    KEY_FILE,
    CertificateError,
    KeyPair,
    is_issued_by,
    parse_certificates,
    parse_key_pair,
    pem_bundle,
)

CA_FIELD, CA_KEY_FIELD = "ca.crt", "ca.key"
NEXT_FIELD, NEXT_KEY_FIELD = "next.crt", "next.key"
RETIRED_FIELD, RETIRED_UNTIL_FIELD = "retired.crt", "retired-until"

AUTHORITY_FIELDS = frozenset(
    (CA_FIELD, CA_KEY_FIELD, NEXT_FIELD, NEXT_KEY_FIELD, RETIRED_FIELD, RETIRED_UNTIL_FIELD)
)
SERVING_FIELDS = frozenset((CERTIFICATE_FILE, KEY_FILE, CA_FIELD))
_MAX_SUBJECT_CHARACTERS = 200
_MAX_NAMED_FIELDS = 3


class ForeignSecretError(CertificateError):
    """A Secret holds what gpuward has not made, and must not overwrite."""


class CertificateState(NamedTuple):
    """The contents of both Secrets; any part may be missing."""

    signer: KeyPair | None = None
    successor: KeyPair | None = None
    retired: tuple[x509.Certificate, ...] = ()
    retired_until: datetime.datetime | None = None
    """When the last certificate of a retired authority expires; None if there is none."""
    leaf: KeyPair | None = None
    is_persisted: bool = True
    """Whether the authority's Secret holds exactly this; False if `decode` corrected something."""

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """The authorities that the CA bundle must contain."""
        pairs = (self.signer, self.successor)
        return (*(pair.certificate for pair in pairs if pair), *self.retired)

    def issuer(self) -> x509.Certificate | None:
        """The trusted authority that signed the leaf."""
        return _issuer_among(self.leaf, self.trusted)


def refuse_foreign(data: Mapping[str, bytes], fields: Collection[str]) -> None:
    """Raise ForeignSecretError if the data of a Secret is not gpuward's.

    It is foreign if it has a certificate that gpuward has not made, or none of `fields`. What
    cannot be read is no certificate.
    """
    if data and not any(field in data for field in fields):
        found = ", ".join(sorted(data)[:_MAX_NAMED_FIELDS])
        raise ForeignSecretError(f"its data is not that of a certificate: {found}")
    for field in (CA_FIELD, NEXT_FIELD, CERTIFICATE_FILE):
        for certificate in _certificates(data, field)[:1]:
            if not is_made_by_gpuward(certificate):
                subject = certificate.subject.rfc4514_string()[:_MAX_SUBJECT_CHARACTERS]
                raise ForeignSecretError(f"{field} is not a certificate of gpuward: {subject!r}")


def decode(authority: Mapping[str, bytes], serving: Mapping[str, bytes]) -> CertificateState:
    """The state in the data of the two Secrets; whatever cannot be read counts as missing.

    An authority whose key is lost, or that only the serving Secret still has, counts as retired,
    because certificates that it signed are in use.
    """
    signer = _key_pair(authority, CA_FIELD, CA_KEY_FIELD)
    leaf = _key_pair(serving, CERTIFICATE_FILE, KEY_FILE)
    retired = set(_certificates(authority, RETIRED_FIELD))
    found = set() if signer else set(_certificates(authority, CA_FIELD))
    successor = _key_pair(authority, NEXT_FIELD, NEXT_KEY_FIELD)
    known = {pair.certificate for pair in (signer, successor) if pair} | retired | found
    if _issuer_among(leaf, known) is None:
        found |= {ca for ca in _certificates(serving, CA_FIELD) if _issuer_among(leaf, [ca])}
    until = _parse_retired_until(authority) or latest_time(ca.not_valid_after_utc for ca in retired)
    if found and leaf:
        until = latest_time((until, leaf.certificate.not_valid_after_utc))
    elif found:
        until = latest_time((until, *(ca.not_valid_after_utc for ca in found)))
    trusted = tuple(sorted(retired | found, key=lambda ca: ca.not_valid_after_utc))
    state = CertificateState(signer, successor, trusted, until if trusted else None, leaf)
    present = {name: content for name, content in authority.items() if content}
    return state._replace(is_persisted=encode_authority(state) == present)


def encode_authority(state: CertificateState) -> dict[str, bytes]:
    """The data of the authority's Secret."""
    data: dict[str, bytes] = {}
    for pair, certificate, key in (
        (state.signer, CA_FIELD, CA_KEY_FIELD),
        (state.successor, NEXT_FIELD, NEXT_KEY_FIELD),
    ):
        if pair:
            data |= {certificate: pair.certificate_pem, key: pair.key_pem}
    if state.retired:
        data[RETIRED_FIELD] = pem_bundle(state.retired)
        if state.retired_until:
            data[RETIRED_UNTIL_FIELD] = state.retired_until.isoformat().encode()
    return data


def encode_serving(state: CertificateState) -> dict[str, bytes]:
    """The data of the serving Secret, without the authority's key; ValueError without a leaf."""
    issuer = state.issuer()
    if state.leaf is None or issuer is None:
        raise ValueError("there is no certificate of a known authority to write")
    leaf = state.leaf
    return {
        CERTIFICATE_FILE: leaf.certificate_pem,
        KEY_FILE: leaf.key_pem,
        CA_FIELD: pem_bundle([issuer]),
    }


def latest_time(times: Iterable[datetime.datetime | None]) -> datetime.datetime | None:
    """The latest of `times`; None if there is none."""
    return max((time for time in times if time is not None), default=None)


def _issuer_among(
    leaf: KeyPair | None, among: Iterable[x509.Certificate]
) -> x509.Certificate | None:
    if leaf is None:
        return None
    return next((ca for ca in among if is_issued_by(ca, leaf.certificate)), None)


def _key_pair(data: Mapping[str, bytes], certificate: str, key: str) -> KeyPair | None:
    try:
        return parse_key_pair(data.get(certificate, b""), data.get(key, b""))
    except CertificateError:
        return None


def _certificates(data: Mapping[str, bytes], name: str) -> tuple[x509.Certificate, ...]:
    try:
        return parse_certificates(data.get(name, b""))
    except CertificateError:
        return ()


def _parse_retired_until(data: Mapping[str, bytes]) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(data.get(RETIRED_UNTIL_FIELD, b"").decode("ascii"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
