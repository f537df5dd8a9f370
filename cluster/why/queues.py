"""The reasons why Kueue will not admit a workload of which it has made no Workload yet."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from policies.loading import default_policy
from rules.base.json_values import as_object, as_text
from rules.engine.fixing import check
from rules.gpu.devices import effective_requests
from rules.gpu.quotas import ClusterQueueOfPod, cluster_queue_of, is_queued_by_template
from rules.inventory.inventory import Inventory
from rules.objects.pod import Pod
from rules.rule import Context
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_counts import pods_of_kueue_workload
from rules.workloads.referred_objects import add_objects, new_builder

_RULES = frozenset(
    {"flavor-mismatch", "queue-without-resource", "quota-exceeded", "untolerated-flavor"}
)
"""The rules about workloads that Kueue never admits."""
_PARTIAL = "kueue.x-k8s.io/job-min-parallelism"
_STOPPED = ("Hold", "HoldAndDrain")


class Queues(NamedTuple):
    """The queues and flavors of Kueue that are known.

    `local` are the LocalQueues of the namespace, and `cluster` the ClusterQueues, by name. `others`
    are flavors and topologies. `are_all` says that there are no more queues.
    """

    local: Mapping[str, Object]
    cluster: Mapping[str, Object]
    others: tuple[Object, ...]
    are_all: bool


def find_queue_hurdles(
    workload: Object, queue: str, namespace: str, queues: Queues
) -> Iterator[Hurdle]:
    """Yield the reasons why Kueue never admits the workload from `queue`, as far as it is known.

    Nothing does not mean that it does.
    """
    if queue not in queues.local:
        if queues.are_all:
            yield Hurdle(
                f"the queue {queue} of Kueue is not there: namespace {namespace} has no LocalQueue "
                "of this name",
                "create the LocalQueue, or correct its name in the label of the workload",
            )
        return
    local = as_object(queues.local[queue].get("spec"))
    target = as_text(local.get("clusterQueue"))
    if target not in queues.cluster:
        if queues.are_all:
            yield Hurdle(
                f"the LocalQueue {queue} is inactive: there is no ClusterQueue {target}",
                "create the ClusterQueue, or correct its name in the LocalQueue",
            )
        return
    held = queues.cluster[target].get("spec")
    if not isinstance(held, dict):
        return
    for kind, name, spec in (("LocalQueue", queue, local), ("ClusterQueue", target, held)):
        if (policy := as_text(spec.get("stopPolicy"))) in _STOPPED:
            yield Hurdle(
                f"the {kind} {name} is stopped: Kueue admits nothing from it",
                f"remove stopPolicy: {policy} from the {kind}",
            )
    yield from _by_rules(workload, namespace, queues)


def _by_rules(workload: Object, namespace: str, queues: Queues) -> Iterator[Hurdle]:
    policy = default_policy()
    builder = new_builder(policy.profile)
    for raw in (*queues.local.values(), *queues.cluster.values(), *queues.others):
        add_objects(builder, raw, namespace)
    inventory = builder.inventory()
    today = datetime.datetime.now(datetime.UTC).date()
    context = Context(today, namespace=namespace, inventory=inventory)
    for finding in check({**workload}, policy.rule_set(), context).findings:
        if finding.rule in _RULES:
            yield Hurdle(finding.message, finding.help)
    for subject in find_subjects({**workload}, policy.profile, namespace):
        if isinstance(subject, Pod):
            yield from _more_than_a_flavor_has(subject, inventory)


def _more_than_a_flavor_has(pod: Pod, inventory: Inventory) -> Iterator[Hurdle]:
    """Yield what the pods of a template ask for together, and no flavor has: they get one."""
    known: ClusterQueueOfPod | None = cluster_queue_of(pod, inventory)
    annotations = pod.owner_metadata.annotations if pod.owner_metadata else {}
    if known is None or not is_queued_by_template(pod) or _PARTIAL in annotations:
        return
    pods = pods_of_kueue_workload(pod)
    for resource, each in effective_requests(pod).items():
        most = known.queue.most.get(resource)
        if most is not None and each <= most < pods * each:  # of one pod a rule says it
            yield Hurdle(
                f"its {pods} pods ask for {pods * each} {resource} together, and no flavor of the "
                f"ClusterQueue {known.target} has more than {most}: Kueue never admits it",
                f"ask for less, or raise the quota of a flavor in the ClusterQueue {known.target}",
            )
