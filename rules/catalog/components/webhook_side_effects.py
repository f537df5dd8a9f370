"""A webhook of a GPU platform does not promise to have no side effects.

What it does
------------
Finds `sideEffects` that are neither `None` nor `NoneOnDryRun` in the webhook configurations of
gpuward, HAMi, KAI, Volcano and koordinator, which it knows by the names of their entries, and no
others. A missing field counts, too.

Why it matters
--------------
API servers refuse to store such an entry today. Entries that were stored before Kubernetes 1.22, as
`v1beta1`, stay in force with `Unknown`. For them, API servers refuse every dry run of a request
that the webhook would be called for, so `kubectl diff` and `--dry-run=server` fail for all pods.

References
----------
- https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects
- Kubernetes, `pkg/apis/admissionregistration/validation/validation.go`
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

FIELD = "sideEffects"
ACCEPTED_VALUES = ("None", "NoneOnDryRun")


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each entry that may have side effects."""
    for index, entry in webhook_entries(subject, context, (*GPUWARD_WEBHOOKS, *SHARING_WEBHOOKS)):
        value = entry.get(FIELD)
        if value in ACCEPTED_VALUES:
            continue
        stated = f"{FIELD} {display(value)}" if value else f"no {FIELD}"
        effect = "API servers refuse such an entry, and every dry run if an old release stored it"
        advice = f"write {ACCEPTED_VALUES[0]} if the webhook only looks at requests"
        fault = f"has {stated}: {effect}"
        yield webhook_entry_finding(subject, index, FIELD, fault, advice, api_refuses=True)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(WEBHOOK_CONFIGURATION,))
