"""The number of pods that a controller makes of one template, by the objects around it.

Source: `PodSpec` templates of batch/v1 Job, kubernetes-sigs/jobset `api/jobset/v1alpha2`
(`ReplicatedJob`), kubernetes-sigs/lws `api/leaderworkerset/v1` (`LeaderWorkerTemplate`),
ray-project/kuberay `ray-operator/apis/ray/v1` (`WorkerGroupSpec`), kubeflow/training-operator
`pkg/apis/kubeflow.org/v1` (`ReplicaSpec`), volcano-sh/volcano `pkg/apis/batch/v1alpha1`
(`TaskSpec`), kubeflow/spark-operator `api/v1beta2` (`ExecutorSpec`). Those of Kueue's Workloads:
kubernetes-sigs/kueue `pkg/controller/jobs`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Path, as_object
from rules.objects.pod import Pod

_TEMPLATE = "template"
_LEADER, _WORKER = "leaderTemplate", "workerTemplate"
_GROUPS_OF_PODS = "leaderworkerset.x-k8s.io"
_SPARK = "sparkoperator.k8s.io"
_RAY, _RAY_GROUP_NAME = "ray.io", "groupName"


def pods_of_template(pod: Pod) -> int:
    """Return how many pods of the template run at the same time, as far as its owner says it.

    Every object around the template multiplies them: the `replicas` of a JobSet's part and the
    `parallelism` of its Job. A count that is not written is one, as controllers take it; workers of
    Ray are as many as the least that the autoscaler keeps.
    """
    count = 1
    for holder, step in _holders(pod):
        if pod.object.group == _RAY and _RAY_GROUP_NAME in holder:
            count *= _ray_replicas(holder)
        else:
            # An autoscaler that is given only a range begins at its lower end.
            count *= _number(holder, "replicas", _number(holder, "minReplicas"))
        if pod.object.group == _SPARK:
            count *= _number(holder, "instances")  # of executors
        count *= _pods_of_one(holder, step)
    return count


def pods_of_kueue_workload(pod: Pod) -> int:
    """Return how many pods of the template are in each Workload that Kueue makes of their owner.

    Of a LeaderWorkerSet there is one for each group. Kueue takes the `replicas` of a RayCluster as
    they are written, and none of one that has Ray's autoscaler.
    """
    count = 1
    for holder, step in _holders(pod):
        if pod.object.group == _RAY and holder.get("enableInTreeAutoscaling") is True:
            return 0
        if pod.object.group != _GROUPS_OF_PODS or holder is not pod.owner_spec:
            count *= _number(holder, "replicas")
        count *= _pods_of_one(holder, step)
    return count


def _holders(pod: Pod) -> Iterator[tuple[Mapping[str, Any], str | int]]:
    """Yield every object around the template, and the step that leads on from it."""
    if pod.layout.is_merged:
        yield pod.holder, _TEMPLATE
        return
    holder: Any = pod.owner_spec
    steps: Path = pod.path[len(pod.owner_spec_path) :]
    for step in (*steps, ""):
        if isinstance(holder, dict):
            yield holder, step
            holder = holder.get(str(step))
        elif isinstance(holder, list) and isinstance(step, int) and step < len(holder):
            holder = holder[step]
        else:
            break


def _ray_replicas(group: Mapping[str, Any]) -> int:
    """Return how many workers KubeRay makes for a group, each on one or more hosts."""
    if group.get("suspend") is True:
        return 0
    replicas, least = _number(group, "replicas", 0), _number(group, "minReplicas", 0)
    wanted = max(replicas, least)
    return min(wanted, _number(group, "maxReplicas", wanted))


def _pods_of_one(holder: Mapping[str, Any], step: str | int) -> int:
    """Return how many pods of what is at `step` each replica of `holder` has."""
    count = _number(holder, "numOfHosts")  # of a worker of Ray
    if step == _TEMPLATE:  # elsewhere `parallelism` limits how many pods run
        parallelism = _number(holder, "parallelism")
        count *= min(parallelism, _number(holder, "completions", parallelism))
    elif step in (_LEADER, _WORKER):
        is_led_by_another = step == _WORKER and bool(as_object(holder.get(_LEADER)))
        count *= 1 if step == _LEADER else max(0, _number(holder, "size") - is_led_by_another)
    return count


def _number(holder: Mapping[str, Any], field: str, default: int = 1) -> int:
    value = holder.get(field)
    return value if type(value) is int and value >= 0 else default
