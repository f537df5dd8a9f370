"""A container asks for several shares of GPUs that NVIDIA's device plugin or GKE divides.

What it does
------------
Finds containers that request more than one `nvidia.com/gpu.shared` or `nvidia.com/mig-….shared`, or
more than one `nvidia.com/gpu` in a pod that selects nodes whose cards are shared, by one of these
labels:

- `nvidia.com/gpu.sharing-strategy` with the values `time-slicing` or `mps`,
- `nvidia.com/gpu.product` with values that end with `-SHARED`,
- `cloud.google.com/gke-gpu-sharing-strategy` with the values `time-sharing` or `mps`,
- `cloud.google.com/gke-max-shared-clients-per-gpu` with values above 1.

GKE has its labels on nodes with shared cards alone, so `Exists` selects such nodes as well.

Why it matters
--------------
A share is a right to use a card beside others, not a part of a certain size: several promise no
more of it. GKE, and NVIDIA's device plugin with `failRequestsGreaterThanOne`, refuse the pod on its
node, where it fails with `UnexpectedAdmissionError`. With MPS, GKE refuses it only on nodes with
several cards.

References
----------
- https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus
- https://cloud.google.com/kubernetes-engine/docs/concepts/timesharing-gpus
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity
from rules.base.traits import SEVERAL_GPUS
from rules.gpu.devices import devices
from rules.placement.selected_cards import selects_shared_cards
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_WHOLE_GPU, _NVIDIA_PREFIX, _SHARED_SUFFIX = "nvidia.com/gpu", "nvidia.com/", ".shared"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each resource of which a container requests several shares."""
    by_label: bool | None = None
    for container in pod.containers:
        for name, device in devices(container).items():
            amount = device.limit if device.is_plain_count else None
            if not isinstance(amount, Quantity) or amount.value < 2:  # noqa: PLR2004
                continue
            is_share = name.startswith(_NVIDIA_PREFIX) and name.endswith(_SHARED_SUFFIX)
            if name == _WHOLE_GPU:
                by_label = selects_shared_cards(pod) if by_label is None else by_label
                is_share = by_label
            if not is_share:
                continue
            where = " on nodes with shared cards" if name == _WHOLE_GPU else ""
            yield Finding(
                path=(*container.resources_path, "limits", name),
                key=f"shares.{name}",
                message=f"{container} asks for {display(f'{name}: {amount.text}')}{where}: "
                "several shares promise it no larger part of a card, and some nodes refuse them",
                container=container,
                help="ask for one share, or for whole cards on nodes that do not share them",
            )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(SEVERAL_GPUS,), needs_resources=True
)
