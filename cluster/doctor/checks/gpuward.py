"""gpuward itself: its registration, replicas and answers, and the modes of namespaces."""

from __future__ import annotations

import datetime
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from cluster.api.errors import ConfigurationKind, ConfigurationRef
from cluster.doctor.checks.release import expected_configurations
from cluster.doctor.checks.webhooks import ends_soon
from cluster.doctor.facts import DoctorFacts, by_name, name_of, own_configurations, why_missing
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import (
    DEPLOYMENTS,
    ENDPOINTS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    VALIDATING,
    Object,
    SourceError,
)
from cluster.source.registered import (
    is_excluded_by_provider,
    is_own,
    is_unexpectedly_not_sent,
    registered_mode,
)
from cluster.source.release import Home, homes
from cluster.webhooks.check import (
    Probe,
    check,
    check_certificate,
    hint_about_certificate,
    send_sample,
)
from cluster.webhooks.webhook_client import Target, UnknownNameError, UnreachableError, Validity
from reports.formats import many
from rules.base.json_values import as_object, as_objects, as_text
from rules.finding import Action
from rules.placement.exclusion import is_gpu_node, label_texts, labels_of_gpu_nodes
from terminal import DOCS_URL
from webhook.registration import MODE_LABEL

_WEBHOOK = "webhook"
_KINDS = {MUTATING: ConfigurationKind.MUTATING, VALIDATING: ConfigurationKind.VALIDATING}
_SERVICE = "kubernetes.io/service-name"
_INSTALL = f"install it: {DOCS_URL}/install.md"
_FROM_INSIDE = (
    "run it in a pod of the cluster, or `gpuward webhooks check --address` with a port-forward"
)


def check_own_webhook(facts: DoctorFacts, *, tls_only: bool) -> Iterator[Row]:
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


def _replicas(facts: DoctorFacts) -> Iterator[Row]:
    own = [item for resource in _KINDS for item in own_configurations(facts, resource)]
    for home in homes(own):
        namespace, name = home
        subject = str(home)
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
            yield _nobody_behind(facts, home)


def _nobody_behind(facts: DoctorFacts, home: Home) -> Row:
    """The row about a Service without endpoints: whether it is the Service, or the pods."""
    namespace, name = home
    subject, effect = str(home), "API servers reach nobody"
    service = deployment = None
    with suppress(SourceError):  # the check of the release says what cannot be read
        deployment = facts.get(DEPLOYMENTS, namespace, name)
        service = facts.get(SERVICES, namespace, name)
        if service is None and facts.request is not None:
            remedy = "run helm upgrade with the values of the release, which creates it again"
            return wrong(_WEBHOOK, subject, f"the Service does not exist: {effect}", remedy)
    ready = as_object(as_object(deployment).get("status")).get("readyReplicas")
    if service is not None and isinstance(ready, int) and ready > 0:
        behind = f"{many(ready, 'replica')} of deployment/{name} are ready"
        message = f"no endpoint, although {behind}: {effect}"
        remedy = (
            f"compare the selector of the Service with the labels of the pods: kubectl get "
            f"service {name} -n {namespace} -o wide; kubectl get pods -n {namespace} --show-labels"
        )
        return wrong(_WEBHOOK, subject, message, remedy)
    remedy = f"see why: kubectl get pods -n {namespace}; {DOCS_URL}/resilience.md"
    return wrong(_WEBHOOK, subject, f"no ready replica: {effect}", remedy)


def _is_of_service(item: Object, namespace: str, service: str) -> bool:
    metadata = as_object(item.get("metadata"))
    named = as_object(metadata.get("labels")).get(_SERVICE)
    return (as_text(metadata.get("namespace")), named) == (namespace, service)


def _answers(facts: DoctorFacts, refs: list[ConfigurationRef], call: Probe) -> Iterator[Row]:
    """Call every address, as `gpuward webhooks check` does."""
    if facts.request is None:
        message = "the objects are from files, so it was not called"
        yield not_known(_WEBHOOK, "calls", message, "run it against the cluster")
        return
    now = datetime.datetime.now(datetime.UTC)
    unreachable: set[str] = set()
    late: dict[str, str] = {}  # what to do about certificates that are not renewed, by URL

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
            remedy = result.hint or f"see {DOCS_URL}/resilience.md"
            yield wrong(_WEBHOOK, result.subject, result.message, remedy)


# The modes of the namespaces whose pods use GPUs.

_NAMESPACES = "namespaces"
_NOT_SENT = "not sent to gpuward"
_SEE_REGISTRATION = "see what the row about the registration says, and what to do"
_MODES = [action.word for action in Action]


