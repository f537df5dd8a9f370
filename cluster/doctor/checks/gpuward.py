"""gpuward's own webhook: it is registered, has ready replicas, and answers as it should."""

from __future__ import annotations

import datetime
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cluster.api.errors import ClusterError, ConfigurationKind, ConfigurationRef, ForbiddenError
from cluster.doctor.checks.webhooks import ends_soon
from cluster.doctor.facts import Facts, by_name, name_of, why_missing
from cluster.doctor.rows import Row, State, names, not_known, ok, wrong
from cluster.source.objects import ENDPOINTS, MUTATING, NAMESPACES, VALIDATING, Object, Resource
from cluster.source.registered import is_own, registered_mode
from cluster.webhooks.check import (
    Probe,
    check,
    check_certificate,
    hint_about_certificate,
    send_sample,
)
from cluster.webhooks.webhook_client import Target, UnknownNameError, UnreachableError, Validity
from rules.base.json_values import as_object, as_objects, as_text
from rules.finding import Action
from webhook.registration import MODE_LABEL, WEBHOOK_NAME_SUFFIX

_WEBHOOK = "webhook"
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
        if row := why_missing(facts, _WEBHOOK, resource):
            yield row
            continue
        found = [item for item in facts.objects(resource) if is_own(item)]
        if not found:
            yield wrong(_WEBHOOK, resource.name, "none is gpuward's: it is not installed", _INSTALL)
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
        if row := why_missing(facts, _WEBHOOK, ENDPOINTS):
            yield row._replace(subject=subject)
            continue
        ready = sum(
            as_object(endpoint.get("conditions")).get("ready") is not False
            for item in facts.objects(ENDPOINTS)
            if _is_of_service(item, namespace, name)
            for _, endpoint in as_objects(item.get("endpoints"))
        )
        if ready:
            yield ok(_WEBHOOK, subject, f"{ready} ready replica{'s' if ready > 1 else ''}")
        else:
            remedy = f"see why: kubectl get pods -n {namespace}; docs/resilience.md"
            yield wrong(_WEBHOOK, subject, "no ready replica: API servers reach nobody", remedy)


def _is_of_service(item: Object, namespace: str, service: str) -> bool:
    metadata = as_object(item.get("metadata"))
    named = as_object(metadata.get("labels")).get(_SERVICE)
    return (as_text(metadata.get("namespace")), named) == (namespace, service)


def _answers(facts: Facts, refs: list[ConfigurationRef], call: Probe) -> Iterator[Row]:
    """Call every address, as `gpuward webhooks check` does."""
    if facts.request is None:
        message = "the objects are from files, so it was not called"
        yield not_known(_WEBHOOK, "calls", message, "run it against the cluster")
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
            yield wrong(_WEBHOOK, result.subject, message, remedy)
        elif result.ok:
            yield ok(_WEBHOOK, result.subject, result.message)
        elif result.subject in unreachable and not is_inside:
            message = f"cannot be reached from here: {result.message}"
            yield not_known(_WEBHOOK, result.subject, message, _FROM_INSIDE)
        else:
            remedy = result.hint or "see docs/resilience.md"
            yield Row(_WEBHOOK, result.subject, State.WRONG, result.message, remedy)


# Calls of gpuward's webhook that failed, as an API server counts them.

