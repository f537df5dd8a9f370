"""Pods on GPU nodes that ask for no GPU: why they run there, and what they take.

The rule `gpu-node-without-request` finds the same pods, by the same functions.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.accounting.nodes import taints_of
from rules.base.json_values import as_text
from rules.base.taints import is_temporary_taint
from rules.engine.evaluation import pod_from_raw, well_formed_pod
from rules.gpu.claims import asks_for_any_gpu
from rules.gpu.components import component_of
from rules.inventory.inventory import EMPTY_INVENTORY
from rules.objects.pod import MIRROR_ANNOTATION, Pod
from rules.placement.gpu_nodes import selected_gpu_label, topology_keys
from rules.placement.named_nodes import names_nodes
from rules.placement.node_affinity import is_empty_term, required_terms, selector_expressions
from rules.placement.tolerations import display_taint, tolerates
from rules.profile.context import Context
from rules.profile.profile import Profile, Taint
from rules.workloads.discovery import find_subjects
from rules.workloads.referred_objects import new_builder

RULE = "gpu-node-without-request"


class PodWithoutGpu(NamedTuple):
    """A pod on a node that asks for no GPU; `cpu` and `memory` are in units of 1e-9.

    `why` it runs on a GPU node. If only its tolerations may say that, `why` is empty until
    `on_node` compares them with the taints of the node. `is_of_platform`: a profile lists it as a
    component of the GPU platform, which the rule excuses. `pods` is more than 1 for the sum of
    several pods without their names.
    """

    namespace: str
    name: str
    owner: str
    node: str
    cpu: int
    memory: int
    is_of_platform: bool
    is_of_daemon_set: bool
    why: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pods: int = 1

    def on_node(self, taints: Iterable[Taint]) -> PodWithoutGpu:
        """Return the pod with the reason why it runs on a node with these taints."""
        why = self.why or _why_admitted(self.tolerations, [*taints])
        return self._replace(why=why, tolerations=())


class GpuNodeTaints:
    """The taints of GPU nodes, by the resource or the label by which rules know such nodes."""

    def __init__(self, profile: Profile) -> None:
        self._known = new_builder(profile).gpu_nodes

    def of(self, node: Mapping[str, Any]) -> tuple[Taint, ...] | None:
        """The taints that keep pods from `node` for good; None if it is no GPU node."""
        if not self._known.sign(node):
            return None
        return tuple(t for t in taints_of(node) if not is_temporary_taint(t.key))


def pod_without_gpu(
    raw: Mapping[str, Any], profile: Profile, owner: str, requests: Mapping[str, int]
) -> PodWithoutGpu | None:
    """Return the pod `raw`, which takes `requests` of its node; None if it asks for a GPU."""
    pod = _view(raw, profile)
    if pod is None or asks_for_any_gpu(pod, EMPTY_INVENTORY):
        return None
    context = Context(datetime.date.min, profile=profile)
    pod.exists = True
    component = component_of(pod, context)
    why = _why_by_itself(pod)
    return PodWithoutGpu(
        namespace=pod.object.namespace or "",
        name=as_text(pod.metadata.get("name")),
        owner=owner,
        node=as_text(pod.spec.get("nodeName")),
        cpu=requests.get("cpu", 0),
        memory=requests.get("memory", 0),
        is_of_platform=component is not None and (not component.rules or RULE in component.rules),
        is_of_daemon_set=pod.is_daemon,
        why=why,
        tolerations=() if why else (*_lasting(each for _, each in pod.tolerations),),
    )


def _lasting(tolerations: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield those not of passing taints, which `GpuNodeTaints` leaves out: every pod has some."""
    for toleration in tolerations:
        if not is_temporary_taint(as_text(toleration.get("key"))):
            yield toleration


def _view(raw: Mapping[str, Any], profile: Profile) -> Pod | None:
    manifest = {**raw}
    if well_formed := well_formed_pod(manifest):
        return pod_from_raw(*well_formed, profile, None)
    found = (each for each in find_subjects(manifest, profile) if isinstance(each, Pod))
    return next(found, None)


def _why_by_itself(pod: Pod) -> str:
    """Return what brings the pod to its node whatever taints that has; empty if nothing does."""
    if MIRROR_ANNOTATION in pod.annotations:
        return "static pod of the node"
    if pod.is_daemon:
        return "a DaemonSet makes it for the node"
    topology = ({"key": key, "operator": "Exists"} for key in topology_keys(pod))
    always = {"matchExpressions": [*selector_expressions(pod), *topology]}
    if selected := _selected(always, pod.profile):
        return f"selects nodes {selected}"
    # The node matches one of the terms, and which one is not known.
    terms = [term for _, term in required_terms(pod) if not is_empty_term(term)]
    by_term = [_selected(term, pod.profile) for term in terms]
    return (
        f"selects nodes {' or '.join(dict.fromkeys(by_term))}" if by_term and all(by_term) else ""
    )


def _selected(term: Mapping[str, Any], profile: Profile) -> str:
    """Return how `term` of a node affinity selects GPU or named nodes; empty if it does not."""
    if label := selected_gpu_label(profile, term):
        return f"with {label}"
    return "by name" if names_nodes(term) else ""


def _why_admitted(tolerations: Collection[Mapping[str, Any]], taints: Sequence[Taint]) -> str:
    if not taints:
        return "no lasting taint keeps pods off the node"
    for taint in taints:
        if not any(tolerates(each, taint) for each in tolerations):
            return f"named the node, or came before its taint {display_taint(taint)}"
    if any(map(_tolerates_everything, tolerations)):
        return "tolerates every taint"
    return f"tolerates {', '.join(map(display_taint, taints))}"


def _tolerates_everything(toleration: Mapping[str, Any]) -> bool:
    is_bound = toleration.get("key") or toleration.get("effect")
    return not is_bound and toleration.get("operator") == "Exists"


class TakenWithoutGpu(NamedTuple):
    """The sums of pods that ask for no GPU: their numbers, and what they take of their nodes.

    `nodes` is on how many GPU nodes they are; `others` are neither `of_platform` nor
    `of_daemon_sets`.
    """

    pods: int
    nodes: int
    of_platform: int
    of_daemon_sets: int
    others: int
    cpu: int
    memory: int


def taken_without_gpu(pods: Collection[PodWithoutGpu]) -> TakenWithoutGpu:
    """Return the sums of `pods`."""
    number = sum(pod.pods for pod in pods)
    of_platform = sum(pod.pods for pod in pods if pod.is_of_platform)
    of_daemon_sets = sum(
        pod.pods for pod in pods if pod.is_of_daemon_set and not pod.is_of_platform
    )
    return TakenWithoutGpu(
        pods=number,
        nodes=len({pod.node for pod in pods}),
        of_platform=of_platform,
        of_daemon_sets=of_daemon_sets,
        others=number - of_platform - of_daemon_sets,
        cpu=sum(pod.cpu for pod in pods),
        memory=sum(pod.memory for pod in pods),
    )
