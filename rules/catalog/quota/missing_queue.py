"""A workload with GPUs names no queue of Kueue, or a queue that does not exist.

What it does
------------
Looks at workloads whose pods ask for GPUs, by resources or by claims, in namespaces with
LocalQueues of Kueue. Finds a label `kueue.x-k8s.io/queue-name` with the name of no LocalQueue
there, and workloads without the label:

- kinds of batch workloads that Kueue manages: Job, JobSet, PyTorchJob, RayJob, TrainJob and the
  like;
- as a note, the other kinds that it manages: Pod, Deployment, StatefulSet, LeaderWorkerSet,
  RayCluster, RayService; and ReplicaSet and ReplicationController, whose pods it queues by the
  label of their template.

In the namespaces of the options there are no notes: every such workload must name a queue, whether
or not a LocalQueue is known. There a claim counts unless it is known that none of its classes is of
GPUs; the label must be on the workload itself, where Kueue has an integration for it, except for a
Deployment, whose label Kueue only copies into the template; and the annotation
`kueue.x-k8s.io/pod-suspending-parent`, which anybody can write, excuses nothing.

The linter knows the LocalQueues in the manifests of the same run, `gpuward audit` those of the
cluster, and so does the webhook with `clusterInventory.queues`. Of a CronJob the label of
`jobTemplate` counts, and the label of a pod template where its workload has none, as for
`queue-without-resource`.

Finds also pods of Volcano's scheduler, and Jobs of Volcano, that name a Queue which is not known,
where others are. Without a similar name this is a note in files, whose run may not have all queues.

Not reported: a workload without the label where the namespace has a LocalQueue `default`, which
Kueue 0.12 and newer then uses, and 0.10 and 0.11 with the feature gate `LocalQueueDefaulting`; what
another object makes, which Kueue queues with its owner; what Kueue holds back or has admitted, by
its scheduling gate and its marks; DaemonSets; placeholders of templates.

At admission an owner counts only if it is named as the controller and the user is a program of
Kubernetes or of another namespace: any other user can write an owner. Pods that a program makes
under an account of the same namespace, such as a driver of Spark, need the label themselves.

Why it matters
--------------
By default Kueue leaves a job without a queue alone: it starts at once, on GPUs that the queues take
for free, and no quota counts it. With `manageJobsWithoutQueueName` it is suspended and never
starts. A job whose queue does not exist is suspended and never starts, whatever is free.

A batch job beside a queue has most often forgotten it, so it is a warning. A service or a notebook
often runs beside the queues on purpose, so it is a note until the policy says that everything in a
namespace waits in a queue. To refuse what does not, set `action: deny`; workloads are then refused
themselves with `workloads: deny`, and plain Pods in any case.

Volcano refuses a Job whose queue does not exist. It does not look at the queue of other pods: these
stay Pending for ever.

Fix safety
----------
The fix writes the label, where the namespace has a single LocalQueue, and is not made of a note. It
is made only where the policy allows it: the workload may then have to wait, and which quota pays is
a decision. The webhook makes it in new Pods, and in new workloads with `workloads: fix`.

Options
-------
`namespaces`: the names of the namespaces in which every workload with GPUs must name a queue, in
which `*` stands for any characters.

`labels`: labels of such namespaces, as `key`, or as `key=value` with `*` in the value. The linter
knows the Namespaces in the manifests of the same run, `gpuward audit` those of the cluster, and so
does the webhook with `clusterInventory.namespaces`. Where the labels are not known, they do not
count.

References
----------
- https://kueue.sigs.k8s.io/docs/tasks/run/jobs/
- https://kueue.sigs.k8s.io/docs/tasks/manage/enforce_job_management/setup_default_local_queue/
- https://github.com/kubernetes-sigs/kueue/issues/2119
- https://github.com/kubernetes-sigs/kueue/issues/3637
- kubernetes-sigs/kueue, `pkg/controller/jobframework/defaults.go`, `pkg/controller/jobs`,
  `pkg/features/kube_features.go`
- volcano-sh/volcano, `pkg/webhooks/admission/jobs/validate/admit_job.go`,
  `pkg/controllers/podgroup/pg_controller_handler.go`
"""

