"""A queue of Kueue has a quota of a GPU that is not a whole number.

What it does
------------
Finds amounts of GPU resources in ClusterQueues and Cohorts, `nominalQuota`, `borrowingLimit` and
`lendingLimit`, that are fractions.

Why it matters
--------------
Kueue counts every resource but CPU in whole numbers, and rounds up: a queue with `0.5` of a GPU
lets its workloads have one. Two queues that shall share a GPU by halves get two, and the second pod
waits for a GPU that is not there.

References
----------
- https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
- kubernetes-sigs/kueue, `pkg/resources/amount.go` (`AmountFromQuantity`)
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, parse
from rules.base.traits import CLUSTER_QUEUE
from rules.gpu.quotas import queue_amounts
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_NANO_OF_ONE = 10**9


def check(queue: KubernetesObject, _context: Context) -> Findings:
    """Yield the first fraction of each resource in each field."""
    reported: set[str] = set()
    for path, resource, value in queue_amounts(queue):
        amount, key = parse(value), f"{path[-1]}.{resource}"
        if key in reported or queue.profile.resource(resource) is None:
            continue
        if not isinstance(amount, Quantity) or amount.nano <= 0 or amount.is_integer:
            continue
        reported.add(key)
        yield Finding(
            path=path,
            key=f"fraction.{key}",
            message=f"the queue's {path[-1]} of {display(f'{resource}: {amount.text}')} is a "
            f"fraction: Kueue rounds it up to {-(-amount.nano // _NANO_OF_ONE)}",
            help="write a whole number",
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLUSTER_QUEUE,))