def check_namespaces(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each mode, and one for each label that names no mode."""
    configurations = own_configurations(facts, VALIDATING)
    if not configurations:
        return  # the check of the webhook says why
    if row := why_missing(facts, _NAMESPACES, NAMESPACES):
        yield row
        return
    expected = expected_configurations(facts)
    users = _gpu_namespaces(facts)
    differing: dict[str, list[str]] = defaultdict(list)
    by_mode: dict[str, list[str]] = defaultdict(list)
    for name, item in by_name(facts.objects(NAMESPACES)):
        labels = as_object(as_object(item.get("metadata")).get("labels"))
        label = labels.get(MODE_LABEL)
        if label is not None and label not in _MODES:
            message = f"the label {MODE_LABEL}={label} names no mode: the default mode counts"
            yield wrong(_NAMESPACES, name, message, f"set it to one of {', '.join(_MODES)}")
        mode = registered_mode(configurations, name, labels)
        by_mode[mode or _NOT_SENT].append(name)
        is_concerned = label is not None or name in users
        if is_concerned and (difference := _difference(expected, configurations, name, labels)):
            differing[difference].append(name)
    for difference, found in sorted(differing.items()):
        yield wrong(_NAMESPACES, found, difference, _SEE_REGISTRATION)
    for mode, found in sorted(by_mode.items()):
        with_gpus = [name for name in found if name in users]
        pods = f"; pods with GPUs in {first_few(with_gpus)}" if with_gpus else ""
        subject = f"mode {mode}" if mode in _MODES else mode
        yield ok(_NAMESPACES, subject, f"{len(found)}{pods}", names=found)


def _difference(
    expected: list[Object] | Row,
    registered: list[Object],
    name: str,
    labels: Mapping[str, Any],
) -> str:
    """Return how a namespace is registered otherwise than it should be; empty if it is not."""
    mode = registered_mode(registered, name, labels)
    if isinstance(expected, Row):  # without a record, the selectors themselves tell
        is_wrong = is_unexpectedly_not_sent(registered, name, labels)
        return f"{_NOT_SENT}, and nothing says why" if is_wrong else ""
    validating = [item for item in expected if item.get("kind") == VALIDATING.kind]
    wanted = registered_mode(validating, name, labels)
    if mode == wanted or not wanted or is_excluded_by_provider(registered, name, labels):
        return ""
    is_sent = f"sent to gpuward in mode {mode}" if mode else _NOT_SENT
    return f"{is_sent}, and should be sent in mode {wanted}"


def _gpu_namespaces(facts: DoctorFacts) -> set[str]:
    consumers = facts.usage.consumers if facts.usage else ()
    return {consumer.namespace for consumer in consumers}


_EXCLUSION_RULE = "gpu-node-without-request"
_EXCLUSION = "labels of GPU nodes"


def check_exclusion(facts: DoctorFacts) -> Iterator[Row]:
    """Rows about the labels by which the policy keeps pods without a GPU off GPU nodes.

    None, if the policy does not.
    """
    active = next(
        (r for r in facts.policy.rule_set().rules if r.rule.name == _EXCLUSION_RULE), None
    )
    if active is None:
        return
    if row := why_missing(facts, _EXCLUSION, NODES):
        yield row
        return
    if facts.usage is None and (row := why_missing(facts, _EXCLUSION, PODS)):
        yield row  # what nodes offer is counted together with what pods hold
        return
    labels = labels_of_gpu_nodes(facts.policy.profile, active.options["nodes"])
    nodes = dict(by_name(facts.objects(NODES)))
    excluded = {name for name, node in nodes.items() if is_gpu_node(_labels_of(node), labels)}
    known, usages = label_texts(labels), facts.usage.nodes if facts.usage else ()
    with_gpus = [u.name for u in usages if any(used.total for used in u.resources)]
    if is_open := sorted(name for name in with_gpus if name not in excluded):
        yield wrong(
            _EXCLUSION,
            first_few(is_open),
            f"have GPUs and not the label {known}, so pods without a GPU may run there",
            "set it when nodes join the cluster, or name the label that they have in the option "
            f"`nodes` of {_EXCLUSION_RULE}: {DOCS_URL}/exclusion.md",
            names=is_open,
        )
    if nodes and len(excluded) == len(nodes):
        message = f"each of {many(len(nodes), 'node')} has the label {known}"
        remedy = "pods without a GPU have no node: name a label that GPU nodes alone have"
        yield wrong(_EXCLUSION, "the policy", message, remedy)
    elif not excluded and not is_open:
        message = f"no node has the label {known}, and none offers GPUs"
        yield not_known(_EXCLUSION, "the policy", message, "ask again when there are GPU nodes")
    elif absent := _absent_labels(active.options["nodes"], nodes.values()):
        message = f"no node has the label {', '.join(absent)}"
        remedy = "if a pool without nodes has it, it is right; otherwise mend the option `nodes`"
        yield not_known(_EXCLUSION, "the policy", message, remedy)
    elif not is_open:
        yield ok(_EXCLUSION, "the policy", f"all GPU nodes have the label {known}")


def _absent_labels(listed: Iterable[str], nodes: Collection[Object]) -> list[str]:
    """The labels `listed`, as `key` or `key=value`, that no node has."""
    present = {
        text
        for node in nodes
        for key, value in _labels_of(node).items()
        for text in (key, f"{key}={value}")
    }
    return [label for label in listed if label not in present]


def _labels_of(node: Object) -> Mapping[str, Any]:
    return as_object(as_object(node.get("metadata")).get("labels"))
