"""A workload of a Kueue queue tolerates none of the nodes on which the queue has GPUs.

What it does
------------
Follows the label `kueue.x-k8s.io/queue-name` of a workload to its ClusterQueue and to the
ResourceFlavors of which the workload can get the GPUs that its pods ask for, and whose `nodeLabels`
the pods select, or do not exclude. Finds pod templates that do not tolerate the `nodeTaints` of any
of these flavors. Of a flavor with a Topology whose last level is `kubernetes.io/hostname`, the
taints that all its GPU nodes have count too. Tolerations that a flavor itself adds count, and so
does every flavor that is not known: then nothing is reported.

Kueue admits all templates of a workload or none. So one that asks for no GPU, as that of the head
of a RayCluster, is found too, where every flavor of its CPU or memory has in `nodeTaints` a taint
of the profile that it does not tolerate.

The linter knows the queues, flavors, topologies and nodes in the manifests of the same run, and
`gpuward audit` those of the cluster. The webhook knows them with `clusterInventory.queues`, and the
nodes with `clusterInventory.nodes`.

The template of a TrainJob is in its TrainingRuntime or ClusterTrainingRuntime. With that in the
manifests or in the cluster, the linter and the audit merge both as Kubeflow Trainer does. The
webhook does not know it, and says nothing about TrainJobs.

Not reported: taints with the effect `PreferNoSchedule`, which Kueue ignores; pods in a cluster that
Kueue does not hold back; taints of nodes in a queue with admission checks, which may make other
nodes; and taints of the profile where Kueue queues the pods themselves, as those of a Deployment:
tolerations that are added to Pods come in time there.

Why it matters
--------------
Kueue compares the taints with the template of a job's pods, before there are any. What adds
tolerations to Pods, as gpuward, other webhooks and clouds do, comes too late: the workload is never
admitted, with `untolerated taint` in its status, although GPUs are free.

Fix safety
----------
The fix adds the toleration to the template. It is made by default for a taint of the profile, as
that of `toleration-default`, which this rule replaces there; for any other taint, and for a choice
between several flavors, only if the policy says `fix: true`. The webhook changes templates only
with `workloads: fix`, when a workload is created; on update it keeps the toleration. Templates that
ask for no GPU get none: what they lack may be a flavor of other nodes.

References
----------
- https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
- https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
- https://kueue.sigs.k8s.io/docs/tasks/run/deployment/
- kubernetes-sigs/kueue, `pkg/scheduler/flavorassigner/flavorassigner.go` (`checkFlavorForPodSets`),
  `pkg/cache/scheduler/tas_flavor_snapshot.go` (`fillInCounts`)
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import append, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import GPU_RESOURCE, KNOWN_QUEUES, QUEUED_TEMPLATE
from rules.gpu.devices import pod_requests_gpu, requested_resources
from rules.gpu.quotas import ClusterQueueOfPod, cluster_queue_of, is_queued_by_template
from rules.inventory.inventory import (
    HOSTNAME_LABEL,
    FlavorNodes,
    FlavorTaint,
    Inventory,
    ResourceFlavor,
    Topology,
)
from rules.placement.flavors import flavors_of
from rules.placement.tolerations import display_taint, is_tolerated, tolerates, toleration_for
from rules.profile.profile import Taint
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

_IGNORED_EFFECT = "PreferNoSchedule"
_OTHER_RESOURCES = ("cpu", "memory")


def check(pod: Pod, context: Context) -> Findings:
    """Yield the first taint of the flavors, if all flavors of a resource have one."""
    known = cluster_queue_of(pod, context.inventory)
    if known is None or not pod.is_complete:
        return
    reported: set[Taint] = set()
    has_gpus = pod_requests_gpu(pod)
    for resource in requested_resources(pod) if has_gpus else _other_resources(pod):
        # Of flavors for other nodes than the pod selects says `flavor-mismatch`.
        flavors, others, _ = flavors_of(pod, resource, known, context.inventory)
        taints = [_untolerated_taint(pod, flavor, known, context.inventory) for flavor in flavors]
        untolerated = [taint for taint in taints if taint is not None]
        if not untolerated or len(untolerated) < len(flavors) or untolerated[0] in reported:
            continue
        if not has_gpus and None in (_taint_of_profile(pod, taint) for taint in untolerated):
            continue
        reported.add(untolerated[0])
        more = f" nor those of {len(flavors) - 1} more" if len(flavors) > 1 else ""
        words = f"{display_taint(untolerated[0])} of the flavor {display(flavors[0])}{more}"
        where = "on no other nodes that it selects" if others else "nowhere else"
        queue = f"{display(known.target)}, which has {resource} {where}"
        finding = _finding if has_gpus else _finding_without_gpus
        yield finding(pod, untolerated, f"{words} of the ClusterQueue {queue}")


def _other_resources(pod: Pod) -> tuple[str, ...]:
    """The resources but GPUs that a template asks for; none of a pod that is queued itself."""
    if not is_queued_by_template(pod):
        return ()
    amounts = [{**container.limits, **container.requests} for container in pod.containers]
    return tuple(
        name
        for name in _OTHER_RESOURCES
        if any(_is_more_than_zero(each.get(name)) for each in amounts)
    )


def _is_more_than_zero(amount: Any) -> bool:
    parsed = parse(amount)
    return isinstance(parsed, Quantity) and parsed.nano > 0


def _finding(pod: Pod, taints: list[Taint], words: str) -> Finding:
    right, path = toleration_for(taints[0]), (*pod.path, "tolerations")
    of_profile = _taint_of_profile(pod, taints[0])
    return Finding(
        path=path,
        key=f"tolerations.{display_taint(of_profile or taints[0])}",
        message=f"the pod template does not tolerate the taint {words}: Kueue never admits the "
        "workload",
        help=f"add {_display(right)} to the tolerations of the template, or to those of the flavor",
        fix=Fix(
            f"tolerate {display_taint(taints[0])}",
            (append(path, right),),
            safe=of_profile is not None and len(taints) == 1,
        ),
    )


def _finding_without_gpus(pod: Pod, taints: list[Taint], words: str) -> Finding:
    return Finding(
        path=(*pod.path, "tolerations"),
        key=f"tolerations.{display_taint(_taint_of_profile(pod, taints[0]) or taints[0])}",
        message="the pod template, which asks for no GPU, does not tolerate the taint "
        f"{words}: Kueue never admits the workload",
        help="give the queue a flavor of nodes without GPUs, or add "
        f"{_display(toleration_for(taints[0]))} to the tolerations of the flavor",
    )


def _display(toleration: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in toleration.items()) + "}"


def _untolerated_taint(
    pod: Pod, name: str, known: ClusterQueueOfPod, inventory: Inventory
) -> Taint | None:
    """The first taint that keeps the pod from the flavor of this name; None if none is known."""
    flavor = inventory.find(ResourceFlavor, name)
    if flavor is None:
        return None
    # A template without GPUs may get one of the other nodes.
    of_nodes = _taints_of_gpu_nodes(name, flavor, inventory) if pod_requests_gpu(pod) else ()
    for key, value, effect in (*flavor.taints, *(() if known.queue.has_checks else of_nodes)):
        taint = Taint((), key, value, effect)
        if taint.effect == _IGNORED_EFFECT or is_tolerated(pod, taint):
            continue
        if not is_queued_by_template(pod) and _taint_of_profile(pod, taint) is not None:
            continue
        if not any(tolerates(toleration, taint) for toleration in flavor.tolerations):
            return taint
    return None


def _taints_of_gpu_nodes(
    name: str, flavor: ResourceFlavor, inventory: Inventory
) -> tuple[FlavorTaint, ...]:
    """The taints of all GPU nodes of a flavor, if Kueue itself chooses among its nodes."""
    topology = inventory.find(Topology, flavor.topology) if flavor.topology else None
    if topology is None or topology.levels[-1:] != (HOSTNAME_LABEL,):
        return ()
    nodes = inventory.find(FlavorNodes, name)
    return nodes.taints if nodes else ()


def _taint_of_profile(pod: Pod, taint: Taint) -> Taint | None:
    """The taint of the profile that `taint` is, whatever its value."""
    same = (t for t in pod.profile.taints if (t.key, t.effect) == (taint.key, taint.effect))
    return next(same, None)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE | QUEUED_TEMPLATE, KNOWN_QUEUES),
    needs_resources=True,
    supersedes=("toleration-default",),
)