from collections.abc import Collection, Iterator

from rules.base.json_values import Path, as_text, display, display_names, put
from rules.base.text_matching import has_placeholder, nearest_name
from rules.base.traits import CLAIM_IN_CONTAINER, GPU_RESOURCE, RESOURCE_CLAIMS_OF_POD
from rules.gpu.claims import (
    CLAIMS_FIELD,
    declared_claims,
    device_classes,
    is_gpu_class,
    may_be_for_gpus,
    used_claims,
)
from rules.gpu.components import is_made_by_owner
from rules.gpu.devices import path_of_first_request, requested_resources
from rules.gpu.quotas import UNQUEUED_KINDS, queue_name, volcano_queue_name, waits_for_admission
from rules.inventory.inventory import LocalQueue, Queue
from rules.profile.namespaces import is_chosen
from rules.profile.platforms.accounting_marks import (
    QUEUE_LABEL,
    SUSPENDING_PARENT_ANNOTATION,
    is_mark,
)
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

# Kueue gives it to a workload without a queue.
_DEFAULT_QUEUE = "default"
# Volcano makes them itself.
_QUEUES_OF_VOLCANO = frozenset({"default", "root"})
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
# The others, and those whose pods it manages.
_OTHER_KINDS = frozenset(
    {
        *(("", kind) for kind in ("Pod", "ReplicationController")),
        *(("apps", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet")),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        *(("ray.io", kind) for kind in ("RayCluster", "RayService")),
    }
)


def check(pod: Pod, context: Context) -> Findings:
    """Yield the workload if it names no queue, or one that does not exist."""
    if pod.is_partial or is_made_by_owner(pod, context):
        return
    is_pod = pod.object.kind == "Pod"
    if is_pod and context.operation == "UPDATE":
        return  # `left-queue` is about the label of a pod that exists
    queues = context.inventory.all_in(LocalQueue, pod.object.namespace)
    known = context.inventory.all_in(Queue, None)
    must_name_one = bool(is_chosen(pod.object.namespace, context))
    if not (queues or known or must_name_one):
        return
    path = next(_paths_of_requests(pod, context, with_unknown=must_name_one), None)
    if path is None:
        return
    name = queue_name(pod)
    if not name or (must_name_one and _is_in_template_alone(pod)):
        yield from _findings_without_queue(pod, path, queues, must_name_one=must_name_one)
    elif queues and name not in queues and not has_placeholder(name) and not _has_run(pod):
        yield _finding_of_unknown(path, name, queues)
    if not _has_run(pod):
        yield from _findings_of_volcano(pod, path, context)


def _paths_of_requests(pod: Pod, context: Context, *, with_unknown: bool) -> Iterator[Path]:
    """Yield where the pod asks for GPUs that Kueue counts.

    `with_unknown` adds the claims about which that is not known, and those that no container uses.
    """
    for resource in requested_resources(pod):
        yield path_of_first_request(pod, resource)
    used = used_claims(pod)
    for index, entry in declared_claims(pod):
        if with_unknown and may_be_for_gpus(entry, pod, context.inventory):
            yield (*pod.path, CLAIMS_FIELD, index)
        classes = device_classes(entry, context.inventory, pod.object.namespace)
        is_for_gpus = any(is_gpu_class(each, pod.profile, context.inventory) for each in classes)
        if is_for_gpus and as_text(entry.get("name")) in used:
            yield (*pod.path, CLAIMS_FIELD, index)


def _findings_without_queue(
    pod: Pod, path: Path, queues: Collection[str], *, must_name_one: bool
) -> Findings:
    kind = (pod.object.group, pod.object.kind)
    is_batch = kind in _BATCH_KINDS
    if not (queues or must_name_one) or not (is_batch or kind in _OTHER_KINDS):
        return
    if _DEFAULT_QUEUE in queues or _is_managed(pod, must_name_one=must_name_one):
        return
    if must_name_one:
        why = f"every workload with GPUs in the namespace {display(pod.object.namespace)} must"
    else:
        why = f"its namespace has {display_names('queue', sorted(queues))}"
    is_meant = is_batch or must_name_one
    only = min(queues) if len(queues) == 1 else ""
    label = f"{QUEUE_LABEL}: {only}" if only else f"{QUEUE_LABEL} with the name of a LocalQueue"
    if _is_in_template_alone(pod):
        where = f" on the {pod.object.kind} itself, not in its pod template alone"
    else:
        where = " in the pod template" if pod.object.kind in UNQUEUED_KINDS else ""
    yield Finding(
        path=path,
        key="queue",
        message=f"the {pod.object.kind} names no queue, and {why}: "
        "Kueue leaves it alone, and no quota counts its GPUs; or it never starts, if Kueue "
        "manages jobs without a queue",
        help=f"write the label {label}{where}",
        fix=_fix(pod, only) if only and is_meant else None,
        action=Action.DENY if is_meant else Action.AUDIT,
    )


def _fix(pod: Pod, queue: str) -> Fix | None:
    """Return the fix that writes the label where Kueue reads it."""
    holder = pod.owner_metadata
    if pod.object.kind in UNQUEUED_KINDS:
        holder = pod.metadata_view
    if holder is None or not isinstance(holder.raw.get("labels"), dict | None):
        return None
    return Fix(
        f"set the label {QUEUE_LABEL}: {queue}",
        (put((*holder.path, "labels", QUEUE_LABEL), queue),),
    )


def _is_in_template_alone(pod: Pod) -> bool:
    """Return whether the label is in the pod template, where Kueue may not read it.

    It looks at workloads for which it has an integration themselves, and not at their pods. Of a
    Deployment it does nothing else than to copy the label into the template.
    """
    by_pods = pod.object.kind in UNQUEUED_KINDS | {"Pod", "Deployment"}
    return not by_pods and not pod.owner_labels.get(QUEUE_LABEL) and bool(queue_name(pod))


def _is_managed(pod: Pod, *, must_name_one: bool) -> bool:
    """Return whether Kueue holds the pod back, will do so, or has admitted it.

    Kueue's webhook gives a gate to pods with the annotation, where it manages pods at all. A tenant
    can write it, so it does not count where every workload must name a queue. Kueue's other marks
    show something only in a pod that exists: Kueue does not look at them in a new one.
    """
    if waits_for_admission(pod):
        return True
    if SUSPENDING_PARENT_ANNOTATION in pod.annotations and not must_name_one:
        return True
    return pod.exists and any(map(is_mark, (*pod.labels, *pod.annotations)))


def _has_run(pod: Pod) -> bool:
    """Return whether the pod is one of a cluster, about whose queue has been decided."""
    return pod.exists and pod.object.kind == "Pod" and not waits_for_admission(pod)


def _finding_of_unknown(path: Path, name: str, queues: Collection[str]) -> Finding:
    near = nearest_name(name, sorted(queues))
    return Finding(
        path=path,
        key="queue",
        message=f"the queue {display(name)} of the workload does not exist in its namespace, which "
        f"has {display_names('queue', sorted(queues))}: Kueue never admits the workload",
        help=f"write the label {QUEUE_LABEL}: {near or min(queues)}, or create the LocalQueue",
    )


def _findings_of_volcano(pod: Pod, path: Path, context: Context) -> Findings:
    """Yield the workload if no known queue of Volcano has the name that it names."""
    name, queues = volcano_queue_name(pod), context.inventory.all_in(Queue, None)
    if not (name and queues) or name in queues or name in _QUEUES_OF_VOLCANO:
        return
    if has_placeholder(name):
        return
    names = context.inventory.names_in_order(Queue)
    near = nearest_name(name, names)
    knows_all = context.operation is not None
    yield Finding(
        path=path,
        key="queue.volcano",
        message=f"the queue {display(name)} of the workload does not exist, and Volcano has "
        f"{display_names('queue', names)}: Volcano never starts the workload",
        help=f"name the queue {near}" if near else f"create the Queue {name}, or name another one",
        action=Action.DENY if near or knows_all else Action.AUDIT,
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE | CLAIM_IN_CONTAINER | RESOURCE_CLAIMS_OF_POD,),
    options={"namespaces": (), "labels": ()},
    needs_resources=True,
)
