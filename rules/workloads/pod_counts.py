"""The number of pods that a controller makes of one template, by the objects around it.

Source: `PodSpec` templates of batch/v1 Job, kubernetes-sigs/jobset `api/jobset/v1alpha2`
(`ReplicatedJob`), kubernetes-sigs/lws `api/leaderworkerset/v1` (`LeaderWorkerTemplate`),
ray-project/kuberay `ray-operator/apis/ray/v1` (`WorkerGroupSpec`), kubeflow/training-operator
`pkg/apis/kubeflow.org/v1` (`ReplicaSpec`), volcano-sh/volcano `pkg/apis/batch/v1alpha1`
(`TaskSpec`).
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Path, as_object
from rules.objects.pod import Pod

_TEMPLATE = "template"
_LEADER, _WORKER = "leaderTemplate", "workerTemplate"


def pods_of_template(pod: Pod) -> int:
    """Return how many pods of the template run at the same time, as far as its owner says it.

    Every object around the template multiplies them: the `replicas` of a JobSet's part and the
    `parallelism` of its Job. A count that is not written is one, as controllers take it.
    """
    count = 1
    holder: Any = pod.owner_spec
    steps: Path = pod.path[len(pod.owner_spec_path) :]
    for step in (*steps, ""):
        if isinstance(holder, dict):
            count *= _count_of(holder, step)
            holder = holder.get(str(step))
        elif isinstance(holder, list) and isinstance(step, int) and step < len(holder):
            holder = holder[step]
        else:
            break
    return count


def _count_of(holder: Mapping[str, Any], step: str | int) -> int:
    """Return how many pods, or objects with pods, there are of what is at `step` of `holder`."""
    # An autoscaler that is given only a range begins at its lower end.
    count = _number(holder, "replicas", _number(holder, "minReplicas"))
    count *= _number(holder, "numOfHosts")  # of a worker of Ray
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
