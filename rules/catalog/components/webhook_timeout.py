"""A webhook of a GPU platform may hold up every request for longer than ten seconds.

What it does
------------
Finds `timeoutSeconds` above 10 in the webhook configurations of gpuward, HAMi, KAI, Volcano and
koordinator, which it knows by the names of their entries, and no others. Without the field an API
server waits ten seconds. It refuses to store more than 30 or less than 1.

Why it matters
--------------
A webhook whose network drops packets answers nothing at all. API servers then wait the whole
timeout for every pod, one entry after the other if the entries change pods, and controllers create
pods more slowly than nodes lose them. Kubernetes recommends a few seconds.

References
----------
- https://kubernetes.io/docs/concepts/cluster-administration/admission-webhooks-good-practices/
- koordinator-sh/charts, `values.yaml`: 30 by default
"""

from rules.base.json_values import display
from rules.base.traits import WEBHOOK_CONFIGURATION
from rules.gpu.components import (
    GPUWARD_WEBHOOKS,
    SHARING_WEBHOOKS,
    webhook_entries,
    webhook_entry_finding,
)
from rules.rule import Action, Context, Findings, KubernetesObject, define_rule

FIELD = "timeoutSeconds"
# What API servers assume without the field, and the most that they store.
DEFAULT_SECONDS, MAX_SECONDS = 10, 30


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each entry with a longer timeout than the default."""
    for index, entry in webhook_entries(subject, context, (*GPUWARD_WEBHOOKS, *SHARING_WEBHOOKS)):
        seconds = entry.get(FIELD)
        if type(seconds) is not int or seconds <= DEFAULT_SECONDS:
            continue
        effect = (
            f"API servers store at most {MAX_SECONDS}"
            if seconds > MAX_SECONDS
            else "while it does not answer, every request that it is called for waits that long"
        )
        fault, advice = (
            f"has {FIELD} {display(seconds)}: {effect}",
            f"write {DEFAULT_SECONDS} or less",
        )
        yield webhook_entry_finding(
            subject, index, FIELD, fault, advice, api_refuses=seconds > MAX_SECONDS
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(WEBHOOK_CONFIGURATION,))
