"""A workload of a Kueue queue selects other nodes than those on which the queue has GPUs.

What it does
------------
Follows the label `kueue.x-k8s.io/queue-name` of a workload to its ClusterQueue and to the
ResourceFlavors of which the workload can get the GPUs that its pods ask for. Finds pod templates
whose `nodeSelector`, or required node affinity, no `nodeLabels` of these flavors meet. As Kueue
does, it compares only labels that a flavor with the resource has, and ignores a node affinity with
a term that demands none of them. A flavor that is not known counts as one that fits. The linter
knows the queues and flavors in the manifests of the same run, and `gpuward audit` those of the
cluster; the webhook knows them with `clusterInventory.queues`.

Not reported: pods in a cluster that Kueue does not hold back, and templates without a GPU.

Why it matters
--------------
Kueue never admits the workload, with `flavor a100 doesn't match node affinity` in its status,
although GPUs are free, and although nodes with the labels may exist: a flavor must have them.

References
----------
- https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
- kubernetes-sigs/kueue, `pkg/scheduler/flavorassigner/flavorassigner.go` (`flavorSelector`)
"""

from collections.abc import Mapping

from rules.base.json_values import Path, as_text, display
from rules.base.traits import GPU_RESOURCE, KNOWN_QUEUES, NODE_SELECTION
from rules.gpu.devices import requested_resources
from rules.gpu.quotas import cluster_queue_of
from rules.inventory.inventory import ResourceFlavor
from rules.placement.flavors import flavors_of
from rules.placement.node_affinity import NODE_AFFINITY, REQUIRED_AFFINITY, NodeSelection
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_NAMED = 3


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource that the queue has only on nodes which the pod does not select."""
    known = cluster_queue_of(pod, context.inventory)
    if known is None:
        return
    for resource in requested_resources(pod):
        flavors = flavors_of(pod, resource, known, context.inventory)
        if flavors.selected or not flavors.others or flavors.selection is None:
            continue
        first = context.inventory.find(ResourceFlavor, flavors.others[0])
        path, words, advice = _first_unmet(pod, flavors.selection, first.labels if first else {})
        yield Finding(
            path=path,
            key=f"flavor.{resource}",
            message=f"{words}, and {_listed(flavors.others)} of the ClusterQueue "
            f"{display(known.target)}, which has {resource} nowhere else, "
            f"{'is' if len(flavors.others) == 1 else 'are'} for other nodes: Kueue never admits "
            "the workload",
            help=f"{advice}: Kueue adds the labels of the flavor to the pods; or add a flavor with "
            "these labels to the queue",
        )


def _listed(flavors: tuple[str, ...]) -> str:
    if len(flavors) == 1:
        return f"the flavor {display(flavors[0])}"
    more = f" and {len(flavors) - _NAMED} more" if len(flavors) > _NAMED else ""
    return f"the flavors {', '.join(map(display, flavors[:_NAMED]))}{more}"


def _first_unmet(
    pod: Pod, selection: NodeSelection, labels: Mapping[str, str]
) -> tuple[Path, str, str]:
    """Return the path of what keeps the pod from a flavor with these labels, words, and advice."""
    for key in (demand.key for demand in selection.always if not demand.is_met(labels)):
        value = as_text(pod.node_selector.get(key))
        right = f"write {display(f'{key}: {labels[key]}')}, or " if key in labels else ""
        return (
            (*pod.path, "nodeSelector", key),
            f"the pod template selects {display(f'{key}={value}')}",
            f"{right}remove {display(key)} from the nodeSelector",
        )
    unmet = [d.key for term in selection.alternatives for d in term if not d.is_met(labels)]
    right = f"allow {display(f'{unmet[0]}: {labels[unmet[0]]}')}" if unmet[0] in labels else ""
    return (
        (*pod.path, *NODE_AFFINITY, REQUIRED_AFFINITY),
        f"the required node affinity of the pod template selects by {display(unmet[0])}",
        f"{right or f'remove {display(unmet[0])}'} in the node affinity",
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE, KNOWN_QUEUES, NODE_SELECTION),
    needs_resources=True,
)
