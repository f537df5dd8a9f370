"""What the decision about a rotation is made from, and what it says."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from certs.authority import CA_LIFETIME, LEAF_LIFETIME
from certs.secrets import CertificateState


class RotationPolicy(NamedTuple):
    """The names and lifetimes of certificates.

    `propagation` is how long API servers may take to use a new CA bundle.
    """

    names: Sequence[str]
    ca_lifetime: datetime.timedelta = CA_LIFETIME
    leaf_lifetime: datetime.timedelta = LEAF_LIFETIME
    propagation: datetime.timedelta = datetime.timedelta(minutes=10)


class Observation(NamedTuple):
    """What was observed outside the Secrets."""

    published_for: datetime.timedelta | None
    """For how long this process has seen the whole bundle in place; None if it is not.

    It is measured by a monotonic clock and starts again when the process restarts.
    """
    replicas: Mapping[str, str | None] | None
    """For each address the fingerprint of its certificate, or None; None if not known."""


class SecretKind(enum.Enum):
    """Which of the two Secrets is written."""

    AUTHORITY = "authority"
    SERVING = "serving"


class Change(NamedTuple):
    """Write one Secret from `state`; `reason` is for the log."""

    secret: SecretKind
    state: CertificateState
    reason: str
