"""A container asks for more GPU memory than any card has.

What it does
------------
Finds amounts of shared GPU memory that are larger than the memory of the largest card that is
known. Evaluates resources that count GiB, MiB or bytes of one NVIDIA card, such as
`aliyun.com/gpu-mem`, `nvidia.com/gpumem` and `koordinator.sh/gpu-memory`. With the pod label
`aliyun.com/gpu-count`, or `koordinator.sh/gpu.shared` beside it, the memory is divided by that
number first. If the pod selects cards by a label of nodes, such as
`aliyun.accelerator/nvidia_name`, `aliyun.com/gpu-mem` is compared with these cards. HAMi and
Volcano can be configured to hand out more memory than a card has, so their shares are compared
with the largest card only.

Finds also containers of a pod that together ask for more `aliyun.com/gpu-mem` than a card has. This
is a note, because it depends on the scheduler: that of open gpushare adds them up and looks for one
card that has as much.

Only a note: 1,024 and more of `aliyun.com/gpu-mem`, unless the policy chooses a profile that counts
it in GiB, such as `ack`. The device plugin of another cluster probably counts in MiB.

Not reported: amounts that `gpu-mem-unit` reports. `no-fitting-node` compares shares with the cards
of the cluster's own nodes, where these are all known.

Why it matters
--------------
A share is a part of one card, and several cards do not add up to one. No node has room for such a
share, so the pod stays Pending. The cause is often a number of MiB where GiB are counted.

Where the plugin counts in MiB, say so in a profile of the policy:

```yaml
profiles:
  - name: ack-in-mebibytes
    extends: [ack]
    resources:
      aliyun.com/gpu-mem: {vendor: nvidia, sharing: share, unit: MiB}
```

References
----------
- https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/219
- AliyunContainerService/gpushare-scheduler-extender, `pkg/cache/nodeinfo.go` (`allocateGPUID`)
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity
from rules.base.traits import SHARE
from rules.gpu.devices import Device, devices
from rules.placement.node_labels import GPU_COUNT, GPU_MEM
from rules.placement.selected_cards import MEBIBYTES_BY_UNIT, cards_of_share, selected_card_memory
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# No card for data centres has less memory, so smaller amounts need no table.
SMALLEST_CARD_MEBIBYTES = 8 * 1024
PROBABLY_MIB_FROM = 1024  # of an amount in GiB
# Memory in bytes is the sum of so many cards.
KOORDINATOR_CARDS = "koordinator.sh/gpu.shared"
_BYTES = "bytes"
LEAST_BYTES = 10**6  # `gpu-mem-unit` takes larger amounts for bytes


def check(pod: Pod, context: Context) -> Findings:
    """Yield each share of a card's memory that is larger than a card, or all of them together."""
    too_large = list(_findings_of_containers(pod, context))
    yield from too_large
    if not too_large:
        yield from _findings_of_sum(pod, context)


def _findings_of_sum(pod: Pod, context: Context) -> Findings:
    shares = [
        (container, device, amount)
        for container in pod.containers
        if container.role == "app" and (device := devices(container).get(GPU_MEM))
        if isinstance(amount := device.amount, Quantity)
        and not _is_reported_as_bytes(amount, context)
    ]
    total = sum(amount.value for _, _, amount in shares)
    if len(shares) > 1 and (fault := _fault(pod, shares[0][1], total, cards_of_share(pod.labels))):
        container, device, _ = shares[-1]
        yield Finding(
            path=container.amount_path(GPU_MEM),
            key=f"card.{GPU_MEM}.sum",
            message=f"the containers ask together for {display(f'{GPU_MEM}: {total}')}, {fault}: "
            "the scheduler of open gpushare places a pod on one card",
            help=f"let all containers together ask for no more {device.resource.unit} than one "
            "card has, or run them in pods of their own",
            action=Action.AUDIT,
        )


def _findings_of_containers(pod: Pod, context: Context) -> Findings:
    for container in pod.containers:
        for name, device in devices(container).items():
            amount = device.amount
            if not isinstance(amount, Quantity) or not _is_memory(device):
                continue
            if name == GPU_MEM and _is_reported_as_bytes(amount, context):
                continue
            if fault := _fault(pod, device, amount.value, _cards(pod, container, device)):
                is_guessed = name == GPU_MEM and name not in pod.profile.active
                in_gib = device.resource.unit == "GiB"
                probably_mib = is_guessed and in_gib and amount.value >= PROBABLY_MIB_FROM
                yield Finding(
                    path=container.amount_path(name),
                    key=f"card.{name}",
                    message=f"{container} asks for {display(f'{name}: {amount.text}')}, {fault}",
                    container=container,
                    help=_advice(device),
                    action=Action.AUDIT if probably_mib else Action.DENY,
                )


def _is_memory(device: Device) -> bool:
    units = (*MEBIBYTES_BY_UNIT, _BYTES)
    return device.resource.vendor == "nvidia" and device.resource.unit in units


def _cards(pod: Pod, container: Container, device: Device) -> int:
    """Return over how many cards the memory is spread."""
    if device.name == GPU_MEM:
        return cards_of_share(pod.labels)
    cards = devices(container).get(KOORDINATOR_CARDS) if device.resource.unit == _BYTES else None
    amount = cards.amount if cards else None
    return max(1, amount.value) if isinstance(amount, Quantity) else 1


def _is_reported_as_bytes(amount: Quantity, context: Context) -> bool:
    # At admission the API server has rewritten a plain 16000 as 16k.
    return amount.value >= LEAST_BYTES or (context.operation is None and bool(amount.suffix))


def _fault(pod: Pod, device: Device, amount: int, cards: int) -> str | None:
    unit = device.resource.unit
    asked = amount // 2**20 if unit == _BYTES else amount * MEBIBYTES_BY_UNIT[unit]
    if asked <= SMALLEST_CARD_MEBIBYTES * cards:
        return None
    from rules.profile.platforms.cards import LARGEST_MEMORY_GB  # noqa: PLC0415  # not for a usual amount

    # HAMi can hand out more memory than a card has (deviceMemoryScaling).
    selected = selected_card_memory(pod) if device.name == GPU_MEM else None
    limit = selected.largest_mebibytes if selected else LARGEST_MEMORY_GB * 1024
    if asked <= limit * cards:
        return None
    share = "which is" if cards == 1 else f"which for each of {cards} cards is"
    owner = display(selected.cards) if selected else "the largest known card"
    return (
        f"{share} {_gib_words(asked, cards)} GiB, and {owner} has at most {_gib_words(limit)} GiB"
    )


def _gib_words(mebibytes: int, cards: int = 1) -> str:
    return f"{mebibytes / 1024 / cards:.1f}".removesuffix(".0")


def _advice(device: Device) -> str:
    unit = device.resource.unit
    advice = f"ask for no more {unit} than one card has"
    if device.name != GPU_MEM:
        return advice
    if unit == "GiB":
        advice += ", or set `unit: MiB` in a profile if the device plugin counts in MiB"
    return f"{advice}; the pod label {GPU_COUNT} spreads memory over several cards"


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(SHARE,),
    # The cards of the nodes that the pod selects are too small: one rule says so.
    supersedes=("no-fitting-node",),
    needs_resources=True,
)