_FAILED_CALLS = "failed calls"
# A value that a sample can have: `12`, `1.5e+06`.
_VALUE = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+[0-9]{1,2})?"
_SAMPLE = re.compile(rf"^(apiserver_\w+)\{{([^}}\n]*)\}} ({_VALUE})$", re.MULTILINE)
_START = re.compile(rf"^process_start_time_seconds ({_VALUE})$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RIGHT = "grant `get` on the nonResourceURL /metrics"
_BY_HAND = "see whether this works: kubectl get --raw /metrics"
_FILES = "run it against the cluster"
_SEE = "see docs/monitoring.md, and `failed calling webhook` in the log of the API servers"


class _Counter(NamedTuple):
    """What API servers count: the metric, its labels if they matter, and what it means."""

    subject: str
    metric: str
    meaning: str
    remedy: str
    labels: Mapping[str, frozenset[str]] = MappingProxyType({})


# Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go.
_COUNTERS = (
    _Counter(
        "fail open",
        "apiserver_admission_webhook_fail_open_count",
        "calls failed, and objects were admitted without their answer",
        f"{_SEE}; gpuward audit finds what was admitted",
    ),
    _Counter(
        "fail closed",
        "apiserver_admission_webhook_rejection_count",
        "calls failed, and objects were refused for that reason",
        _SEE,
        {"error_type": frozenset({"calling_webhook_error", "apiserver_internal_error"})},
    ),
    _Counter(
        "match conditions",
        "apiserver_admission_match_condition_evaluation_errors_total",
        "times a match condition failed, and failurePolicy decided in its place",
        "see the alert GpuwardConditionFails in docs/monitoring.md",
        {"kind": frozenset({"webhook"})},
    ),
)


def check_failed_calls(facts: Facts) -> Iterator[Row]:
    """One row for each kind of failure. None if gpuward is not installed: nobody is called then."""
    if facts.request is None:
        yield not_known(_FAILED_CALLS, "API server", "the objects are from files", _FILES)
        return
    if row := why_missing(facts, _FAILED_CALLS, VALIDATING):
        yield row
    elif not own_configurations(facts, VALIDATING):
        return  # the check of the webhook says that there is none
    try:
        metrics = facts.request("/metrics")
    except ClusterError as error:
        remedy = _RIGHT if isinstance(error, ForbiddenError) else _BY_HAND
        yield not_known(_FAILED_CALLS, "API server", f"its metrics cannot be read: {error}", remedy)
        return
    samples = _SAMPLE.findall(metrics)
    if not samples:
        message = "what it has at /metrics are no metrics of an API server"
        yield not_known(_FAILED_CALLS, "API server", message, _BY_HAND)
        return
    since = f"since this API server started{_start(metrics)}; each counts for itself"
    for counter in _COUNTERS:
        if count := _count(samples, counter):
            message = f"{count:,} {counter.meaning}, {since}"
            yield wrong(_FAILED_CALLS, counter.subject, message, counter.remedy)
        else:
            yield ok(_FAILED_CALLS, counter.subject, f"none {since}")


def _count(samples: list[tuple[str, str, str]], counter: _Counter) -> int:
    """The sum of the samples of gpuward's webhooks."""
    total = 0.0
    for metric, text, value in samples:
        if metric == counter.metric:
            labels = dict(_LABEL.findall(text))
            is_own = labels.get("name", "").endswith(WEBHOOK_NAME_SUFFIX)
            if is_own and all(labels.get(key) in of for key, of in counter.labels.items()):
                total += float(value)
    return int(total)


def _start(metrics: str) -> str:
    """When the API server started, for a message; empty if its metrics do not say so."""
    found = _START.search(metrics)
    try:
        start = datetime.datetime.fromtimestamp(float(found[1]), datetime.UTC) if found else None
    except (OverflowError, ValueError):  # no time that there is
        start = None
    return f" ({start:%Y-%m-%d %H:%M} UTC)" if start else ""


# Which mode the namespaces have in which pods use GPUs.

_NAMESPACES = "namespaces"
_MODES = [action.word for action in Action]


def check_namespaces(facts: Facts) -> Iterator[Row]:
    """One row for each mode, and one for each label that names no mode."""
    configurations = own_configurations(facts, VALIDATING)
    if not configurations:
        return  # the check of the webhook says why
    if row := why_missing(facts, _NAMESPACES, NAMESPACES):
        yield row
        return
    users = _gpu_namespaces(facts)
    by_mode: dict[str, list[str]] = defaultdict(list)
    for name, item in by_name(facts.objects(NAMESPACES)):
        labels = as_object(as_object(item.get("metadata")).get("labels"))
        label = labels.get(MODE_LABEL)
        if label is not None and label not in _MODES:
            message = f"the label {MODE_LABEL}={label} names no mode: the default mode counts"
            yield wrong(_NAMESPACES, name, message, f"set it to one of {', '.join(_MODES)}")
        mode = registered_mode(configurations, name, labels)
        by_mode[mode or "not sent to gpuward"].append(name)
    for mode, found in sorted(by_mode.items()):
        with_gpus = [name for name in found if name in users]
        pods = f"; pods with GPUs in {names(with_gpus)}" if with_gpus else ""
        yield ok(_NAMESPACES, f"mode {mode}" if mode in _MODES else mode, f"{len(found)}{pods}")


def _gpu_namespaces(facts: Facts) -> set[str]:
    consumers = facts.usage.consumers if facts.usage else ()
    return {consumer.namespace for consumer in consumers}
