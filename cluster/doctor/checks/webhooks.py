"""The CAs that API servers trust for the webhooks to which they send pods, gpuward's and others."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from cluster.doctor.facts import Facts, by_name
from cluster.source.registered import is_own
from cluster.webhooks.webhook_client import UntrustedError
from cluster_commands.doctor.expiry import ends_soon, longest_of
from cluster_commands.doctor.registered import webhooks_for_pods
from cluster_commands.doctor.rows import Row, not_known, ok, wrong
from cluster_commands.source.resources import MUTATING, VALIDATING
from rules.base.json_access import as_object, as_text

_CHECK = "CA bundle"
_OWN = "see docs/certificates.md: who writes caBundle depends on certificates.mode"
_FOREIGN = "renew the CA by the documents of this webhook, and write it into caBundle"
_LOG = "see whether `failed calling webhook` in the log of the API servers names it"


def check_ca_bundles(facts: Facts) -> Iterator[Row]:
    """One row for each caBundle of each configuration.

    The check of the webhook says if configurations could not be listed, and if gpuward's own have
    no caBundle.
    """
    now = datetime.datetime.now(datetime.UTC)
    for resource in (MUTATING, VALIDATING):
        for name, item in by_name(facts.objects(resource)):
            policies: dict[str, set[str]] = {}
            for entry in webhooks_for_pods(item):
                bundle = as_text(as_object(entry.get("clientConfig")).get("caBundle"))
                policies.setdefault(bundle, set()).add(as_text(entry.get("failurePolicy")))
            if is_own(item):
                policies.pop("", None)
            remedy = _OWN if is_own(item) else _FOREIGN
            for bundle, found in policies.items():
                effect = "admitted without it" if found == {"Ignore"} else "refused"
                yield _row(f"{name} ({resource.kind})", bundle, f"pods are {effect}", remedy, now)


def _row(subject: str, bundle: str, effect: str, remedy: str, now: datetime.datetime) -> Row:
    if not bundle:
        message = "there is no caBundle: the CAs of the API servers' hosts count"
        return not_known(_CHECK, subject, message, _LOG)
    try:
        validity = longest_of(bundle)
    except UntrustedError as error:
        return wrong(_CHECK, subject, f"{error}: {effect}", remedy)
    if validity is None:
        message = "caBundle holds certificates that are no CA's: until when cannot be read"
        return not_known(_CHECK, subject, message, _LOG)
    until = f"{validity.end:%Y-%m-%d %H:%M} UTC"
    if validity.end < now:
        return wrong(_CHECK, subject, f"the CA was valid until {until}: {effect}", remedy)
    if ends_soon(validity, now):
        message = f"the CA is valid until {until}, and nobody has renewed it; then {effect}"
        return wrong(_CHECK, subject, message, remedy)
    return ok(_CHECK, subject, f"the CA is valid until {until}")
