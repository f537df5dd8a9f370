"""A share is so small that a card full of such shares has memory left.

What it does
------------
Compares `aliyun.com/gpu-mem` with the card that the pod selects by a label of nodes, such as
`aliyun.accelerator/nvidia_name`. Finds a share below a twentieth of the card's memory. Pods that
name no card, or only nodes without cGPU (`ack.node.gpu.schedule: share`), are not reported.

Why it matters
--------------
cGPU runs at most 20 pods on one card, and the 21st fails with `Error occurs when creating cGPU
instance`. Twenty shares of less than a twentieth leave memory of the card that no pod can use. That
is no fault where larger shares are on the same card.

References
----------
- Alibaba Cloud, "Manage the shared GPU scheduling component", limitations
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity
from rules.base.traits import NODE_CONSTRAINT, SHARE
from rules.gpu.devices import devices
from rules.placement.node_labels import CGPU_MODES, GPU_COUNT, GPU_MEM, MODE_LABEL, allowed_values
from rules.placement.selected_cards import MEBIBYTES_BY_UNIT, CardMemory, selected_card_memory
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each share of which the most pods that cGPU allows do not fill the selected card."""
    modes = allowed_values(pod, MODE_LABEL)
    # A share that is spread over several cards is not compared with one.
    if (modes is not None and modes.isdisjoint(CGPU_MODES)) or GPU_COUNT in pod.labels:
        return
    card: CardMemory | None = None
    for container in pod.containers:
        device = devices(container).get(GPU_MEM)
        amount = device.limit if device else None
        if device is None or not isinstance(amount, Quantity) or amount.nano <= 0:
            continue
        card = card or selected_card_memory(pod)
        if card is None:
            return
        from rules.profile.platforms.ack import MEMORY_ISOLATION  # noqa: PLC0415  # rarely needed

        most = MEMORY_ISOLATION.max_pods_per_card
        used = amount.value * MEBIBYTES_BY_UNIT.get(device.resource.unit, 0) * most
        if 0 < used < card.smallest_mebibytes:
            message = (
                f"{container} asks for {display(f'{GPU_MEM}: {amount.text}')}: {most} such pods, "
                f"the most that cGPU runs on a card, use {used // 1024} of the "
                f"{card.smallest_mebibytes // 1024} GiB of {display(card.cards)}"
            )
            yield _finding(container, message)


def _finding(container: Container, message: str) -> Finding:
    return Finding(
        path=(*container.resources_path, "limits", GPU_MEM),
        key=f"small.{GPU_MEM}",
        message=message,
        container=container,
        help="select smaller cards, or ask for a larger share, unless larger pods share the card",
    )


RULE = define_rule(
    check, action=Action.AUDIT, since="0.1", needs=(SHARE, NODE_CONSTRAINT), needs_resources=True
)
