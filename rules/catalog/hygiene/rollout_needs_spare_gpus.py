"""A Deployment of GPU pods can be updated only while GPUs are free.

What it does
------------
Finds Deployments whose pods request GPUs and whose rollout starts new pods before it ends old ones:
the strategy `RollingUpdate`, which is the default, with a `maxSurge` above zero. The default is a
quarter of the replicas, and at least one.

Why it matters
--------------
In a cluster or a quota whose GPUs are all in use the new pod stays Pending, the old ones keep
running, and the rollout does not proceed. `maxSurge: 0` ends an old pod first. Then a rollout needs
no spare GPU, and the service has one replica less meanwhile.

References
----------
- https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment
"""

import math
from typing import Any

from rules.base.json_values import as_object
from rules.base.traits import GPU_WORKLOAD
from rules.gpu.devices import pod_requests_gpu
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_DEFAULT_SURGE = "25%"
_ROLLING_UPDATE = "RollingUpdate"
# What Kubernetes accepts as a number of pods.
_MAX_INT32 = 2**31 - 1
# Digits of the largest percentage that is read.
_MAX_DIGITS = 9


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the Deployment if its rollout starts more pods than it has replicas."""
    pods = workload.pods
    if workload.object.kind != "Deployment" or any(pod.is_partial for pod in pods):
        return
    if not any(pod_requests_gpu(pod) for pod in pods):
        return
    spec = as_object(workload.raw.get("spec"))
    strategy = as_object(spec.get("strategy"))
    if strategy.get("type", _ROLLING_UPDATE) != _ROLLING_UPDATE:
        return
    surge = as_object(strategy.get("rollingUpdate")).get("maxSurge")
    replicas = spec.get("replicas")
    extra = _surge_pods(
        _DEFAULT_SURGE if surge is None else surge, 1 if replicas is None else replicas
    )
    if extra > 0:
        more = "one pod more, with GPUs of its own"
        if extra > 1:
            more = f"{extra} pods more, with GPUs of their own"
        yield Finding(
            path=(*workload.path, "spec", "strategy"),
            key="strategy.maxSurge",
            message=f"a rollout starts {more}, before it ends an old one: if no GPU is free, it "
            "does not proceed",
            help="set spec.strategy.rollingUpdate.maxSurge to 0 and maxUnavailable to 1, or the "
            "type to Recreate",
        )


def _surge_pods(surge: Any, replicas: Any) -> int:
    """Return how many pods `surge` allows beyond `replicas`; 0 if either is not valid."""
    if not isinstance(replicas, int) or not 0 < replicas <= _MAX_INT32:
        return 0
    if isinstance(surge, int):
        return int(surge) if surge <= _MAX_INT32 else 0
    percent = surge[:-1] if isinstance(surge, str) and surge.endswith("%") else ""
    if not (percent.isascii() and percent.isdigit() and len(percent) <= _MAX_DIGITS):
        return 0
    return math.ceil(int(percent) * replicas / 100)


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_WORKLOAD,))
