"""The placement label of a shared GPU has an unknown value.

What it does
------------
Finds the pod label `ack.gpushare.placement` with another value than `require-whole-device`.

Why it matters
--------------
The scheduler of ACK knows one value of this label, which keeps other pods off the card. It does
not place a pod that shares a GPU and has any other.

References
----------
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.pod import Pod
from rules.reading import shown, text
from rules.rule import Action, Finding, Rule
from rules.traits import KEY

PLACEMENT = "ack.gpushare.placement"
WHOLE_DEVICE = "require-whole-device"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the label if its value is not the only one there is."""
    if PLACEMENT in pod.labels and pod.labels[PLACEMENT] != WHOLE_DEVICE:
        message = (
            f"the pod label {PLACEMENT} is {shown(text(pod.labels[PLACEMENT]))}: "
            f"the scheduler knows only {WHOLE_DEVICE}"
        )
        advice = f"write {PLACEMENT}: {WHOLE_DEVICE}, or remove the label"
        path = (*pod.metadata_path, "labels", PLACEMENT)
        yield Finding(path, f"labels.{PLACEMENT}", message, help=advice)


RULE = Rule(
    name="placement-label",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="the placement label of a shared GPU has an unknown value",
    check=check,
    needs=(KEY,),
)
