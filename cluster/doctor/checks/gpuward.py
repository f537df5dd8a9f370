"""gpuward's own webhook: it is registered, has ready replicas, and answers as it should."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator

from cluster.doctor.facts import Facts, name_of, why_missing
from cluster.protocols import ConfigurationKind, ConfigurationRef
from cluster.source.objects import Object, Resource
from cluster.source.registered import is_own
from cluster.webhooks.check import Probe, check
from cluster.webhooks.webhook_client import Target, UnknownNameError, UnreachableError, Validity
from cluster_commands.doctor.expiry import ends_soon
from cluster_commands.doctor.rows import Row, State, not_known, ok, wrong
from cluster_commands.source.resources import ENDPOINTS, MUTATING, VALIDATING
from registration.hints import hint_about_certificate
from registration.sample import check_certificate, send_sample
from rules.base.json_access import as_object, as_objects, as_text

_CHECK = "webhook"
_KINDS = {MUTATING: ConfigurationKind.MUTATING, VALIDATING: ConfigurationKind.VALIDATING}
_SERVICE = "kubernetes.io/service-name"
_INSTALL = "install it: docs/install.md"
_FROM_INSIDE = (
    "run it in a pod of the cluster, or `gpuward webhooks check --address` with a port-forward"
)


def check_own_webhook(facts: Facts, *, tls_only: bool) -> Iterator[Row]:
    """One row for each configuration that is missing, each Service and each address.

    With `tls_only` addresses are connected to, and no sample is sent.
    """
    refs = []
    for resource, kind in _KINDS.items():
        if row := why_missing(facts, _CHECK, resource):
            yield row
            continue
        found = [item for item in facts.objects(resource) if is_own(item)]
        if not found:
            yield wrong(_CHECK, resource.name, "none is gpuward's: it is not installed", _INSTALL)
        refs += [ConfigurationRef(kind, name_of(item)) for item in found]
    if refs:
        yield from _replicas(facts)
        yield from _answers(facts, refs, check_certificate if tls_only else send_sample)


def own_configurations(facts: Facts, resource: Resource) -> list[Object]:
    """The configurations of gpuward."""
    return [item for item in facts.objects(resource) if is_own(item)]


def _replicas(facts: Facts) -> Iterator[Row]:
    services = {
        (as_text(service.get("namespace")), as_text(service.get("name")))
        for resource in _KINDS
        for item in own_configurations(facts, resource)
        for _, entry in as_objects(item.get("webhooks"))
        if (service := as_object(as_object(entry.get("clientConfig")).get("service")))
    }
    for namespace, name in sorted(services):
        subject = f"service/{name} in {namespace}"
        if row := why_missing(facts, _CHECK, ENDPOINTS):
            yield row._replace(subject=subject)
            continue
        ready = sum(
            as_object(endpoint.get("conditions")).get("ready") is not False
            for item in facts.objects(ENDPOINTS)
            if _belongs(item, namespace, name)
            for _, endpoint in as_objects(item.get("endpoints"))
        )
        if ready:
            yield ok(_CHECK, subject, f"{ready} ready replica{'s' if ready > 1 else ''}")
        else:
            remedy = f"see why: kubectl get pods -n {namespace}; docs/resilience.md"
            yield wrong(_CHECK, subject, "no ready replica: API servers reach nobody", remedy)


def _belongs(item: Object, namespace: str, service: str) -> bool:
    metadata = as_object(item.get("metadata"))
    named = as_object(metadata.get("labels")).get(_SERVICE)
    return (as_text(metadata.get("namespace")), named) == (namespace, service)


def _answers(facts: Facts, refs: list[ConfigurationRef], call: Probe) -> Iterator[Row]:
    """Call every address, as `gpuward webhooks check` does."""
    if facts.request is None:
        message = "the objects are from files, so it was not called"
        yield not_known(_CHECK, "calls", message, "run it against the cluster")
        return
    now = datetime.datetime.now(datetime.UTC)
    unreachable: set[str] = set()
    late: dict[str, str] = {}  # what to do about certificates that nobody has renewed, by URL

    def probe(target: Target) -> tuple[str, Validity]:
        try:
            message, validity = call(target)
        except (UnknownNameError, UnreachableError):
            unreachable.add(target.url)
            raise
        if ends_soon(validity, now):
            late[target.url] = hint_about_certificate(target)
        return message, validity

    items = {
        (kind, name_of(item)): item
        for resource, kind in _KINDS.items()
        for item in facts.objects(resource)
    }
    is_inside = "KUBERNETES_SERVICE_HOST" in os.environ
    for result in check(lambda ref: items.get((ref.kind, ref.name)), probe, refs).results:
        if remedy := late.get(result.subject):
            message = f"{result.message}: nobody has renewed it"
            yield wrong(_CHECK, result.subject, message, remedy)
        elif result.ok:
            yield ok(_CHECK, result.subject, result.message)
        elif result.subject in unreachable and not is_inside:
            message = f"cannot be reached from here: {result.message}"
            yield not_known(_CHECK, result.subject, message, _FROM_INSIDE)
        else:
            remedy = result.hint or "see docs/resilience.md"
            yield Row(_CHECK, result.subject, State.WRONG, result.message, remedy)
