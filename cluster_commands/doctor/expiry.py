"""Until when certificates hold, and whether somebody should have renewed them."""

from __future__ import annotations

import datetime

from cluster.webhooks.webhook_client import Validity, context_of, validity_of

# As the alert GpuwardCertificateExpiresSoon: gpuward renews when a third of the lifetime is left.
_SOON = datetime.timedelta(days=14)
_SOON_OF_LIFETIME = 14 / 90


def ends_soon(validity: Validity, now: datetime.datetime) -> bool:
    """Whether less is left than those who renew certificates in time leave.

    That is 14 days, or 14 ninetieths of a lifetime of less than 90 days.
    """
    lifetime = validity.end - validity.start
    return validity.end - now < min(_SOON, lifetime * _SOON_OF_LIFETIME)


def longest_of(bundle: str) -> Validity | None:
    """The validity of that CA in a caBundle which holds longest.

    None if certificates of other kinds are in it, whose validity cannot be read. Raises
    UntrustedError if there is no certificate.
    """
    context = context_of(bundle)
    authorities = [validity_of(found) for found in context.get_ca_certs()]
    if len(authorities) < context.cert_store_stats()["x509"]:
        return None
    return max(authorities, key=lambda validity: validity.end)
