"""The amounts of a Koordinator share do not fit together.

What it does
------------
Finds, in one container:

- more than 100 `koordinator.sh/gpu`, or without `koordinator.sh/gpu.shared` (the number of cards)
  more than 100 `gpu-core` or `gpu-memory-ratio`, that are no multiple of 100, which is one card;
- `koordinator.sh/gpu` beside `gpu.shared`;
- less than a MiB of `gpu-memory`, which counts bytes;
- both of `gpu-memory` and `gpu-memory-ratio`, or `gpu-core` or `gpu.shared` without either;
- `gpu-core` or `gpu-memory-ratio` that cannot be divided by `gpu.shared`, or that are more than 100
  for each card.

Init containers are checked as well. With `huawei.com/npu-core`, `gpu.shared` has other partners and
is not checked.

Why it matters
--------------
A share is spread evenly over its cards, and its memory has one size. Koordinator's scheduler never
places such a pod, and its event says `invalid resource device requests`. Koordinator's webhook
refuses it if the feature `ValidatePodDeviceResource` is on, which it is not by default. A few
bytes are next to nothing in the scheduler's account, so the same memory is given to other pods.

References
----------
- koordinator-sh/koordinator, `pkg/scheduler/plugins/deviceshare/utils.go`
  (`ValidateDeviceRequest`)
- koordinator-sh/koordinator, `pkg/webhook/pod/validating/verify_device_resource.go`
"""

from collections.abc import Iterator

from rules.base.quantity import Quantity
from rules.base.traits import SHARE
from rules.gpu.devices import devices
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

GPU_PREFIX = "koordinator.sh/"
GPU_RESOURCE, CARDS_RESOURCE = f"{GPU_PREFIX}gpu", f"{GPU_PREFIX}gpu.shared"
MEMORY_RESOURCE, MEMORY_RATIO_RESOURCE, CORE_RESOURCE = (
    f"{GPU_PREFIX}gpu-memory",
    f"{GPU_PREFIX}gpu-memory-ratio",
    f"{GPU_PREFIX}gpu-core",
)
NPU_CORE_RESOURCE = "huawei.com/npu-core"
PERCENT_OF_CARD = 100
LEAST_BYTES = 2**20
# Each fault with its remedy.
BESIDE_CARDS = (
    f" beside {CARDS_RESOURCE}: only one of them is possible",
    f"remove {GPU_RESOURCE} or {CARDS_RESOURCE}",
)
NO_WHOLE_CARDS = (": more than one card must be whole cards", "write a multiple of 100")
MEMORY_TWICE = (
    f" beside {MEMORY_RATIO_RESOURCE}: memory is stated once",
    f"remove {MEMORY_RESOURCE} or {MEMORY_RATIO_RESOURCE}",
)
TOO_FEW_BYTES = (": it counts bytes", "write the amount with its unit, such as 8Gi")
NO_MEMORY = (
    " and for no memory of a card",
    f"add {MEMORY_RESOURCE} or {MEMORY_RATIO_RESOURCE}",
)
NOT_DIVISIBLE = (
    f", which cannot be divided between {{cards}} cards ({CARDS_RESOURCE})",
    "write a multiple of {cards}, or another number of cards",
)
TOO_MUCH = (
    f", and {{cards}} of {CARDS_RESOURCE} have {{most}}",
    "write at most {most}, or a larger number of cards",
)


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each amount that does not fit the others of its container."""
    for container in pod.containers:
        amounts = _positive_amounts(container)
        for name, fault, advice in _faults(amounts):
            yield Finding(
                path=container.amount_path(name),
                key=f"amounts.{name}",
                message=f"{container} asks for {name}: {amounts[name]}{fault}",
                container=container,
                help=advice,
            )


def _positive_amounts(container: Container) -> dict[str, int]:
    """The positive amounts, by resource; what cannot be read is left to other rules."""
    found: dict[str, int] = {}
    for name, device in devices(container).items():
        amount = device.amount
        if isinstance(amount, Quantity) and amount.value > 0:
            found[name] = amount.value
    return found


def _faults(amounts: dict[str, int]) -> Iterator[tuple[str, str, str]]:
    gpu, cards = amounts.get(GPU_RESOURCE, 0), amounts.get(CARDS_RESOURCE, 0)
    if gpu and cards:
        yield GPU_RESOURCE, *BESIDE_CARDS
    elif gpu > PERCENT_OF_CARD and gpu % PERCENT_OF_CARD:
        yield GPU_RESOURCE, *NO_WHOLE_CARDS
    if gpu or NPU_CORE_RESOURCE in amounts:
        return
    yield from _memory_faults(amounts, cards)
    for name in (CORE_RESOURCE, MEMORY_RATIO_RESOURCE):
        amount = amounts.get(name, 0)
        if not cards and amount > PERCENT_OF_CARD and amount % PERCENT_OF_CARD:
            yield name, *NO_WHOLE_CARDS
        elif cards and amount % cards:
            fault, advice = (text.format(cards=cards) for text in NOT_DIVISIBLE)
            yield name, fault, advice
        elif amount > PERCENT_OF_CARD * cards > 0:
            most = PERCENT_OF_CARD * cards
            fault, advice = (text.format(cards=cards, most=most) for text in TOO_MUCH)
            yield name, fault, advice


def _memory_faults(amounts: dict[str, int], cards: int) -> Iterator[tuple[str, str, str]]:
    if MEMORY_RESOURCE in amounts and MEMORY_RATIO_RESOURCE in amounts:
        yield MEMORY_RESOURCE, *MEMORY_TWICE
    elif 0 < amounts.get(MEMORY_RESOURCE, 0) < LEAST_BYTES:
        yield MEMORY_RESOURCE, *TOO_FEW_BYTES
    elif (
        MEMORY_RESOURCE not in amounts
        and MEMORY_RATIO_RESOURCE not in amounts
        and (cards or CORE_RESOURCE in amounts)
    ):
        yield CARDS_RESOURCE if cards else CORE_RESOURCE, *NO_MEMORY


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(SHARE,), needs_resources=True)
