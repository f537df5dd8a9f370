"""The share of a GPU's computing power is not a step of five percent.

What it does
------------
Finds amounts of `aliyun.com/gpu-core.percentage` that are not a multiple of 5 between 5 and 100
for each card. If the pod label `aliyun.com/gpu-count` spreads a pod over several cards, the
amount is the sum over these cards. An amount of 0 is reported beside `aliyun.com/gpu-mem`.

Why it matters
--------------
cGPU divides computing power in steps of five percent of a card, and the least is five. A job with
any other number cannot be submitted.

Fix safety
----------
The fix rounds the percentage up to the next step, to 100 for each card at most, only if the
policy says `fix: true`: the container then gets more of a card than its author requested, or
less. There is no fix of 0, which may also mean that the container needs no share of its own.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK)
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, parse
from rules.base.traits import SHARE
from rules.gpu.amounts import rewrite_edits
from rules.placement.node_labels import GPU_CORE, GPU_COUNT, GPU_MEM
from rules.placement.selected_cards import cards_of_share
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

STEP_PERCENT, MAX_PERCENT = 5, 100
SPREAD_ADVICE = f", or spread it over several cards by the pod label {GPU_COUNT}"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each percentage that no card can provide; a request counts only without a limit."""
    cards = cards_of_share(pod.labels)
    for container in pod.containers:
        if GPU_CORE in container.limits:
            yield from _findings_of_amount(container, "limits", cards)
        elif GPU_CORE in container.requests:
            yield from _findings_of_amount(container, "requests", cards)


def _findings_of_amount(container: Container, field: str, cards: int) -> Findings:
    amount = parse(getattr(container, field)[GPU_CORE])
    if not isinstance(amount, Quantity) or not amount.is_integer or amount.nano < 0:
        return
    if not amount.nano and not _asks_for_memory(container):
        return
    if amount.value % cards:
        return  # `gpu-count-label` reports that the label does not divide the amount
    each = amount.value // cards
    if each % STEP_PERCENT == 0 and STEP_PERCENT <= each <= MAX_PERCENT:
        return
    spread = f", which is {each} on each of {cards} cards" if each and cards > 1 else ""
    rounded = min(-(-each // STEP_PERCENT) * STEP_PERCENT, MAX_PERCENT) * cards
    advice = f"write {GPU_CORE}: {rounded}"
    if each > MAX_PERCENT and cards == 1:
        advice += SPREAD_ADVICE
    edits = rewrite_edits(container, GPU_CORE, amount, rounded)
    fix: Fix | None = Fix(f"round {GPU_CORE} to {rounded}", edits)
    if not each:
        advice, fix = f"write {GPU_CORE}: {STEP_PERCENT * cards} or more, or leave it out", None
    yield Finding(
        path=(*container.resources_path, field, GPU_CORE),
        key=f"step.{GPU_CORE}",
        message=(
            f"{container} asks for {display(f'{GPU_CORE}: {amount.text}')}{spread}: "
            f"a card gives computing power in steps of {STEP_PERCENT} "
            f"from {STEP_PERCENT} to {MAX_PERCENT}"
        ),
        container=container,
        help=advice,
        fix=fix,
    )


def _asks_for_memory(container: Container) -> bool:
    memory = parse(container.limits.get(GPU_MEM, container.requests.get(GPU_MEM, 0)))
    return not isinstance(memory, Quantity) or memory.nano > 0


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,), needs_resources=True)
