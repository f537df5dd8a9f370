"""The rotation of certificates, as one decision taken again and again. Pure.

    make the successor -> it is published beside the signer -> wait -> it becomes the signer,
    the old one is retired -> sign a new leaf -> every replica serves it and the old leaf has
    expired -> the retired authority is dropped

What has been reached is read from the Secrets, so after a crash anywhere the same decision is
taken again. The first certificate, and an authority that is lost, broken or expired, are the
same road; where no leaf in use could come to harm, nothing is waited for.

Bundles hold every authority of the Secret, signer, successor and retired alike. So the step
from successor to signer does not change the bundle.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cryptography import x509

from certs.authority import (
    CA_LIFETIME,
    LEAF_LIFETIME,
    may_vouch_for,
    new_authority,
    sign_leaf,
)
from certs.checks import names_of
from certs.pairs import CertificateError, Pair, fingerprint, in_date, issued
from certs.store import Stored, latest

_RENEWED_AT = 2 / 3  # of its life
_JITTER = 0.05  # of its life, earlier; so that installations do not renew in step
_MOST_RETIRED = 4  # more is only possible if replicas can never be seen


class Plan(NamedTuple):
    """What certificates are for, how long they live, and how long a bundle takes to arrive."""

    names: Sequence[str]
    ca_lifetime: datetime.timedelta = CA_LIFETIME
    leaf_lifetime: datetime.timedelta = LEAF_LIFETIME
    propagation: datetime.timedelta = datetime.timedelta(minutes=10)


class Seen(NamedTuple):
    """What was seen of the world outside the Secrets."""

    published_for: datetime.timedelta | None
    """For how long this process has seen the whole bundle in place; None: it is not.

    Counted by a clock that never jumps, and anew after a restart.
    """
    replicas: Mapping[str, str | None] | None
    """By address the fingerprint that is served, or None; None as a whole: not known."""


class Where(enum.Enum):
    """Which of the two Secrets is written."""

    AUTHORITY = "authority"
    SERVING = "serving"


class Change(NamedTuple):
    """One Secret to be written with what `stored` says of it, and why."""

    where: Where
    stored: Stored
    why: str


def decide(stored: Stored, seen: Seen, now: datetime.datetime, plan: Plan) -> Change | None:
    """The next Secret to write; None if there is nothing to do for now.

    Called again, with what is then stored, after the change is made and its bundle published.
    """
    return (
        _provide_successor(stored, now, plan)
        or _promote(stored, seen, now, plan)
        or _sign(stored, seen, now, plan)
        or _drop_retired(stored, seen, now)
    )


def renewal(certificate: x509.Certificate) -> datetime.datetime:
    """When `certificate` is due to be replaced; the same whenever it is asked."""
    start = certificate.not_valid_before_utc
    life = certificate.not_valid_after_utc - start
    share = (certificate.serial_number % 1000) / 1000
    return start + life * (_RENEWED_AT - _JITTER * share)


def _provide_successor(stored: Stored, now: datetime.datetime, plan: Plan) -> Change | None:
    signer = stored.signer
    if _usable(stored.successor, now, plan):
        needed = False
    elif signer is None or not _usable(signer, now, plan):
        needed = True
    else:
        needed = now >= renewal(signer.certificate)
    if needed:
        successor = new_authority(plan.names, now, plan.ca_lifetime)
        new = stored._replace(successor=successor, settled=True)
        return Change(Where.AUTHORITY, new, "a new authority is to be published")
    if not stored.settled:
        # What only the serving Secret knew must be kept before that is written.
        return Change(Where.AUTHORITY, stored._replace(settled=True), "what was found is kept")
    return None


def _promote(stored: Stored, seen: Seen, now: datetime.datetime, plan: Plan) -> Change | None:
    successor = stored.successor
    if successor is None or not _usable(successor, now, plan):
        return None
    # Where nothing works anyway, nothing is to be gained by waiting.
    harmless = not _usable(stored.signer, now, plan) and not _in_use(stored, now, plan)
    if seen.published_for is None or not (harmless or _arrived(seen, plan)):
        return None
    retired, until = stored.retired, stored.retired_until
    if stored.signer is not None:
        retired = (*retired, stored.signer.certificate)[-_MOST_RETIRED:]
        leaf = stored.leaf
        last = leaf.certificate.not_valid_after_utc if leaf else now + plan.leaf_lifetime
        until = latest((until, last))
    new = stored._replace(signer=successor, successor=None, retired=retired, retired_until=until)
    return Change(Where.AUTHORITY, new, "the new authority signs from now on")


def _sign(stored: Stored, seen: Seen, now: datetime.datetime, plan: Plan) -> Change | None:
    signer, leaf = stored.signer, stored.leaf
    if signer is None or not _usable(signer, now, plan) or seen.published_for is None:
        return None
    if leaf is None or not _good(stored, now, plan):
        why = "there is no certificate that could be served"
    elif not issued(signer.certificate, leaf.certificate):
        if not _arrived(seen, plan):
            return None
        why = "the certificate is of another authority"
    elif now >= renewal(leaf.certificate):
        why = "the certificate is due"
    else:
        return None
    signed = sign_leaf(signer, plan.names, now, plan.leaf_lifetime)
    return Change(Where.SERVING, stored._replace(leaf=signed), why)


def _drop_retired(stored: Stored, seen: Seen, now: datetime.datetime) -> Change | None:
    signer, leaf = stored.signer, stored.leaf
    if not (stored.retired and signer and leaf and seen.replicas):
        return None
    if not issued(signer.certificate, leaf.certificate):
        return None
    if any(served != fingerprint(leaf.certificate) for served in seen.replicas.values()):
        return None
    if stored.retired_until is not None and now <= stored.retired_until:
        return None
    new = stored._replace(retired=(), retired_until=None)
    return Change(Where.AUTHORITY, new, "nothing in use is of the old authority")


def _arrived(seen: Seen, plan: Plan) -> bool:
    """Whether every API server knows the bundle by now."""
    return seen.published_for is not None and seen.published_for >= plan.propagation


def _good(stored: Stored, now: datetime.datetime, plan: Plan) -> bool:
    """Whether the stored leaf works for API servers that know the bundle."""
    leaf, issuer = stored.leaf, stored.issuer()
    if leaf is None or issuer is None or not in_date(issuer, now):
        return False
    try:
        named = set(names_of(leaf.certificate)) >= set(plan.names)
    except CertificateError:
        return False
    return named and in_date(leaf.certificate, now)


def _in_use(stored: Stored, now: datetime.datetime, plan: Plan) -> bool:
    """Whether a leaf may be in use that works: the stored one, or one of a retired authority."""
    retired = stored.retired_until is not None and now <= stored.retired_until
    return retired or _good(stored, now, plan)


def _usable(authority: Pair | None, now: datetime.datetime, plan: Plan) -> bool:
    if authority is None or not in_date(authority.certificate, now):
        return False
    return may_vouch_for(authority.certificate, plan.names)
