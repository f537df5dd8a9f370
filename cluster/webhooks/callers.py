"""From where API servers call the webhook, and which callers a NetworkPolicy lets in.

A dry run is answered by the webhook itself with the address from which it was called
(`webhook.admission.callers`). The proxy of API servers to pods would not do: it connects to the
address of a pod, where a call of a webhook connects to that of its Service, and what translates the
latter may change the address of the caller as well. It also presents no client certificate.

Sources: Kubernetes, `staging/src/k8s.io/apiserver/pkg/util/webhook/authentication.go` and
`pkg/registry/core/pod/strategy.go` for both; `pkg/proxy/iptables/proxier.go` for the translation.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from cluster.api.errors import ClusterError, ForbiddenError
from cluster.source.objects import Object, matches
from cluster.source.registered import registered_mode
from cluster.webhooks.dry_runs import (
    UNKNOWN_FIELD,
    Answer,
    NotTried,
    SendPod,
    answer_to,
    shortened,
)
from cluster.webhooks.ways import harmless_pod
from rules.base.json_values import as_object, as_objects, as_text
from terminal import DOCS_URL
from webhook.admission.callers import ASKING_POD, Caller, caller_in
from webhook.registration import NAME_LABEL

_MOST_NAMESPACES = 3  # in which a pod is tried until an answer says something
_FIRST = "default"  # is tried first: most clusters leave it as it was
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_OF_API_SERVERS = "apiserver.kubernetes.io/identity=kube-apiserver"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
# API servers renew their Leases every ten seconds; that of one that has ended stays for an hour.
_RENEWED_WITHIN = datetime.timedelta(minutes=2)
# API servers send pods with such a variable to the webhook, and no rule finds a fault in this one.
_VARIABLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
# Of pods of one template they differ, or change with each version of it.
_PASSING_LABELS = frozenset(
    {
        *("pod-template-hash", "controller-revision-hash", "pod-template-generation"),
        *("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"),
    }
)
_NO_RIGHT = "cannot create resource"  # words of the API server
_RIGHT = "grant the right to create pods there"
_OTHERS = "see what it names; if a policy restricts images, name one that it allows: --image IMAGE"
_LIST_PODS = "grant the right to list pods"
_UPGRADE = "upgrade gpuward: its webhook is older than this command"
_PROXY = "give the address of the API server itself in the kubeconfig file"
_NOT_ASKED = "no namespace is sent to gpuward, so a dry run does not reach its webhook"
_SEE = f"see what the other rows about gpuward say, and {DOCS_URL}/resilience.md"


class Peer(NamedTuple):
    """Another end of the connections to the webhook.

    If it is a pod, as of a tunnel, `pod` is its name and `labels` are its own, without those that
    pods of one template do not share; `namespace` is where it runs.
    """

    address: str
    pod: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}  # never written to

    def __str__(self) -> str:
        return f"{self.address} (pod/{self.pod} in {self.namespace})" if self.pod else self.address

    @property
    def selector(self) -> Object:
        """It as an entry of `from` in a NetworkPolicy, and of `networkPolicy.webhookFrom`."""
        if not self.pod:
            length = ipaddress.ip_address(self.address).max_prefixlen
            return {"ipBlock": {"cidr": f"{self.address}/{length}"}}
        return {
            "namespaceSelector": {"matchLabels": {NAME_LABEL: self.namespace}},
            "podSelector": {"matchLabels": {**self.labels}},
        }


class Callers(NamedTuple):
    """From where an API server has called the webhook.

    `server_count` is how many API servers there are, and `listen_on` has the addresses at which
    others reach them; 0 and none if that is not known. With `are_verified` all calls came with a
    client certificate that the webhook has verified.
    """

    peers: tuple[Peer, ...]
    server_count: int = 0
    listen_on: frozenset[str] = frozenset()
    are_verified: bool = False

    @property
    def are_all(self) -> bool:
        """Return whether there is no API server that may call from elsewhere.

        All go through the pods of a tunnel, if one does.
        """
        return self.server_count == 1 or all(peer.pod for peer in self.peers)

    @property
    def others(self) -> frozenset[str]:
        """The addresses from which others seem to call; none if nothing speaks for any.

        They do if this one calls from the address at which it is reached, and each has one.
        """
        own = {peer.address for peer in self.peers}
        if own <= self.listen_on and len(self.listen_on) == self.server_count:
            return self.listen_on - own
        return frozenset()


def find_callers(
    send: SendPod,
    request: Callable[[str], str],
    configurations: Sequence[Object],
    namespaces: Iterable[Object],
    image: str,
) -> Callers | NotTried:
    """From where the API server that answers calls the webhook, or why that is not known.

    `configurations` are gpuward's validating ones. `request` gets the text at a path.
    """
    asked = sorted(_asked(configurations, namespaces), key=lambda name: (name != _FIRST, name))
    if not asked:
        return NotTried(_NOT_ASKED, "see which namespaces have mode off, or are excluded")
    reasons = []
    for name in asked[:_MOST_NAMESPACES]:
        found = _try_in(send, name, image)
        if not isinstance(found, NotTried):
            return _callers(found, request)
        reasons.append(found)
    return reasons[0]


def _callers(found: list[Caller], request: Callable[[str], str]) -> Callers | NotTried:
    """Return the callers that the webhook has named."""
    try:
        peers = tuple(_peer(address, request) for address in sorted({c.address for c in found}))
    except (ClusterError, ValueError) as error:
        why = f"whether a pod has called is not known: {shortened(str(error))}"
        return NotTried(why, _LIST_PODS if isinstance(error, ForbiddenError) else _SEE)
    is_verified = all(each.is_verified for each in found)
    return Callers(
        peers=peers,
        server_count=_count(request),
        listen_on=_listen_on(request),
        are_verified=is_verified,
    )


def _asked(configurations: Sequence[Object], namespaces: Iterable[Object]) -> list[str]:
    """The namespaces whose pods are sent to gpuward."""
    found = []
    for item in namespaces:
        metadata = as_object(item.get("metadata"))
        name, labels = as_text(metadata.get("name")), as_object(metadata.get("labels"))
        if registered_mode(configurations, name, labels) and "deletionTimestamp" not in metadata:
            found.append(name)
    return found


def _try_in(send: SendPod, namespace: str, image: str) -> list[Caller] | NotTried:
    pod = harmless_pod(image, {})
    pod["metadata"] = {"name": ASKING_POD}
    pod["spec"]["containers"][0]["env"] = [_VARIABLE]
    answer = answer_to(lambda: send(namespace, {**pod, UNKNOWN_FIELD: True}))
    found = [caller for text in answer.warnings if (caller := caller_in(text))]
    return found or _why_nothing(answer)


def _why_nothing(answer: Answer) -> NotTried:
    if answer.admitted is None:
        text = answer.refused or answer.failed
        return NotTried(shortened(text), _RIGHT if _NO_RIGHT in text else _OTHERS)
    if any(UNKNOWN_FIELD in text for text in answer.warnings):
        why = "no answer of the webhook says it: it was not reached, or is older than this command"
        return NotTried(why, f"{_SEE}; or {_UPGRADE}")
    return NotTried("no warning arrives, as behind a proxy that removes them", _PROXY)


def _peer(address: str, request: Callable[[str], str]) -> Peer:
    """The peer with this address, which may be a pod with a network of its own.

    Raises ClusterError, and ValueError if the answer of the API server cannot be read.
    """
    for item in _list(request, "/api/v1/pods", fieldSelector=f"status.podIP={address}"):
        spec, status = as_object(item.get("spec")), as_object(item.get("status"))
        if spec.get("hostNetwork") is True or status.get("phase") in {"Succeeded", "Failed"}:
            continue
        metadata = as_object(item.get("metadata"))
        labels = {
            key: value
            for key, value in as_object(metadata.get("labels")).items()
            if key not in _PASSING_LABELS
        }
        name, namespace = (as_text(metadata.get(field)) for field in ("name", "namespace"))
        if labels:  # without any, no selector would mean this pod alone
            return Peer(address=address, pod=name, namespace=namespace, labels=labels)
    return Peer(address)


def _count(request: Callable[[str], str]) -> int:
    """Return how many API servers there are, by the Leases that they renew; 0 if that is not known.

    Source: Kubernetes, `pkg/controlplane/apiserver/server.go`.
    """
    try:
        leases = _list(request, _LEASES, labelSelector=_OF_API_SERVERS)
        renewed = [
            datetime.datetime.fromisoformat(as_text(as_object(lease.get("spec")).get("renewTime")))
            for lease in leases
        ]
        return sum(max(renewed) - each < _RENEWED_WITHIN for each in renewed)
    except (ClusterError, TypeError, ValueError):
        return 0


def _listen_on(request: Callable[[str], str]) -> frozenset[str]:
    """The addresses of the Service `kubernetes`; none if they are not known."""
    try:
        slices = _list(request, _SLICES, labelSelector="kubernetes.io/service-name=kubernetes")
    except (ClusterError, ValueError):
        return frozenset()
    endpoints = (endpoint for item in slices for _, endpoint in as_objects(item.get("endpoints")))
    listed = (endpoint.get("addresses") for endpoint in endpoints)
    return frozenset(as_text(a) for each in listed if isinstance(each, list) for a in each)


def _list(request: Callable[[str], str], path: str, **selector: str) -> list[Mapping[str, Any]]:
    """The objects at `path`. Raises ClusterError, and ValueError if the answer is no JSON."""
    answer = json.loads(request(f"{path}?{urlencode(selector)}"))
    return [item for _, item in as_objects(as_object(answer).get("items"))]


# NetworkPolicies, and the callers that they let in.


def peers_let_in(policy: Object, port: int, port_name: str) -> list[Object] | None:
    """The peers that a NetworkPolicy lets connect to a port; None if it lets all.

    Source: Kubernetes, `staging/src/k8s.io/api/networking/v1/types.go`, NetworkPolicyIngressRule.
    """
    found: list[Object] = []
    for _, rule in as_objects(as_object(policy.get("spec")).get("ingress")):
        ports = [entry for _, entry in as_objects(rule.get("ports"))]
        if ports and not any(_has_port(entry, port, port_name) for entry in ports):
            continue
        peers = [{**peer} for _, peer in as_objects(rule.get("from"))]
        if not peers:
            return None
        found += peers
    return found


def _has_port(entry: Mapping[str, Any], port: int, name: str) -> bool:
    if as_text(entry.get("protocol")) not in {"", "TCP"}:
        return False
    first, last = entry.get("port"), entry.get("endPort")
    if isinstance(first, int):
        return first <= port <= (last if isinstance(last, int) else first)
    return first is None or first == name


def is_let_in(
    peer: Peer, by: Iterable[Object], namespace: str, labels: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether one of the peers `by` of a NetworkPolicy in `namespace` means `peer`.

    `labels` are those of each namespace.
    """
    return any(
        _is_in_block(peer.address, as_object(each.get("ipBlock")))
        if "ipBlock" in each
        else _is_selected(peer, each, namespace, labels)
        for each in by
    )


def _is_in_block(address: str, block: Mapping[str, Any]) -> bool:
    excluded = block.get("except")
    without = excluded if isinstance(excluded, list) else []
    return _is_in(address, block.get("cidr")) and not any(_is_in(address, e) for e in without)


def _is_in(address: str, network: object) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(as_text(network), strict=False)
    except ValueError:
        return False


def _is_selected(
    peer: Peer, by: Object, namespace: str, labels: Mapping[str, Mapping[str, Any]]
) -> bool:
    if not peer.pod:
        return False
    if "namespaceSelector" in by:
        own = {NAME_LABEL: peer.namespace, **labels.get(peer.namespace, {})}
        if not matches(as_object(by.get("namespaceSelector")), own):
            return False
    elif peer.namespace != namespace:
        return False
    return matches(as_object(by.get("podSelector")), peer.labels)
