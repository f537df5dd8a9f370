"""No node of the cluster can run the GPU pod.

What it does
------------
Compares memory of a shared card, `aliyun.com/gpu-mem`, with a single card of the nodes that the
pod selects, as far as they are among the linted files, or in the audited cluster. A node offers the
sum of its cards. How much each has follows from `aliyun.com/gpu-count` beside it, from labels such
as `nvidia.com/gpu.memory` and `aliyun.accelerator/nvidia_mem`, or from the model of its cards.

Where all nodes are known, compares all GPU resources. Finds a node selector or a required node
affinity that no node meets, a GPU resource that no node offers which meets them, and more of one
than any such node has. All nodes are known only at admission, and only if the chart says so with
`clusterInventory.nodes` (docs/other-objects.md): where an autoscaler adds nodes of other kinds, a
pod may wait for a node that is not there yet.

Compared are the labels of GPU nodes that a profile names, and the resources that at least one node
offers. Taints, and what other pods have taken, are not compared. Pods with a node name or a
scheduling gate, and those of DaemonSets, are not evaluated.

No bundle refuses such a pod, because a node may have joined the cluster since. A policy can.

Not reported: a share of a card where one of the nodes does not say how large its cards are, or
offers more memory than any number of them has, because its device plugin counts MiB and the profile
says GiB.

Why it matters
--------------
The pod stays Pending until its owner reads its events. Jobs and Deployments are created without an
error.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections.abc import Mapping, Sequence

from rules.base.json_values import Path, display
from rules.base.quantity import Quantity
from rules.base.traits import GPU_RESOURCE, KNOWN_NODES
from rules.gpu.devices import (
    devices,
    effective_requests,
    is_device_class,
    path_of_first_request,
    requested_resources,
)
from rules.inventory.inventory import SURVEY_NAME, DeviceClass, Inventory, NodeGroup, NodeSurvey
from rules.objects.container import POD_SPEC
from rules.placement.node_affinity import NodeSelection, required_terms
from rules.placement.node_labels import GPU_MEM
from rules.placement.selected_cards import cards_of_share, labelled_share_of_card
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_STAYS_PENDING = "the pod stays Pending"
HELP = "`kubectl get nodes --show-labels` and `gpuward gpus` show what there is"


def check(pod: Pod, context: Context) -> Findings:
    """Yield what keeps the pod from every node, if something does."""
    survey = context.inventory.find(NodeSurvey, SURVEY_NAME)
    if survey is None or pod.layout is not POD_SPEC or not requested_resources(pod):
        return
    is_updated = pod.exists and context.operation is not None
    if is_updated or _needs_no_scheduling(pod):
        return
    from rules.placement.node_affinity import node_selection  # noqa: PLC0415  # not offline

    wanted = node_selection(pod, survey)
    groups = list(context.inventory.all_in(NodeGroup, None).values())
    if wanted is None or not groups:
        return
    amounts = _requested_amounts(pod, groups, context.inventory)
    fitting = [group for group in groups if wanted.is_met(group.labels)]
    offering = [group for group in fitting if _has_room(group, amounts)]
    if not survey.has_all:
        yield from _findings_of_too_large_shares(
            pod, fitting, "the known nodes", "it fits on none of them"
        )
    elif not fitting:
        path, reason = _missing_labels(pod, groups, wanted)
        yield _finding(path, "labels", reason)
    elif not offering:
        name, reason = _shortage(fitting, amounts)
        yield _finding(path_of_first_request(pod, name), name, reason)
    else:
        yield from _findings_of_too_large_shares(pod, offering, "the nodes", _STAYS_PENDING)


def _needs_no_scheduling(pod: Pod) -> bool:
    """Return whether the pod has a node, has a scheduling gate, or has no node to wait for."""
    gated = pod.spec.get("nodeName") or pod.spec.get("schedulingGates")
    return bool(gated) or pod.is_daemon


def _requested_amounts(
    pod: Pod, groups: Sequence[NodeGroup], inventory: Inventory
) -> dict[str, int]:
    """Return the pod's requests of the resources that nodes state.

    Some are not in the status of a node: those that a scheduler counts by itself, such as HAMi's
    memory, and those that a driver offers by device classes.
    """
    stated = {name for group in groups for name in group.resources}
    classes = inventory.all_in(DeviceClass, None).values()
    stated -= {known.extended_resource for known in classes}
    return {
        name: amount
        for name, amount in effective_requests(pod).items()
        if name in stated and amount and not is_device_class(name)
    }


def _has_room(group: NodeGroup, amounts: Mapping[str, int]) -> bool:
    return all(group.resources.get(name, 0) >= amount for name, amount in amounts.items())


def _missing_labels(
    pod: Pod, groups: Sequence[NodeGroup], wanted: NodeSelection
) -> tuple[Path, str]:
    """Return where the pod selects labels that no node has, and which, if it is a single one."""
    for demand in wanted.always:
        if not any(demand.is_met(group.labels) for group in groups):
            label = display(f"{demand.key}: {min(demand.values)}")
            return (*pod.path, "nodeSelector", demand.key), f"no node has the label {label}"
    terms = (path for path, _ in required_terms(pod))
    place = next(terms, (*pod.path, "nodeSelector"))
    return place, "no node has the labels that the pod selects"


def _shortage(groups: Sequence[NodeGroup], amounts: Mapping[str, int]) -> tuple[str, str]:
    """The resource of which all nodes have too little, and a text about it."""
    for name, amount in amounts.items():
        most = max(group.resources.get(name, 0) for group in groups)
        if most < amount:
            has = f"has more than {most}" if most else "offers it"
            where = "on which the pod may run "
            return name, f"the pod asks for {amount} {name}, and no node {where}{has}"
    name = next(iter(amounts))
    return name, f"no node on which the pod may run offers all of {', '.join(amounts)}"


def _findings_of_too_large_shares(
    pod: Pod, groups: Sequence[NodeGroup], nodes: str, effect: str
) -> Findings:
    """Yield each share of one card that is larger than every card of `groups`, if all are known.

    `nodes` and `effect` are for the messages.
    """
    resource = pod.profile.resource(GPU_MEM)
    unit = resource.unit if resource else ""
    cards = [_largest_card_memory(group, unit) for group in groups if group.resources.get(GPU_MEM)]
    if not cards or not all(cards):
        return
    for container in pod.containers:
        device = devices(container).get(GPU_MEM)
        if device is None:
            continue
        amount = device.amount
        if isinstance(amount, Quantity) and amount.value > max(cards) * cards_of_share(pod.labels):
            reason = (
                f"{container} asks for {display(f'{GPU_MEM}: {amount.text}')}, and no card of "
                f"{nodes} on which the pod may run has more than {max(cards)}"
            )
            found = _finding(container.amount_path(GPU_MEM), "", reason, effect)
            # The key is that of `memory-exceeds-card`, which supersedes this rule.
            yield found._replace(key=f"card.{GPU_MEM}", container=container)


def _largest_card_memory(group: NodeGroup, unit: str) -> int:
    """Return how much GPU_MEM the largest card of these nodes has; 0 if that is unknown."""
    labelled = labelled_share_of_card(group.labels, group.resources[GPU_MEM], unit)
    return max(group.per_card.get(GPU_MEM, 0), labelled)


def _finding(path: Path, key: str, reason: str, effect: str = _STAYS_PENDING) -> Finding:
    message = f"{reason}: {effect}"
    return Finding(path=path, key=f"fit.{key}", message=message, help=HELP)


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU_RESOURCE, KNOWN_NODES), needs_resources=True
)
