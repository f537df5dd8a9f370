"""A workload with GPUs names no Kueue queue, or one that its namespace does not have.

What it does
------------
Looks at workloads whose pods request GPUs in namespaces with LocalQueues of Kueue. Finds a label
`kueue.x-k8s.io/queue-name` with the name of no LocalQueue there, and kinds of batch workloads that
Kueue manages (Job, JobSet, PyTorchJob, RayJob, TrainJob and the like) without the label. The linter
knows the LocalQueues in the manifests of the same run, `gpuward audit` those of the cluster, and so
does the webhook with `clusterInventory.queues`.

Of a CronJob the label of `jobTemplate` counts, and the label of a pod template where its workload
has none, as for `queue-without-resource`.

Not reported: a workload without the label where the namespace has a LocalQueue `default`, which
Kueue then uses; what another object makes, which Kueue queues with its owner; serving workloads
without a queue, such as Deployments; pods that have GPUs by claims alone; placeholders of
templates.

Why it matters
--------------
By default Kueue leaves a job without a queue alone: it starts at once, on GPUs that the queues take
for free, and no quota counts it. With `manageJobsWithoutQueueName` it is suspended and never
starts. A job whose queue does not exist is suspended and never starts, whatever is free.

References
----------
- https://kueue.sigs.k8s.io/docs/tasks/run/jobs/
- https://kueue.sigs.k8s.io/docs/tasks/manage/enforce_job_management/setup_default_local_queue/
- kubernetes-sigs/kueue, `pkg/controller/jobframework/defaults.go`, `pkg/controller/jobs`
"""

from collections.abc import Collection

from rules.base.json_values import Path, display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import GPU_RESOURCE, KNOWN_QUEUES
from rules.gpu.devices import path_of_first_request, requested_resources
from rules.gpu.quotas import queue_name
from rules.inventory.inventory import LocalQueue
from rules.profile.platforms.accounting_marks import QUEUE_LABEL
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

# Kueue gives it to a workload without a queue.
_DEFAULT_QUEUE = "default"
# Group and kind of the batch workloads among those that Kueue manages (its pkg/controller/jobs).
_BATCH_KINDS = frozenset(
    {
        *(("batch", kind) for kind in ("Job", "CronJob")),
        ("jobset.x-k8s.io", "JobSet"),
        *(("kubeflow.org", f"{name}Job") for name in ("PyTorch", "TF", "MPI", "JAX", "XGBoost")),
        ("kubeflow.org", "PaddleJob"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("ray.io", "RayJob"),
        ("sparkoperator.k8s.io", "SparkApplication"),
        ("workload.codeflare.dev", "AppWrapper"),
    }
)
MAX_LISTED = 3


def check(pod: Pod, context: Context) -> Findings:
    """Yield the workload if Kueue cannot tell its queue."""
    queues = context.inventory.all_in(LocalQueue, pod.object.namespace)
    if not queues or pod.exists or pod.is_partial or pod.is_made_by_owner:
        return
    requested = requested_resources(pod)
    if not requested:
        return
    path = path_of_first_request(pod, requested[0])
    name = queue_name(pod)
    if name:
        if name not in queues and not has_placeholder(name):
            yield _finding_of_unknown(path, name, queues)
    elif (pod.object.group, pod.object.kind) in _BATCH_KINDS and _DEFAULT_QUEUE not in queues:
        yield Finding(
            path=path,
            key="queue",
            message=f"the {pod.object.kind} names no queue, and its namespace has {_list(queues)}: "
            "Kueue leaves it alone, and no quota counts its GPUs; or it never starts, if Kueue "
            "manages jobs without a queue",
            help=f"write the label {QUEUE_LABEL}: {min(queues)}",
        )


def _finding_of_unknown(path: Path, name: str, queues: Collection[str]) -> Finding:
    near = nearest_word(name, sorted(queues))
    return Finding(
        path=path,
        key="queue",
        message=f"the queue {display(name)} of the workload does not exist in its namespace, which "
        f"has {_list(queues)}: Kueue never admits the workload",
        help=f"write the label {QUEUE_LABEL}: {near or min(queues)}, or create the LocalQueue",
    )


def _list(queues: Collection[str]) -> str:
    names = sorted(queues)
    named = ", ".join(map(display, names[:MAX_LISTED]))
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"the {'queue' if len(names) == 1 else 'queues'} {named}{more}"


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE, KNOWN_QUEUES),
    needs_resources=True,
)
