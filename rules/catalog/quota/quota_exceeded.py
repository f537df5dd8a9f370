"""A pod asks for more GPUs than a quota of its namespace, or its queue, allows.

What it does
------------
Compares what a pod counts for, by the requests of all its containers, with the keys
`requests.<GPU resource>` of the ResourceQuotas of its namespace, if they are among the manifests of
the same run. Quotas with scopes are not compared, because they do not count every pod.

Compares also what a Job of Volcano, or a pod of its scheduler with the annotation
`scheduling.volcano.sh/queue-name`, asks for with the `capability` of its Queue. Of a Job these are
the fewest GPUs with which it starts: those of `minAvailable` pods that ask for least. Queues above
it are not compared.

Compares also what a pod of a workload of Kueue asks for with the largest flavor of its ClusterQueue
and what that may borrow. A workload asks for as many at least. A queue of a cohort is compared only
where `borrowingLimit` bounds what it borrows. `gpuward audit` knows the quotas and queues of the
cluster.

Why it matters
--------------
No pod beyond the quota is ever created, also if no other pod runs. A Deployment or a Job is created
without an error, and waits for pods that never come: only its events say why. A Job above the
capability of its queue stays Pending for ever, and Kueue admits no workload above all flavors of
its own: alike pods get one flavor.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/quota/v1/evaluator/core/pods.go`
- https://volcano.sh/en/docs/queue_resource_management/
- volcano-sh/volcano, `docs/design/min-avaiable-member-resource.md`,
  `pkg/controllers/job/job_controller_actions.go` (`calcPGMinResources`)
- kubernetes-sigs/kueue, `pkg/scheduler/flavorassigner/flavorassigner.go` (`fitsResourceQuota`)
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import GPU_RESOURCE, KNOWN_QUEUES, KNOWN_QUOTAS
from rules.gpu.devices import effective_requests, path_of_first_request
from rules.gpu.quotas import (
    cluster_queue_of,
    is_volcano_job,
    smallest_quota,
    volcano_queue_name,
)
from rules.inventory.inventory import Inventory, Queue, ResourceQuota
from rules.objects.container import POD_SPEC
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule
from rules.workloads.gangs import fewest_gpus, gpus_of_template


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource of which a quota, or the queue, has not enough for the pod."""
    if pod.layout is POD_SPEC and not pod.exists:
        yield from _findings_of_quotas(pod, context.inventory)
        yield from _findings_of_queue(pod, context.inventory)
        yield from _findings_of_cluster_queue(pod, context.inventory)


def _findings_of_quotas(pod: Pod, inventory: Inventory) -> Findings:
    if not inventory.all_in(ResourceQuota, pod.object.namespace):
        return
    for resource, wanted in effective_requests(pod).items():
        limit = smallest_quota(inventory, pod.object.namespace, resource)
        if limit is None or wanted <= limit.value:
            continue
        yield Finding(
            path=path_of_first_request(pod, resource),
            key=f"quota.{resource}",
            message=(
                f"the pod asks for {wanted} {resource}, and the quota {display(limit.name)} of its "
                f"namespace allows {limit.value}: the API server refuses such a pod"
            ),
            help="ask for less, or raise the quota",
        )


def _findings_of_queue(pod: Pod, inventory: Inventory) -> Findings:
    """Yield each GPU resource of which the queue of Volcano never has enough."""
    is_job, name = is_volcano_job(pod), volcano_queue_name(pod)
    queue = inventory.find(Queue, name) if name else None
    for resource, of_pod in effective_requests(pod).items() if queue else ():
        limit = parse(queue.capability.get(resource, "")) if queue else None
        wanted = _gpus_of_job(pod.owner_spec, resource) if is_job else of_pod
        if not isinstance(limit, Quantity) or wanted <= limit.value:
            continue
        who = "the Job starts with no fewer than" if is_job else "the pod asks for"
        yield Finding(
            path=path_of_first_request(pod, resource),
            key=f"queue.{resource}",
            message=f"{who} {wanted} {resource}, and the capability of the queue {display(name)} "
            f"is {limit.value}: Volcano never starts it",
            help="ask for less, or raise the capability of the queue",
        )


def _findings_of_cluster_queue(pod: Pod, inventory: Inventory) -> Findings:
    """Yield each GPU resource of which no flavor of Kueue's queue has enough for one pod."""
    known = cluster_queue_of(pod, inventory)
    if known is None:
        return
    for resource, wanted in effective_requests(pod).items():
        most = known.queue.most.get(resource, wanted)
        if 0 < most < wanted:  # of a quota of zero says `queue-without-resource`
            yield Finding(
                path=path_of_first_request(pod, resource),
                key=f"clusterqueue.{resource}",
                message=f"the pod asks for {wanted} {resource}, and no flavor of the ClusterQueue "
                f"{display(known.target)} has more than {most}: Kueue never "
                "admits the workload",
                help="ask for less, or raise the quota of a flavor",
            )


def _gpus_of_job(job: Mapping[str, Any], resource: str) -> int:
    """The fewest devices with which a Job of Volcano starts: those of its pods with the fewest."""
    tasks = [task for _, task in as_objects(job.get("tasks"))]
    replicas = [_count(task, "replicas") for task in tasks]
    each = [gpus_of_template(as_object(task.get("template")), resource) for task in tasks]
    if not _count(job, "minAvailable"):
        least = [
            _count(task, "minAvailable") or count
            for task, count in zip(tasks, replicas, strict=True)
        ]
        return sum(count * gpus for count, gpus in zip(least, each, strict=True))
    return fewest_gpus(zip(each, replicas, strict=True), _count(job, "minAvailable"))


def _count(raw: Mapping[str, Any], field: str) -> int:
    value = raw.get(field)
    return value if type(value) is int and value > 0 else 0


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE, KNOWN_QUOTAS | KNOWN_QUEUES),
    needs_resources=True,
)
