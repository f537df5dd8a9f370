"""Who has GPUs, or waits for them: pods and allocated claims; and what all pods take of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cluster.gpus.pod_requests import effective_requests, has_terminated, whole
from cluster.gpus.shares import PER_CARD, Amount, Share, shares_of
from cluster.gpus.usage import Consumer
from cluster_commands.gpus.kai import kai_shares, requested
from cluster_commands.gpus.resource_claims import Claim
from reports.owners import Owners
from rules.base.json_access import as_object, as_objects, as_text
from rules.objects.object_ref import object_ref
from rules.profile.profile import Profile


class NodeLoad:
    """What the pods of a node take: amounts in units of 1e-9, and their number."""

    __slots__ = ("pods", "requests")

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.pods = 0

    def add(self, requests: Mapping[str, int]) -> None:
        """Count one more pod."""
        self.pods += 1
        for name, amount in requests.items():
            self.requests[name] = self.requests.get(name, 0) + amount


class PodLedger:
    """Counts pods one by one, so that they need not all be kept.

    `card_memory` is how many MiB each card of a node has, by the name of the node.
    """

    def __init__(self, profile: Profile, card_memory: Mapping[str, int]) -> None:
        self._profile = profile
        self._card_memory = card_memory
        self._owners = Owners()
        self.loads: dict[str, NodeLoad] = {}
        self.consumers: list[Consumer] = []
        self._owner_of: dict[tuple[str, str], str] = {}

    def add(self, pod: Mapping[str, Any]) -> None:
        """Count `pod`, unless it has terminated: then the scheduler counts it no longer."""
        spec, status = as_object(pod.get("spec")), as_object(pod.get("status"))
        if has_terminated(pod):
            return
        node, requests = as_text(spec.get("nodeName")), effective_requests(pod)
        for name in _names_given_by_claims(status):
            requests.pop(name, None)
        if node:
            self.loads.setdefault(node, NodeLoad()).add(requests)
        amounts: dict[str, Amount] = {
            name: whole(amount)
            for name, amount in requests.items()
            if self._profile.resource(name) is not None
        }
        memory = self._card_memory.get(node, 0)
        amounts.update(requested(pod, memory))
        shares: tuple[Share, ...] = ()
        if amounts and node:
            shares = (*shares_of(pod, requests), *kai_shares(pod, memory))
        amounts.update(_sum_of_cards(shares))
        metadata = as_object(pod.get("metadata"))
        namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        has_claims = bool(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"))
        if not (amounts or has_claims):
            return
        owner = self._owner(pod, metadata)
        if has_claims:
            self._owner_of[namespace, name] = owner
        if amounts:
            starting = bool(node) and status.get("phase") != "Running"
            self.consumers.append(Consumer(namespace, name, owner, node, starting, amounts, shares))

    def add_claim(self, claim: Claim) -> None:
        """Count an allocated claim, for the pod that holds it if there is just one.

        A claim that several pods share has their owner, if they have the same.
        """
        name = claim.pods[0] if len(claim.pods) == 1 else f"resourceclaim/{claim.name}"
        owners = {self._owner_of.get((claim.namespace, pod), name) for pod in claim.pods}
        owner = owners.pop() if len(owners) == 1 else name
        by_node: dict[str, dict[tuple[str, str], Amount]] = {}
        for device, part in claim.devices:
            parts = by_node.setdefault(device.node, {})
            parts[device.card, device.driver] = parts.get((device.card, device.driver), 0) + part
        for node, cards in by_node.items():
            shares = tuple(Share(card, driver, part) for (card, driver), part in cards.items())
            amounts: dict[str, Amount] = {}
            for (_, driver), part in cards.items():
                amounts[driver] = amounts.get(driver, 0) + min(part, 1)
            consumer = Consumer(claim.namespace, name, owner, node, False, amounts, shares)  # noqa: FBT003  # a claim does not start
            shared = claim.pods if len(claim.pods) > 1 else ()
            self.consumers.append(consumer._replace(pods=shared))

    def add_waiting_claim(self, metadata: Mapping[str, Any], waiting: Mapping[str, int]) -> None:
        """Count a claim that has no devices yet."""
        namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        text = f"resourceclaim/{name}"
        self.consumers.append(Consumer(namespace, text, text, "", False, waiting))  # noqa: FBT003  # the same

    def _owner(self, pod: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
        self._owners.add(pod, None)
        ref, _ = self._owners.top_owner(object_ref("Pod", "", metadata, None))
        return f"{ref.kind.lower()}/{ref.name}"


def _sum_of_cards(shares: Iterable[Share]) -> Mapping[str, Amount]:
    """What a pod has of all its cards, of the resources whose amounts are for each card."""
    sums: dict[str, Amount] = {}
    for share in shares:
        if share.resource in PER_CARD:
            sums[share.resource] = sums.get(share.resource, 0) + share.amount
    return sums


def _names_given_by_claims(status: Mapping[str, Any]) -> Iterator[str]:
    """The resources of a pod for which the scheduler made a claim, which is counted itself."""
    claim = as_object(status.get("extendedResourceClaimStatus"))
    for _, mapping in as_objects(claim.get("requestMappings")):
        yield as_text(mapping.get("resourceName"))


def card_totals(consumers: Iterable[Consumer]) -> dict[str, dict[tuple[str, str], Amount]]:
    """What consumers have of each card: by node, then by card and resource."""
    found: dict[str, dict[tuple[str, str], Amount]] = {}
    for consumer in consumers:
        cards = found.setdefault(consumer.node, {})
        for share in consumer.shares:
            place = share.card, share.resource
            cards[place] = cards.get(place, 0) + share.amount
    return found
