"""The reasons why Kueue will not admit a workload of which it has made no Workload yet."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from policies.loading import default_policy
from rules.base.json_values import Path, as_object, as_text
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


@dataclass(frozen=True)
class Queues:
    """The queues and flavors of Kueue that are known.

    `local` are the LocalQueues of `namespace`, and `cluster` the ClusterQueues, by name. `others`
    are flavors, topologies and training runtimes. `are_all` says that there are no more queues.
    """

    namespace: str
    local: Mapping[str, Object]
    cluster: Mapping[str, Object]
    others: tuple[Object, ...]
    are_all: bool

    @cached_property
    def inventory(self) -> Inventory:
        """The inventory of them all."""
        builder = new_builder(default_policy().profile)
        for raw in (*self.local.values(), *self.cluster.values(), *self.others):
            add_objects(builder, raw, self.namespace)
        return builder.inventory()


class QueueHurdles(NamedTuple):
    """The reasons why Kueue never admits a workload.

    `of_queue` are about its queue, and `of_templates` about pods, by the stable path of their spec.
    """

    of_queue: tuple[Hurdle, ...]
    of_templates: Mapping[str, tuple[Hurdle, ...]]

    def for_pods_of(self, template: str) -> tuple[Hurdle, ...]:
        """Return the reasons for the pods of a template: those of others are one for them."""
        own = self.of_templates.get(template, ())
        if self.of_templates and not own:
            other = next(iter(self.of_templates.values()))[0]
            words = "Kueue admits all pods of the workload or none, and never these"
            own = (Hurdle(f"{words}: {other.what}", other.remedy),)
        return (*self.of_queue, *own)


def find_queue_hurdles(workload: Object, queue: str, queues: Queues) -> QueueHurdles:
    """Return the reasons why Kueue never admits the workload from `queue`, as far as it is known.

    None at all does not mean that it does.
    """
    of_queue = tuple(_of_queue(queue, queues))
    target = as_object(as_object(queues.local.get(queue)).get("spec")).get("clusterQueue")
    held = as_object(queues.cluster.get(as_text(target))).get("spec")
    of_templates = _of_templates(workload, queues) if isinstance(held, dict) else {}
    return QueueHurdles(of_queue, of_templates)


def _of_queue(queue: str, queues: Queues) -> Iterator[Hurdle]:
    if queue not in queues.local:
        if queues.are_all:
            yield Hurdle(
                f"the queue {queue} of Kueue is not there: namespace {queues.namespace} has no "
                "LocalQueue of this name",
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
    held = as_object(queues.cluster[target].get("spec"))
    for kind, name, spec in (("LocalQueue", queue, local), ("ClusterQueue", target, held)):
        if (policy := as_text(spec.get("stopPolicy"))) in _STOPPED:
            yield Hurdle(
                f"the {kind} {name} is stopped: Kueue admits nothing from it",
                f"remove stopPolicy: {policy} from the {kind}",
            )


def _of_templates(workload: Object, queues: Queues) -> Mapping[str, tuple[Hurdle, ...]]:
    policy = default_policy()
    today = datetime.datetime.now(datetime.UTC).date()
    context = Context(today, namespace=queues.namespace, inventory=queues.inventory)
    found = check({**workload}, policy.rule_set(), context).findings
    subjects = find_subjects(
        {**workload}, policy.profile, queues.namespace, inventory=queues.inventory
    )
    pods = [subject for subject in subjects if isinstance(subject, Pod)]
    # The others of a TrainJob are parts of these. What is found in these is at their reference.
    pods = [pod for pod in pods if pod.layout.is_merged] or pods
    references = {pod.stable_path: pod.path for pod in pods if pod.layout.is_merged}
    by_path: dict[Path, list[Hurdle]] = {pod.path: [] for pod in pods}
    for finding in found:
        if finding.rule in _RULES:
            place = references.get(finding.stable_path, finding.path)
            for length in range(len(place), 0, -1):
                if (path := place[:length]) in by_path:
                    by_path[path].append(Hurdle(finding.message, finding.help))
                    break
    hurdles: dict[str, tuple[Hurdle, ...]] = {}
    for pod in pods:
        own = [*by_path[pod.path], *_more_than_a_flavor_has(pod, queues.inventory)]
        if len(pods) > 1:
            name = pod.stable_path.removesuffix(".spec")
            own = [Hurdle(f"in {name}, {hurdle.what}", hurdle.remedy) for hurdle in own]
        if own:
            hurdles[pod.stable_path] = (*hurdles.get(pod.stable_path, ()), *own)
    return hurdles


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
