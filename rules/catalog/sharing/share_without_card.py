"""A container asks for a part of a card and for no card.

What it does
------------
Finds `volcano.sh/vgpu-memory`, `vgpu-memory-percentage` and `vgpu-cores` in a container that does
not request `volcano.sh/vgpu-number`, and `tencent.com/vcuda-memory` without
`tencent.com/vcuda-core`. In a pod with the label `hami.io/webhook: ignore`, finds the memory and
the cores of HAMi, such as `nvidia.com/gpumem`, without the card that they are a part of.

Not reported: HAMi's shares in other pods. HAMi's webhook adds the card to them.

Why it matters
--------------
No card comes with such a request. Volcano's device plugin and Tencent's gpu-manager answer the
kubelet with nothing, and the scheduler of HAMi counts nothing. The container starts all the same.
If it needs a GPU it fails then; if its image sets `NVIDIA_VISIBLE_DEVICES=all`, it may see every
GPU of the node.

References
----------
- Project-HAMi/volcano-vgpu-device-plugin, `pkg/plugin/vgpu/plugin.go` (`Allocate`)
- tkestack/gpu-manager, `pkg/server/vmemory.go` (`Allocate`)
- Project-HAMi/HAMi, `charts/hami/templates/scheduler/webhook.yaml` (`objectSelector`),
  `pkg/device/nvidia/device.go` (`MutateAdmission`, `GenerateResourceRequests`)
"""

from rules.base.json_values import display
from rules.base.text_matching import matches_any
from rules.base.traits import ALIYUN_PREFIX, SHARE
from rules.gpu.devices import Device, devices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# Where no webhook adds the card.
PREFIXES_WITHOUT_CARD = ("volcano.sh/", "tencent.com/")
ADVICE_END = "beside it under resources.limits"
HAMI_LABEL, IGNORED_VALUE = "hami.io/webhook", "ignore"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each part of a card for which the container that requests it gets no card."""
    for container in pod.containers:
        requested = [device for device in devices(container).values() if device.is_requested]
        has_card: dict[tuple[str, ...], bool] = {}
        for device in requested:
            cards = device.resource.companions
            if not cards or not _gets_no_card(device, pod):
                continue
            if cards not in has_card:
                has_card[cards] = any(matches_any(cards, other.name) for other in requested)
            if not has_card[cards]:
                yield _finding(container, device)


def _gets_no_card(device: Device, pod: Pod) -> bool:
    """Return whether no webhook adds the card that `device` is a part of."""
    if device.name.startswith(ALIYUN_PREFIX):
        return False  # `core-without-mem` reports those
    return (
        device.name.startswith(PREFIXES_WITHOUT_CARD) or pod.labels.get(HAMI_LABEL) == IGNORED_VALUE
    )


def _finding(container: Container, device: Device) -> Finding:
    card = device.resource.companions[0]
    known = container.profile.resource(card)
    counted = ": 1" if known is None or known.unit == "device" else ""
    return Finding(
        path=container.amount_path(device.name),
        key=f"alone.{device.name}",
        message=(
            f"{container} asks for {display(device.name)} and for no {card}, "
            "so no card comes with it and its image decides which GPUs it sees"
        ),
        container=container,
        help=f"write `{card}{counted}` {ADVICE_END}",
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,), needs_resources=True)
