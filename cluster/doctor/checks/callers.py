"""The callers that the webhook accepts: API servers alone, or any client that reaches its port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.doctor.checks.dry_runs import FROM_FILES
from cluster.doctor.checks.release import not_in_files, unread
from cluster.doctor.facts import DoctorFacts, by_name, own_configurations
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.source.objects import (
    DEPLOYMENTS,
    NAMESPACES,
    NETWORK_POLICIES,
    VALIDATING,
    Object,
    SourceError,
)
from cluster.source.release import Home, describe
from cluster.webhooks.callers import Callers, Peer, find_callers, is_let_in, peers_let_in
from cluster.webhooks.dry_runs import NotTried, SendPod
from kubeyaml.patch.layout import one_line_text
from rules.base.json_values import as_object, as_objects, as_text
from terminal import DOCS_URL

_CALLERS = "callers"
_CONTAINER, _PORT_NAME, _DEFAULT_PORT = "webhook", "https", 10250
_STEPS = f"{DOCS_URL}/install.md, Who can reach the webhook"
_ASK_EACH = "ask each: give its address in the kubeconfig file, and run this command again"
_COUNT_SERVERS = (
    "grant the right to list leases in namespace kube-system, where each API server has one"
)
_CERTIFICATES = "require client certificates (clientCAConfigMap)"


class _Webhook(NamedTuple):
    """The settings of the webhook's port in the Deployment."""

    port: int
    demands_certificate: bool
    has_host_network: bool


def check_callers(facts: DoctorFacts, send: SendPod | NotTried, image: str) -> Iterator[Row]:
    """One row: who may call the webhook. `send` makes a dry run that says from where it is called.

    None without a release, or if its Deployment cannot be read: the check of the release says so.
    """
    if (release := facts.release) is None:
        return
    home = release.home
    try:
        deployment = facts.get(DEPLOYMENTS, home.namespace, home.name)
    except SourceError:
        return
    if deployment is None:
        return
    webhook, subject = _read(deployment), describe(DEPLOYMENTS, home, home.name)
    if webhook.demands_certificate:
        yield ok(_CALLERS, subject, "only clients with a certificate of its client CA may call it")
        return
    subject = describe(NETWORK_POLICIES, home, home.name)
    try:
        policy = facts.get(NETWORK_POLICIES, home.namespace, home.name)
    except SourceError as error:
        yield unread(_CALLERS, subject, error)
        return
    if policy is None and facts.request is None:
        yield not_in_files(_CALLERS, subject)
        return
    let_in = None if policy is None else peers_let_in(policy, webhook.port, _PORT_NAME)
    found = _find(facts, send, image)
    if let_in is None:
        why = "it names no callers" if policy else "the release has no policy of this name"
        yield _of_anybody(subject, webhook, why, found)
    elif webhook.has_host_network:
        message = (
            "it names callers, but the pods use the network of their nodes, where Kubernetes does "
            "not say what a NetworkPolicy does"
        )
        yield not_known(_CALLERS, subject, message, f"{_CERTIFICATES}: {_STEPS}")
    else:
        yield _of_named(facts, home, let_in, found)


def _read(deployment: Object) -> _Webhook:
    spec = as_object(as_object(as_object(deployment.get("spec")).get("template")).get("spec"))
    containers = (c for _, c in as_objects(spec.get("containers")) if c.get("name") == _CONTAINER)
    container = next(containers, {})
    arguments = container.get("args")
    given = [as_text(text) for text in arguments] if isinstance(arguments, list) else []
    ports = (p for _, p in as_objects(container.get("ports")) if p.get("name") == _PORT_NAME)
    port = next(ports, {}).get("containerPort")
    return _Webhook(
        port if isinstance(port, int) else _DEFAULT_PORT,
        any(text.partition("=")[0] == "--client-ca" for text in given),
        spec.get("hostNetwork") is True,
    )


def _find(facts: DoctorFacts, send: SendPod | NotTried, image: str) -> Callers | NotTried:
    if isinstance(send, NotTried):
        return send
    if facts.request is None:
        return FROM_FILES
    return find_callers(
        send,
        facts.request,
        own_configurations(facts, VALIDATING),
        facts.objects(NAMESPACES),
        image,
    )


def _of_anybody(subject: str, webhook: _Webhook, why: str, found: Callers | NotTried) -> Row:
    """The row about a webhook that any client may call."""
    message = f"any client that reaches port {webhook.port} may call the webhook: {why}"
    if isinstance(found, NotTried):
        message += f"; from where API servers call is not known: {found.why}"
        remedy = f"to know from where they call, {found.remedy}; then name them in "
        remedy += f"networkPolicy.webhookFrom, or {_CERTIFICATES}: {_STEPS}"
        return not_known(_CALLERS, subject, message, remedy)
    message += f"; {_seen(found)}"
    return not_known(_CALLERS, subject, message, _to_name(found))


def _of_named(
    facts: DoctorFacts, home: Home, let_in: Sequence[Object], found: Callers | NotTried
) -> Row:
    """The row about a webhook whose callers the network policy names."""
    subject = describe(NETWORK_POLICIES, home, home.name)
    if isinstance(found, NotTried):
        message = f"it names callers; whether API servers are among them is not known: {found.why}"
        return not_known(_CALLERS, subject, message, found.remedy)
    labels = _labels_of_namespaces(facts)

    def is_named(peer: Peer) -> bool:
        return is_let_in(peer, let_in, home.namespace, labels)

    if lacking := [peer for peer in found.peers if not is_named(peer)]:
        message = (
            f"it does not allow {_listed(lacking)}, from where the API server has called: either "
            "the network of this cluster does not enforce it, or it sees another address"
        )
        remedy = f"{_to_name(found)}; see whether your network enforces network policies"
        return wrong(_CALLERS, subject, message, remedy)
    message = f"it allows {_listed(found.peers)}, from where the API server has called"
    enforced = "whether the network of this cluster enforces it, this command cannot see"
    if found.are_all:
        return ok(_CALLERS, subject, f"{message}; {enforced}")
    if found.others and all(is_named(Peer(each)) for each in found.others):
        message += f", and {', '.join(sorted(found.others))}, where the others are reached"
        return ok(_CALLERS, subject, f"{message}; {enforced}")
    remedy = _COUNT_SERVERS if not found.server_count else _ASK_EACH
    return not_known(_CALLERS, subject, f"{message}; {_server_count(found)}", remedy)


def _seen(found: Callers) -> str:
    return f"the API server has called from {_listed(found.peers)}; {_server_count(found)}"


def _server_count(found: Callers) -> str:
    """Return how many API servers there are, of which one was asked."""
    if not found.server_count:
        return "how many API servers there are is not known"
    if found.server_count == 1:
        return "there is one API server"
    return f"there are {found.server_count} API servers, and one was asked"


def _listed(peers: Sequence[Peer]) -> str:
    return ", ".join(map(str, peers))


def _to_name(found: Callers) -> str:
    """Return what to do so that the policy allows those who have called."""
    value = one_line_text([peer.selector for peer in found.peers])
    ask = ""
    if not found.are_all:
        ask = "ask every API server, by its address in the kubeconfig file, from where it calls; "
    return (
        f"{ask}set networkPolicy.webhookFrom: {value} in the values of the chart, or "
        f"{_CERTIFICATES}; then run this command again: {_STEPS}"
    )


def _labels_of_namespaces(facts: DoctorFacts) -> Mapping[str, Mapping[str, Any]]:
    return {
        name: as_object(as_object(item.get("metadata")).get("labels"))
        for name, item in by_name(facts.objects(NAMESPACES))
    }
