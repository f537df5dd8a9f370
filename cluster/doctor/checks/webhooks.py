"""Webhooks: until when the CAs in caBundles are valid, and in which order webhooks see pods."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from cluster.doctor.facts import DoctorFacts, by_name
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.source.objects import MUTATING, VALIDATING
from cluster.source.registered import is_own, webhooks_for_pods
from cluster.webhooks.webhook_client import UntrustedError, Validity, context_of, validity_of
from rules.base.json_values import as_object, as_objects, as_text
from terminal import DOCS_URL

# The validity of the CAs that API servers trust.

# As the alert GpuwardCertificateExpiresSoon: gpuward renews when a third of the lifetime is left.
_SOON = datetime.timedelta(days=14)
_SOON_OF_LIFETIME = 14 / 90


def ends_soon(validity: Validity, now: datetime.datetime) -> bool:
    """Return whether less is left than those who renew certificates in time leave.

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


_CA_BUNDLE = "CA bundle"
_OWN = f"see {DOCS_URL}/certificates.md: who writes caBundle depends on certificates.mode"
_FOREIGN = "renew the CA by the documents of this webhook, and write it into caBundle"
_LOG = "see whether `failed calling webhook` in the log of the API servers names it"


def check_ca_bundles(facts: DoctorFacts, *, of_gpuward: bool) -> Iterator[Row]:
    """One row for each caBundle of each configuration of gpuward, or of each other one.

    The check of the webhook says if configurations could not be listed, and if gpuward's own have
    no caBundle.
    """
    now = datetime.datetime.now(datetime.UTC)
    for resource in (MUTATING, VALIDATING):
        for name, item in by_name(facts.objects(resource)):
            if is_own(item) is not of_gpuward:
                continue
            policies: dict[str, set[str]] = {}
            for entry in webhooks_for_pods(item):
                bundle = as_text(as_object(entry.get("clientConfig")).get("caBundle"))
                policies.setdefault(bundle, set()).add(as_text(entry.get("failurePolicy")))
            if of_gpuward:
                policies.pop("", None)
            remedy = _OWN if of_gpuward else _FOREIGN
            for bundle, found in policies.items():
                effect = "admitted without it" if found == {"Ignore"} else "refused"
                yield _row(f"{name} ({resource.kind})", bundle, f"pods are {effect}", remedy, now)


def _row(subject: str, bundle: str, effect: str, remedy: str, now: datetime.datetime) -> Row:
    if not bundle:
        message = "there is no caBundle: the CAs of the API servers' hosts count"
        return not_known(_CA_BUNDLE, subject, message, _LOG)
    try:
        validity = longest_of(bundle)
    except UntrustedError as error:
        return wrong(_CA_BUNDLE, subject, f"{error}: {effect}", remedy)
    if validity is None:
        message = "caBundle holds certificates that are no CA's: until when cannot be read"
        return not_known(_CA_BUNDLE, subject, message, _LOG)
    until = f"{validity.end:%Y-%m-%d %H:%M} UTC"
    if validity.end < now:
        return wrong(_CA_BUNDLE, subject, f"the CA was valid until {until}: {effect}", remedy)
    if ends_soon(validity, now):
        message = f"the CA is valid until {until}, and nobody has renewed it; then {effect}"
        return wrong(_CA_BUNDLE, subject, message, remedy)
    return ok(_CA_BUNDLE, subject, f"the CA is valid until {until}")


# The order of the mutating webhooks for pods.

_WEBHOOK_ORDER = "webhook order"
_REMEDY = (
    "gpuward's own webhooks have reinvocationPolicy IfNeeded: run `helm upgrade` with the "
    "values of the release"
)


def check_webhook_order(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each foreign configuration that changes pods.

    API servers call mutating webhooks in the order of the names of their configurations. What a
    later one changes, gpuward sees again only with reinvocationPolicy IfNeeded, and only in pods
    that its match condition let through before.
    """
    configurations = list(by_name(facts.objects(MUTATING)))
    own = [(name, item) for name, item in configurations if is_own(item)]
    if not own:
        return  # the check of the webhook says why
    last = own[-1][0]
    sees_again = all(
        entry.get("reinvocationPolicy") == "IfNeeded"
        for _, item in own
        for _, entry in as_objects(item.get("webhooks"))
    )
    for name, item in configurations:
        if is_own(item) or not webhooks_for_pods(item):
            continue
        if name < last:
            yield ok(_WEBHOOK_ORDER, name, "is called before gpuward, which sees what it changes")
        elif sees_again:
            again = "is called again for the pods that it was sent"
            yield ok(_WEBHOOK_ORDER, name, f"is called after gpuward, which {again}")
        else:
            message = "is called after gpuward, which does not see what it changes"
            yield wrong(_WEBHOOK_ORDER, name, message, _REMEDY)
