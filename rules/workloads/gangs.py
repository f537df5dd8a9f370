"""The GPUs without which a workload of several pods does not start.

Source: the groups that KAI makes of workloads, kai-scheduler/KAI-Scheduler
`pkg/podgrouper/podgrouper/plugins`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rules.base.json_values import as_object, as_objects
from rules.base.quantity import Quantity, parse
from rules.objects.pod import Pod

_MAX_PODS = 2**31 - 1  # the API server refuses more
# Of Kubeflow's kinds: the field with the templates.
_REPLICA_FIELDS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
# Of Ray's kinds: the field with the cluster; empty for the spec itself.
_CLUSTER_FIELDS = {
    "RayCluster": "",
    "RayJob": "rayClusterSpec",
    "RayService": "rayClusterConfig",
}


def fewest_gpus(parts: Iterable[tuple[int, int]], pods: int) -> int:
    """The GPUs of the `pods` pods that ask for least; `parts` are GPUs of a pod, and such pods."""
    left, total = pods, 0
    for gpus, count in sorted(parts):
        started = min(left, count)
        left, total = left - started, total + started * gpus
    return total


def gpus_of_template(raw: Mapping[str, Any], resource: str) -> int:
    """The GPUs that the containers of a pod template ask for, without those of init containers."""
    spec = as_object(raw.get("spec"))
    return sum(_amounts(spec, resource))


def gpus_of_kai_gang(pod: Pod, resource: str) -> int:
    """The fewest GPUs with which KAI starts the workload that `pod` is a template of.

    0 if the workload is of no kind whose pods start together, or is not known.
    """
    spec, kind = pod.owner_spec, pod.object.kind
    if pod.object.group == "kubeflow.org" and kind in _REPLICA_FIELDS:
        templates = list(_templates_of_kubeflow(spec, _REPLICA_FIELDS[kind]))
        least = _least_of_kubeflow(spec, kind, [count for _, count in templates])
    elif pod.object.group == "leaderworkerset.x-k8s.io" and kind == "LeaderWorkerSet":
        templates = list(_templates_of_group(as_object(spec.get("leaderWorkerTemplate"))))
        # A leader that starts alone needs no GPUs of the others.
        is_led = spec.get("startupPolicy", "LeaderCreated") != "LeaderCreated"
        least = 0 if is_led else sum(count for _, count in templates)
    elif pod.object.group == "ray.io" and kind in _CLUSTER_FIELDS:
        field = _CLUSTER_FIELDS[kind]
        templates = list(_templates_of_ray(as_object(spec.get(field)) if field else spec))
        least = sum(count for _, count in templates)
    else:
        return 0
    parts = ((gpus_of_template(template, resource), count) for template, count in templates)
    return fewest_gpus(parts, least)


def _templates_of_kubeflow(
    spec: Mapping[str, Any], field: str
) -> Iterator[tuple[Mapping[str, Any], int]]:
    for role in as_object(spec.get(field)).values():
        yield as_object(as_object(role).get("template")), _count(as_object(role), "replicas", 1)


def _least_of_kubeflow(spec: Mapping[str, Any], kind: str, counts: Sequence[int]) -> int:
    """The pods that start together: all, unless the job says how many are enough.

    KAI makes no group of a job with a role of no pods, unless that says `minAvailable`.
    """
    policy = as_object(as_object(spec.get("runPolicy")).get("schedulingPolicy"))
    pods = sum(counts)
    if policy.get("minAvailable") is not None:
        return min(pods, _count(policy, "minAvailable", 0))
    if 0 in counts:
        return 0
    elastic = as_object(spec.get("elasticPolicy")) if kind == "PyTorchJob" else {}
    return min(pods, _count(elastic, "minReplicas", pods))


def _templates_of_group(spec: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The templates of a leader and its workers; without one of its own, it has the workers'."""
    leader, worker = as_object(spec.get("leaderTemplate")), as_object(spec.get("workerTemplate"))
    yield leader or worker, 1
    yield worker, max(0, _count(spec, "size", 1) - 1)


def _templates_of_ray(spec: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The templates of a cluster with the pods for which KAI waits.

    It does not read `suspend`, by which KubeRay stops a group, and waits for those pods too.
    """
    yield as_object(as_object(spec.get("headGroupSpec")).get("template")), 1
    grows_from_least = spec.get("enableInTreeAutoscaling") is True
    for _, group in as_objects(spec.get("workerGroupSpecs")):
        workers = _count(group, "minReplicas", 0)
        if not (workers or grows_from_least):
            workers = _count(group, "replicas", 0)
        is_ignored = group.get("suspended") is True
        hosts = _count(group, "numOfHosts", 1)
        yield as_object(group.get("template")), 0 if is_ignored else workers * hosts


def _count(raw: Mapping[str, Any], field: str, default: int) -> int:
    value = raw.get(field)
    return value if type(value) is int and 0 <= value <= _MAX_PODS else default


def _amounts(spec: Mapping[str, Any], resource: str) -> Iterator[int]:
    for _, container in as_objects(spec.get("containers")):
        resources = as_object(container.get("resources"))
        limits, requests = (as_object(resources.get(field)) for field in ("limits", "requests"))
        amount = parse(limits.get(resource, requests.get(resource, 0)))
        if isinstance(amount, Quantity):
            yield amount.value
