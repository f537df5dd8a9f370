"""A pod asks for a whole GPU and for a share of one.

What it does
------------
Finds pods that request whole cards of a vendor (`nvidia.com/gpu`) and also shares into which
software divides that vendor's cards (`aliyun.com/gpu-mem`, `koordinator.sh/gpu-core`). Amounts
that belong to a count, such as `nvidia.com/gpumem` beside `nvidia.com/gpu`, are fine, and so are
MIG devices beside whole cards.

Why it matters
--------------
A node that shares its cards usually does not also offer whole cards: on ACK the modes of a node
exclude each other. No node then fits the pod, and it waits forever.

References
----------
- https://www.alibabacloud.com/help/en/container-service-for-kubernetes/latest/labels-used-by-ack-to-control-gpus
"""

from rules.base.json_values import display
from rules.base.traits import SHARE
from rules.base.words import matches_any
from rules.gpu.devices import Device, devices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# No real pod requests so many kinds of card. The limit bounds the time for hostile pods.
MOST_COMPARED = 50


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each share that a pod requests beside a whole card of the same vendor."""
    requested = [(c, d) for c in pod.containers for d in devices(c).values() if d.is_requested]
    if len(requested) < 2:  # noqa: PLR2004  # a mix needs two resources
        return
    whole: dict[str, list[Device]] = {}
    for _, device in requested:
        if device.resource.sharing == "whole":
            whole.setdefault(device.resource.vendor, []).append(device)
    for container, device in requested:
        if device.resource.sharing == "share":
            candidates = whole.get(device.resource.vendor, [])[:MOST_COMPARED]
            other = next((w for w in candidates if _exclude(device, w)), None)
            if other:
                yield _finding(container, device, other)


def _exclude(share: Device, whole: Device) -> bool:
    return not matches_any(share.resource.companions, whole.name) and not matches_any(
        whole.resource.companions, share.name
    )


def _finding(container: Container, share: Device, whole: Device) -> Finding:
    message = (
        f"{container} asks for {display(share.name)} and the pod also for {display(whole.name)}: "
        "few nodes offer both shares and whole cards"
    )
    advice = "ask for whole cards or for shares, not for both; run the two in pods of their own"
    path = container.amount_path(share.name)
    return Finding(
        path=path, key=f"mixed.{share.name}", message=message, container=container, help=advice
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(SHARE,))
