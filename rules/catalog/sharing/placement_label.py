"""The placement label of a shared GPU has an unknown value.

What it does
------------
Finds the pod label `ack.gpushare.placement` with another value than `require-whole-device`.

Why it matters
--------------
The scheduler of ACK knows one value of this label, which keeps other pods off the card. It does
not place a pod that shares a GPU and has any other value.

References
----------
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
"""

from rules.base.json_values import as_text, display
from rules.base.traits import GPU_METADATA_KEY
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

PLACEMENT_LABEL = "ack.gpushare.placement"
WHOLE_DEVICE = "require-whole-device"
ADVICE = f"write {PLACEMENT_LABEL}: {WHOLE_DEVICE}, or remove the label"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the label if its value is not the only valid one."""
    if PLACEMENT_LABEL in pod.labels and pod.labels[PLACEMENT_LABEL] != WHOLE_DEVICE:
        message = (
            f"the pod label {PLACEMENT_LABEL} is {display(as_text(pod.labels[PLACEMENT_LABEL]))}: "
            f"the scheduler knows only {WHOLE_DEVICE}"
        )
        path = (*pod.metadata_path, "labels", PLACEMENT_LABEL)
        yield Finding(path=path, key=f"labels.{PLACEMENT_LABEL}", message=message, help=ADVICE)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_METADATA_KEY,))
