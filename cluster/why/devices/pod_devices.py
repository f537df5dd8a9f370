"""The devices that a pod requests by claims, or by resources that DeviceClasses serve."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.claims import claim_names
from cluster.source.objects import CLAIM_TEMPLATES, CLAIMS, Object
from cluster.why.devices.allocator import Allocation, DeviceAllocator, Verdict
from cluster.why.devices.requests import ClaimRequest, read_claim, requests_of_containers
from cluster.why.filters import Obstacle
from cluster.why.hurdles import Hurdle
from cluster.why.node_affinity import selects
from cluster.why.nodes import Node
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.bounds import StepLimit

_PLUGIN = "DynamicResources"
_MAX_STEPS = 1_000_000
"""How often devices and selectors are looked at for a pod, on all nodes together."""
_MIN_FEASIBLE = 100
"""kube-scheduler asks all nodes of a cluster that has no more."""


class Claims(NamedTuple):
    """The claims of a namespace, and its templates of claims, by name."""

    made: Mapping[str, Object] = {}
    templates: Mapping[str, Object] = {}


def is_claim(raw: Object) -> bool:
    """Return whether an object is a claim or a template of claims, of any version."""
    group = as_text(raw.get("apiVersion")).rpartition("/")[0]
    return group == CLAIMS.group and raw.get("kind") in {CLAIMS.kind, CLAIM_TEMPLATES.kind}


def claims_in(namespace: str, objects: Iterable[Object]) -> Claims:
    """The claims and the templates among `objects` that are in a namespace, or name none."""
    found: dict[object, dict[str, Object]] = {CLAIMS.kind: {}, CLAIM_TEMPLATES.kind: {}}
    for raw in filter(is_claim, objects):
        metadata = as_object(raw.get("metadata"))
        if as_text(metadata.get("namespace")) in {namespace, ""}:
            found[raw["kind"]][as_text(metadata.get("name"))] = raw
    return Claims(found[CLAIMS.kind], found[CLAIM_TEMPLATES.kind])


class PodDevices:
    """The devices that a pod asks for.

    `class_by_resource` are DeviceClasses for resources that nodes need not offer. Without an
    `allocator` nothing is known of devices.
    """

    def __init__(
        self,
        pod: Object,
        claims: Claims,
        allocator: DeviceAllocator | None,
        class_by_resource: Mapping[str, str],
    ) -> None:
        self._spec = as_object(pod.get("spec"))
        self._allocator, self._class_by_resource = allocator, class_by_resource
        self._elsewhere: list[tuple[str, Mapping[str, Any]]] = []
        self._wanted: list[ClaimRequest] = []
        self._unread: list[str] = []
        self._verdicts: dict[str, Verdict] = {}
        self._limit = StepLimit(_MAX_STEPS)
        templates = {
            as_text(one.get("name")): as_text(one.get("resourceClaimTemplateName"))
            for _, one in as_objects(self._spec.get("resourceClaims"))
        }
        for entry, name in claim_names(pod):
            raw = claims.made.get(name)
            template = claims.templates.get(templates.get(entry, ""))
            if raw is not None:
                self._add(name, raw)
            elif not name and template is not None:
                spec = as_object(as_object(template.get("spec")).get("spec"))
                self._wanted.append(read_claim(f"claim {entry}", spec))
            else:
                self._unread.append(f"what its claim {entry} asks for")

    def _add(self, name: str, raw: Object) -> None:
        allocation = as_object(as_object(raw.get("status")).get("allocation"))
        if not allocation:
            self._wanted.append(read_claim(f"claim {name}", as_object(raw.get("spec"))))
        elif isinstance(selector := allocation.get("nodeSelector"), dict):
            self._elsewhere.append((name, selector))

    @property
    def hurdles(self) -> Iterator[Hurdle]:
        """DeviceClasses that do not exist."""
        if self._allocator is None:
            return
        for label, name in self._allocator.missing_classes(self._wanted):
            yield Hurdle(
                f"its {label} names the DeviceClass {name}, which does not exist",
                "install the driver that brings the class, or name another: kubectl get "
                "deviceclasses",
            )

    def obstacles(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Return why `node` does not have the devices; `doubt` of the same node comes after it."""
        for name, selector in self._elsewhere:
            if not selects(selector, node):
                reason = f"its claim {name} has devices elsewhere"
                message = "resourceclaim not available on the node"
                yield (Obstacle(_PLUGIN, message, reason, words=(reason,)),)
                return
        verdict = self._verdict(node)
        if verdict.shortage is not None:
            subject, reasons, remedy, _ = verdict.shortage
            message = "cannot allocate all claims"
            yield (Obstacle(_PLUGIN, message, subject, words=reasons, remedy=remedy),)

    def _verdict(self, node: Node) -> Verdict:
        wanted = self._wanted_of(node)
        if self._allocator is None or not wanted or self._allocator.missing_classes(wanted):
            return Verdict(Allocation.CAN)
        if node.name not in self._verdicts:
            self._verdicts[node.name] = self._allocator.allocate(
                wanted, node.name, lambda selector: selects(selector, node), self._limit
            )
        return self._verdicts[node.name]

    def _wanted_of(self, node: Node) -> list[ClaimRequest]:
        """The claims without devices, with that for resources which the node does not offer."""
        if not self._class_by_resource:
            return self._wanted
        served = {
            name: one for name, one in self._class_by_resource.items() if name not in node.devices
        }
        own = tuple((one,) for one in requests_of_containers(self._spec, served))
        return [*self._wanted, *([ClaimRequest("", own)] if own else ())]

    def end_of_search(self, unasked: Collection[str], nodes: int) -> Iterator[Hurdle]:
        """Return why kube-scheduler gives up for all `nodes` as it asks one of them.

        `unasked` are the nodes that kube-scheduler does not ask for devices, because another
        filter refuses them before.
        Source: Kubernetes, `pkg/scheduler/schedule_one.go`, findNodesThatPassFilters.
        """
        if all(one.allocation is not Allocation.CAN for one in self._verdicts.values()):
            return
        for name, verdict in self._verdicts.items():
            if name in unasked:
                continue
            why = verdict.may_end
            if verdict.is_fatal and verdict.shortage:
                why = verdict.shortage.reasons[0]
                if nodes <= _MIN_FEASIBLE:
                    what = f"kube-scheduler gives up for all nodes as it asks {name}: {why}"
                    yield Hurdle(what, verdict.shortage.remedy)
                    return
            if why:
                self._unread.append(f"whether kube-scheduler gives up as it asks {name}: {why}")
                return

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the facts that would have to be known to say that `node` has the devices."""
        if verdict := self._verdicts.get(node.name):
            yield from filter(None, (verdict.unknown,))

    @property
    def unknown(self) -> Iterator[str]:
        """Yield the facts that would have to be known of any node."""
        yield from self._unread
        if self._allocator is None and self._wanted:
            yield "which devices are free for its claims: gpuward gpus -d shows them"
        if self._allocator is not None and self._class_by_resource:
            yield from filter(None, (self._allocator.doubt_about_extended_resources,))
