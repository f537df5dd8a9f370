"""The rotation of certificates, as one decision that is taken again and again. Pure.

The steps of a rotation:

1. Create a successor of the signing authority, and publish it in the CA bundle with the signer.
2. Wait until all API servers have the bundle. The successor becomes the signer, and the previous
   signer is retired.
3. Sign a new leaf.
4. When all replicas serve the new leaf and the old one has expired, drop the retired authority.

All progress is read from the Secrets, so after a crash the same decision is taken again. The same
steps create the first certificate, and replace an authority that is lost, broken or expired. The
wait is skipped if no valid certificate is in use.

The bundle contains signer, successor and retired authorities, so step 2 does not change it.

A user may delete, empty or replace the Secrets at any time. So the bundle also contains the
authorities that were published before, until no replica needs them any more: see `retained`.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cryptography import x509

from certs.authority import (
    CA_LIFETIME,
    LEAF_LIFETIME,
    is_made_by_gpuward,
    may_sign_for,
    new_authority,
    sign_leaf,
)
from certs.keypairs import (
    CertificateError,
    KeyPair,
    certificate_names,
    is_in_date,
    is_issued_by,
)
from certs.secrets import CertificateState, latest_time


class RotationPolicy(NamedTuple):
    """The names and lifetimes of certificates.

    `propagation` is how long API servers may take to use a new CA bundle.
    """

    names: Sequence[str]
    ca_lifetime: datetime.timedelta = CA_LIFETIME
    leaf_lifetime: datetime.timedelta = LEAF_LIFETIME
    propagation: datetime.timedelta = datetime.timedelta(minutes=10)


class Observation(NamedTuple):
    """The facts that were observed outside the Secrets."""

    published_for: datetime.timedelta | None
    """For how long this process has seen the whole bundle in place; None if it is not.

    It is measured by a monotonic clock and starts again when the process restarts.
    """
    replicas: Mapping[str, x509.Certificate | None] | None
    """For each address the certificate that it serves, or None; None if no address is known."""
    trusted: Sequence[x509.Certificate] = ()
    """The authorities in the bundle, also those that are not in the Secrets."""


class SecretKind(enum.Enum):
    """The two Secrets that can be written."""

    AUTHORITY = "authority"
    SERVING = "serving"


class SecretChange(NamedTuple):
    """Write one Secret from `state`; `reason` is for the log."""

    secret: SecretKind
    state: CertificateState
    reason: str


_RENEWAL_SHARE_OF_LIFETIME = 2 / 3  # of the lifetime
_JITTER_SHARE_OF_LIFETIME = (
    0.05  # of the lifetime, earlier, so that installations do not renew at the same time
)
_MAX_RETIRED_AUTHORITIES = 4  # exceeded only if the replicas can never be observed
# Of those that are published and not in the Secrets. API servers limit the size of an object, which
# has the bundle once for each webhook, so what others add must not keep it from being written.
_MAX_RETAINED_AUTHORITIES = 8


def next_change(
    state: CertificateState,
    observation: Observation,
    now: datetime.datetime,
    policy: RotationPolicy,
) -> SecretChange | None:
    """The next Secret to write; None if there is nothing to do now.

    The caller makes the change, publishes the new bundle and calls this again with the new state.
    """
    return (
        _provide_successor(state, now, policy)
        or _promote(state, observation, now, policy)
        or _sign(state, observation, now, policy)
        or _drop_retired(state, observation, now)
    )


def retained(
    published: Iterable[x509.Certificate],
    state: CertificateState,
    replicas: Mapping[str, x509.Certificate | None] | None,
) -> tuple[x509.Certificate, ...]:
    """The `published` authorities that are not in `state`, and that replicas may still need.

    An authority whose certificate a replica serves stays published, even if gpuward has not made
    it. One of gpuward stays until every replica serves the newest certificate. All stay while it is
    not known what replicas serve; but of all, only as many as a bundle has room for, those in use
    first.
    """
    served = [certificate for certificate in (replicas or {}).values() if certificate]
    others = [authority for authority in published if authority not in state.trusted]
    in_use = [ca for ca in others if any(is_issued_by(ca, each) for each in served)]
    unknown = [ca for ca in others if ca not in in_use]
    if replicas is not None:
        newest = state.leaf.certificate if state.leaf else None
        are_current = all(certificate == newest for certificate in replicas.values())
        unknown = [ca for ca in unknown if not are_current and is_made_by_gpuward(ca)]
    return (*in_use, *unknown)[:_MAX_RETAINED_AUTHORITIES]


def renewal_time(certificate: x509.Certificate) -> datetime.datetime:
    """Return when to replace `certificate`; always the same time for the same certificate."""
    start = certificate.not_valid_before_utc
    life = certificate.not_valid_after_utc - start
    share = (certificate.serial_number % 1000) / 1000
    return start + life * (_RENEWAL_SHARE_OF_LIFETIME - _JITTER_SHARE_OF_LIFETIME * share)


def _provide_successor(
    state: CertificateState, now: datetime.datetime, policy: RotationPolicy
) -> SecretChange | None:
    signer = state.signer
    if _is_usable(state.successor, now, policy):
        needed = False
    elif signer is None or not _is_usable(signer, now, policy):
        needed = True
    else:
        needed = now >= renewal_time(signer.certificate)
    if needed:
        successor = new_authority(policy.names, now, policy.ca_lifetime)
        new = state._replace(successor=successor, is_persisted=True)
        return SecretChange(SecretKind.AUTHORITY, new, "a new authority will be published")
    if not state.is_persisted:
        # An authority found only in the serving Secret must be stored before that is written.
        return SecretChange(
            SecretKind.AUTHORITY,
            state._replace(is_persisted=True),
            "an authority was found in the serving Secret",
        )
    return None


def _promote(
    state: CertificateState,
    observation: Observation,
    now: datetime.datetime,
    policy: RotationPolicy,
) -> SecretChange | None:
    successor = state.successor
    if successor is None or not _is_usable(successor, now, policy):
        return None
    # Skip the propagation wait if no valid certificate is in use.
    nothing_works = not (
        _is_usable(state.signer, now, policy)
        or _is_any_leaf_in_use(state, observation, now, policy)
    )
    may_switch = nothing_works or _is_propagated(observation, policy)
    if observation.published_for is None or not may_switch:
        return None
    retired, until = state.retired, state.retired_until
    if state.signer is not None:
        retired = (*retired, state.signer.certificate)[-_MAX_RETIRED_AUTHORITIES:]
        leaf = state.leaf
        last = leaf.certificate.not_valid_after_utc if leaf else now + policy.leaf_lifetime
        until = latest_time((until, last))
    new = state._replace(signer=successor, successor=None, retired=retired, retired_until=until)
    return SecretChange(SecretKind.AUTHORITY, new, "the new authority signs from now on")


def _sign(
    state: CertificateState,
    observation: Observation,
    now: datetime.datetime,
    policy: RotationPolicy,
) -> SecretChange | None:
    signer, leaf = state.signer, state.leaf
    if signer is None or not _is_usable(signer, now, policy) or observation.published_for is None:
        return None
    if leaf is None or not _is_leaf_valid(state, now, policy):
        reason = "there is no valid certificate"
    elif not is_issued_by(signer.certificate, leaf.certificate):
        if not _is_propagated(observation, policy):
            return None
        reason = "another authority signed the certificate"
    elif now >= renewal_time(leaf.certificate):
        reason = "the certificate is due for renewal"
    else:
        return None
    signed = sign_leaf(signer, policy.names, now, policy.leaf_lifetime)
    return SecretChange(SecretKind.SERVING, state._replace(leaf=signed), reason)


def _drop_retired(
    state: CertificateState, observation: Observation, now: datetime.datetime
) -> SecretChange | None:
    signer, leaf = state.signer, state.leaf
    if not (state.retired and signer and leaf and observation.replicas):
        return None
    if not is_issued_by(signer.certificate, leaf.certificate):
        return None
    if any(served != leaf.certificate for served in observation.replicas.values()):
        return None
    if state.retired_until is not None and now <= state.retired_until:
        return None
    new = state._replace(retired=(), retired_until=None)
    return SecretChange(SecretKind.AUTHORITY, new, "no certificate of the old authority is in use")


def _is_propagated(observation: Observation, policy: RotationPolicy) -> bool:
    """Return whether every API server uses the bundle by now."""
    return observation.published_for is not None and observation.published_for >= policy.propagation


def _is_leaf_valid(state: CertificateState, now: datetime.datetime, policy: RotationPolicy) -> bool:
    """Return whether API servers that have the bundle accept the stored leaf."""
    leaf, issuer = state.leaf, state.issuer()
    if leaf is None or issuer is None or not is_in_date(issuer, now):
        return False
    try:
        has_names = set(certificate_names(leaf.certificate)) >= set(policy.names)
    except CertificateError:
        return False
    return has_names and is_in_date(leaf.certificate, now)


def _is_any_leaf_in_use(
    state: CertificateState,
    observation: Observation,
    now: datetime.datetime,
    policy: RotationPolicy,
) -> bool:
    """Return whether a valid leaf may be in use: the stored one, one of a retired CA, or another.

    Another one is what a replica serves, if gpuward has made it and API servers accept it: a
    certificate of another program is replaced on purpose, and new pods wait for that.
    """
    retired = state.retired_until is not None and now <= state.retired_until
    return (
        retired
        or _is_leaf_valid(state, now, policy)
        or any(
            served and is_in_date(served, now) and is_issued_by(authority, served)
            for served in (observation.replicas or {}).values()
            for authority in observation.trusted
            if is_made_by_gpuward(authority)
        )
    )


def _is_usable(authority: KeyPair | None, now: datetime.datetime, policy: RotationPolicy) -> bool:
    if authority is None or not is_in_date(authority.certificate, now):
        return False
    return may_sign_for(authority.certificate, policy.names)
