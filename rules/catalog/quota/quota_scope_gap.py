"""Quotas on a GPU have scopes, and pods outside of them take any number of GPUs.

What it does
------------
Finds a GPU key of ResourceQuotas with `scopes` or a `scopeSelector`, where some kind of pod is
counted by no quota of the namespace: with `NotTerminating` alone, pods with
`activeDeadlineSeconds`; with `NotBestEffort` alone, pods that request no CPU and no memory. The
message names the fewest choices by which a pod is not counted. Reads all quotas of the namespace
together, so a quota for `Terminating` beside one for `NotTerminating` is no finding. Evaluates
namespaces whose quotas are all known: the linter knows those in the manifests of the same run, and
`gpuward audit` those of the cluster. At admission nothing is said.

If a pod is not counted only for its priority class, the finding is a note: a cluster can restrict
[who may choose one](https://kubernetes.io/docs/concepts/policy/resource-quotas/#limit-priority-class-consumption-by-default),
and a default class may apply to pods that name none.

Not compared: more than 20 priority classes, and more than 20 GPU keys of a quota.

Why it matters
--------------
The creator of a pod chooses what scopes ask about. `activeDeadlineSeconds: 2147483647`, which is
68 years, takes a pod out of a quota for `NotTerminating`, and with it its GPUs.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
- Kubernetes, `pkg/quota/v1/evaluator/core/pods.go`
"""

from collections.abc import Iterator
from itertools import islice

from rules.base.json_values import display
from rules.base.traits import KNOWN_QUOTAS, QUOTA
from rules.gpu.claims import is_gpu_resource
from rules.gpu.quotas import quotas_beside, uncounted_pods
from rules.objects.kubernetes_objects import REQUESTS_PREFIX
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule

MAX_KEYS = 20


def check(quota: Quota, context: Context) -> Findings:
    """Yield each GPU key by which some pods are not counted, at the first quota that has it."""
    quotas = quotas_beside(quota, context.inventory)
    for key in islice(_gpu_keys(quota) if quotas else (), MAX_KEYS):
        having = {name: known.scopes for name, known in quotas.items() if key in known.hard}
        gap = uncounted_pods(having.values()) if quota.object.name == min(having) else None
        if gap is None:
            continue
        weakest = Action.DENY if gap.choices.priority_class is None else Action.AUDIT
        yield Finding(
            path=(*quota.path, key),
            key=f"scopes.{key}",
            message=f"no quota of the namespace counts {display(key)} in pods {gap.words}: such "
            "pods may take every free GPU"
            if gap.words
            else f"no quota of the namespace counts {display(key)} in any pod, because of its "
            "scopes",
            help="remove the scopes, or add a quota for these pods",
            action=weakest,
        )


def _gpu_keys(quota: Quota) -> Iterator[str]:
    named = (key for key in quota.hard if key.startswith(REQUESTS_PREFIX))
    return (
        key for key in named if is_gpu_resource(key.removeprefix(REQUESTS_PREFIX), quota.profile)
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(QUOTA, KNOWN_QUOTAS))
