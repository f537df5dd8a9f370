"""The KAI queue of a GPU pod does not exist, only divides its GPUs among others, or is too small.

What it does
------------
Compares the queue of a pod with GPUs for the KAI scheduler with the Queues of KAI
(`scheduling.run.ai/v2`) that are known. Finds:

- a queue that does not exist. The linter does not know whether it has all queues, so without a
  similar name this is a note there;
- a queue whose parent, or a queue above that, does not exist: KAI then ignores it;
- a queue that other queues name as their `parentQueue`;
- `limit` of `resources.gpu`, of the queue or of one above it, that is less than what the pod asks
  for by `nvidia.com/gpu` or `gpu-fraction`. No limit means `-1`: one that is not written is 0. What
  starts together counts together: the pods of Kubeflow's jobs, of a group of a LeaderWorkerSet, and
  of a RayCluster.

The queue is the one of the label `kai.scheduler/queue` of the workload, or else of the pod. Without
it the queue is the one that the label `project` stands for, or else `default-queue`: KAI no longer
reads the former label `runai/queue`, as `kai-queue` says.

The linter knows the Queues in the manifests of the same run, `gpuward audit` those of the cluster,
and so does the webhook with `clusterInventory.queues`. Where none is known, nothing is reported.

Not reported: a pod that has a node, one that another object makes, which names the queue, and a
queue with more than 100 above it. Of more than 500 queues none is proposed as a similar name. KAI
can be installed without its hierarchy of queues (`--full-hierarchy-fairness=false`), or with
another key of the label (`queueLabelKey`). Suppress the rule there.

Why it matters
--------------
KAI passes over the pod at every turn: it stays Pending for ever, whatever is free. Of a missing
queue, and of one that has others below it, no event says so.

There is no fix: which queue pays for a GPU is a decision.

References
----------
- https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs/queues
- kai-scheduler/KAI-Scheduler, `pkg/scheduler/actions/utils/input_jobs.go`,
  `pkg/scheduler/cache/cluster_info/queue.go`, `pkg/scheduler/api/queue_info/queue_info.go`,
  `pkg/scheduler/plugins/proportion/capacity_policy/max_allowed_check.go`,
  `pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go`
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from rules.base.json_values import Path, as_text, display, display_names
from rules.base.quantity import Quantity, parse
from rules.base.text_matching import has_placeholder, nearest_name
from rules.base.traits import (
    CUSTOM_SCHEDULER,
    GPU,
    KAI_QUEUE,
    KAI_QUEUE_LABEL,
    KNOWN_QUEUES,
    NVIDIA_CARD,
)
from rules.gpu.components import is_made_by_owner
from rules.gpu.devices import effective_requests, pod_requests_gpu
from rules.inventory.inventory import Inventory, KaiQueue
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule
from rules.workloads.gangs import gpus_of_kai_gang

_SCHEDULER = "kai-scheduler"
_RAY_GROUP = "ray.io"
_PROJECT_LABEL, _NODE_POOL_LABEL = "project", "kai.scheduler/node-pool"
_DEFAULT_QUEUE = "default-queue"
_MAX_DEPTH = 100  # queues of a line that are read for every pod
_NANO_OF_ONE = 10**9
_MOST_SHOWN = 10**9


class _NamedQueue(NamedTuple):
    """The queue of a pod, where it is named, and words for it."""

    name: str
    path: Path
    words: str


def check(pod: Pod, context: Context) -> Findings:
    """Yield the pod if KAI never schedules it because of its queue."""
    queues = context.inventory.all_in(KaiQueue, None)
    is_pod = pod.object.kind == "Pod"
    if not queues or pod.is_partial or not pod_requests_gpu(pod) or is_made_by_owner(pod, context):
        return
    if is_pod and (context.operation == "UPDATE" or (pod.exists and pod.spec.get("nodeName"))):
        return
    queue = _queue_of(pod)
    if queue is None or not queue.name or has_placeholder(queue.name):
        return
    line = list(islice(_line_of(queue.name, queues), _MAX_DEPTH + 1))
    if len(line) > _MAX_DEPTH:
        return
    missing = line[-1] if line[-1] not in queues else None
    if missing is not None:
        knows_all = context.operation is not None or pod.exists
        names = context.inventory.names_in_order(KaiQueue)
        yield _finding_of_missing(queue, missing, names, knows_all=knows_all)
        return
    parents = context.inventory.compute_once(_parents, None)
    if queue.name in parents:
        yield _finding_of_parent(queue, parents[queue.name])
        return
    yield from _findings_of_limit(pod, queue, {name: queues[name] for name in line})


def _queue_of(pod: Pod) -> _NamedQueue | None:
    """Return the queue of the pod; None if the pod is not for KAI, as far as it says."""
    is_placed_by_kuberay = pod.object.group == _RAY_GROUP and not pod.spec.get("schedulerName")
    if pod.scheduler != _SCHEDULER and not is_placed_by_kuberay:
        return None
    holders = [*([pod.owner_metadata] if pod.owner_metadata else []), pod.metadata_view]
    for key in (KAI_QUEUE_LABEL, _PROJECT_LABEL):
        for holder in holders:  # what makes the pod comes first
            if key in holder.labels:
                name = as_text(holder.labels[key])
                pool = as_text(pod.labels.get(_NODE_POOL_LABEL)) if key == _PROJECT_LABEL else ""
                whole = f"{name}-{pool}" if pool else name
                words = f"the queue {display(whole)} of the pod"
                return _NamedQueue(whole, (*holder.path, "labels", key), words)
        if is_placed_by_kuberay:
            return None  # the label alone shows that it is for KAI
    words = f"the queue {display(_DEFAULT_QUEUE)}, which the pod gets without a label,"
    return _NamedQueue(_DEFAULT_QUEUE, (*pod.path, "schedulerName"), words)


def _line_of(name: str, queues: Mapping[str, KaiQueue]) -> Iterator[str]:
    """Yield the queue and those above it, up to one without a parent, or that is not known."""
    seen: set[str] = set()
    while name and name not in seen:
        yield name
        seen.add(name)
        name = queues[name].parent if name in queues else ""


def _parents(inventory: Inventory, _argument: None) -> Mapping[str, Sequence[str]]:
    """Return the queues below each queue that has some."""
    found: dict[str, list[str]] = {}
    queues = inventory.all_in(KaiQueue, None)
    for name in inventory.names_in_order(KaiQueue):
        if parent := queues[name].parent:
            found.setdefault(parent, []).append(name)
    return found


def _finding_of_missing(
    queue: _NamedQueue, missing: str, queues: Sequence[str], *, knows_all: bool
) -> Finding:
    """Return the finding of a queue that is not among `queues`, which are in order."""
    near = nearest_name(missing, queues)
    if missing != queue.name:
        fault = f"is below {display(missing)}, which does not exist, so KAI ignores it"
        advice = f"create the Queue {missing}, or correct parentQueue"
    else:
        fault = f"does not exist, and KAI has {display_names('queue', queues)}"
        advice = f"name the queue {near}" if near else f"create the Queue {missing}"
    return Finding(
        path=queue.path,
        key="queue",
        message=f"{queue.words} {fault}: KAI schedules no pods of it",
        help=advice,
        action=Action.DENY if near or knows_all else Action.AUDIT,
    )


def _finding_of_parent(queue: _NamedQueue, below: Sequence[str]) -> Finding:
    return Finding(
        path=queue.path,
        key="queue.parent",
        message=f"{queue.words} is the parent of {display_names('queue', below)}: KAI "
        "schedules only pods of queues without others below them",
        help=f"write the label {KAI_QUEUE_LABEL}: {below[0]}, or the one of another queue",
    )


def _findings_of_limit(pod: Pod, queue: _NamedQueue, line: Mapping[str, KaiQueue]) -> Findings:
    """Yield the queue, or the first above it, whose limit is less than what must start at once."""
    of_pod = effective_requests(pod).get(NVIDIA_CARD, 0)
    together = max(of_pod, gpus_of_kai_gang(pod, NVIDIA_CARD))
    wanted = max(together * _NANO_OF_ONE, _fraction(pod))
    for name, known in line.items():
        if known.gpu_limit is None or wanted <= known.gpu_limit:
            continue
        who = "the pods that start together ask" if together > of_pod else "the pod asks"
        whose = queue.words if name == queue.name else f"the queue {display(name)} above its own"
        yield Finding(
            path=queue.path,
            key="queue.limit",
            message=f"{who} for {_gpus(wanted)}, and the limit of {whose} is "
            f"{_gpus(known.gpu_limit)}: KAI never starts it",
            help="ask for less, or raise limit of resources.gpu, which is 0 if it is not written "
            "and -1 for no limit",
        )
        return


def _fraction(pod: Pod) -> int:
    """Return the part of a card for which the pod asks by an annotation, in units of 1e-9."""
    for fraction in pod.profile.fractions:
        amount = parse(pod.annotations.get(fraction.portion, ""))
        cards = parse(pod.annotations.get(fraction.cards, "1"))
        if isinstance(amount, Quantity) and isinstance(cards, Quantity):
            return amount.nano * cards.value
    return 0


def _gpus(nano: int) -> str:
    whole, rest = divmod(nano, _NANO_OF_ONE)
    number = f"{whole}.{rest:09}".rstrip("0") if rest else str(whole)
    if whole > _MOST_SHOWN:
        number = f"more than {_MOST_SHOWN}"
    return f"{number} GPU" if number == "1" else f"{number} GPUs"


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU, KNOWN_QUEUES, CUSTOM_SCHEDULER | KAI_QUEUE),
)
