"""The webhook of gpuward is not called for ephemeral containers.

What it does
------------
Finds entries of gpuward in webhook configurations that are called when pods are created, and not
for updates of `pods/ephemeralcontainers`. Entries of other programs are not checked: only they know
whether they guard anything that an ephemeral container could take.

Why it matters
--------------
`kubectl debug` adds a container to a pod that runs, by a request of its own. Such a container can
set `NVIDIA_VISIBLE_DEVICES` like any other, and without this entry no rule sees it.

References
----------
- https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/
"""

from rules.base.traits import WEBHOOK_CONFIGURATION
from rules.gpu.components import (
    GPUWARD_WEBHOOKS,
    POD_RESOURCE_NAMES,
    core_resources_of_entry,
    webhook_entries,
    webhook_entry_finding,
)
from rules.rule import Action, Context, Findings, KubernetesObject, define_rule

EPHEMERAL_RESOURCE = "pods/ephemeralcontainers"
COVERING_RESOURCES = frozenset({EPHEMERAL_RESOURCE, "pods/*", "*/*", "*/ephemeralcontainers"})


def check(subject: KubernetesObject, context: Context) -> Findings:
    """Yield each entry for pods that leaves ephemeral containers out."""
    for index, entry in webhook_entries(subject, context, GPUWARD_WEBHOOKS):
        misses = COVERING_RESOURCES.isdisjoint(core_resources_of_entry(entry, "UPDATE"))
        if misses and not POD_RESOURCE_NAMES.isdisjoint(core_resources_of_entry(entry, "CREATE")):
            effect = "kubectl debug adds containers that no rule sees"
            fault = f"is called for pods and not for {EPHEMERAL_RESOURCE}: {effect}"
            advice = (
                f"add a rule for {EPHEMERAL_RESOURCE} with the operation UPDATE, as the chart does"
            )
            yield webhook_entry_finding(subject, index, "rules", fault, advice)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(WEBHOOK_CONFIGURATION,))
