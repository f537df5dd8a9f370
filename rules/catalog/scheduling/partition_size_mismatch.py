"""A pod selects partitions of GPUs that no node pool of GKE has.

What it does
------------
Reads what a pod that asks for GPUs selects by `cloud.google.com/gke-gpu-partition-size`, in
`nodeSelector` and in the required node affinity. Finds

- a size into which none of the selected cards is divided: `1g.5gb` with
  `cloud.google.com/gke-accelerator: nvidia-h100-80gb`;
- a container that asks for `nvidia.com/mig-…` there: GKE's device plugin offers every partition as
  one `nvidia.com/gpu`. Not where the pod selects nodes without that plugin.

Sizes and cards that gpuward does not know are not compared, because GKE adds new ones, nor are pods
that have their node.

Why it matters
--------------
No node has what the pod selects or asks for, so the pod stays Pending, and GKE creates no node for
it.

References
----------
- https://cloud.google.com/kubernetes-engine/docs/how-to/gpus-multi
- GoogleCloudPlatform/container-engine-accelerators, `partition_gpu/partition_gpu.go`
- https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""

from rules.base.json_values import display
from rules.base.traits import GPU, NODE_SELECTION
from rules.gpu.devices import devices, pod_requests_gpu
from rules.placement.node_labels import allowed_values, selected_modes
from rules.placement.selected_cards import GKE_PARTITION_SIZE as SIZE
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

CARD_LABEL = "cloud.google.com/gke-accelerator"
# With this label, a node pool has a device plugin of the user's.
OWN_PLUGIN_LABEL = "gke-no-default-nvidia-gpu-device-plugin"
MIG_PREFIX = "nvidia.com/mig-"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the size that no selected card has, and each resource that GKE does not offer."""
    sizes = allowed_values(pod, SIZE)
    if not sizes or pod.is_placed or not pod_requests_gpu(pod):
        return
    yield from _findings_of_missing_size(pod, sizes)
    if allowed_values(pod, OWN_PLUGIN_LABEL) is not None:
        return
    for container in pod.containers:
        for resource in devices(container):
            if resource.startswith(MIG_PREFIX):
                yield Finding(
                    path=container.amount_path(resource),
                    key=f"{SIZE}.{resource}",
                    message=f"{container} asks for {display(resource)} on nodes with {SIZE}, "
                    "where GKE offers every partition as one nvidia.com/gpu",
                    container=container,
                    help="ask for nvidia.com/gpu: the label selects the size",
                )


def _findings_of_missing_size(pod: Pod, sizes: set[str]) -> Findings:
    from rules.profile.platforms.gke import PARTITION_SIZES, PARTITION_SIZES_BY_CARD  # noqa: PLC0415  # rarely needed

    cards = allowed_values(pod, CARD_LABEL)
    if not cards or not cards <= PARTITION_SIZES_BY_CARD.keys() or not sizes <= PARTITION_SIZES:
        return
    available = sorted({size for card in cards for size in PARTITION_SIZES_BY_CARD[card]})
    if sizes.isdisjoint(available):
        path = next((path for path, label, _ in selected_modes(pod) if label == SIZE), pod.path)
        names = " or ".join(sorted(cards))
        fact, remedy = f"has {', '.join(available)}", "select one of these sizes"
        if not available:
            fact, remedy = "cannot be divided", f"remove {SIZE}"
        yield Finding(
            path=path,
            key=f"nodes.{SIZE}",
            message=f"the pod selects {names} with partitions of {' or '.join(sorted(sizes))}: "
            f"such a card {fact}",
            help=f"{remedy}, or select another card",
        )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION, GPU), needs_resources=True
)
