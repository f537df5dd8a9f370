"""A Job of GPU pods may run forever.

What it does
------------
Finds Jobs, and CronJobs, whose pods request GPUs, without `activeDeadlineSeconds` of the Job or of
its pods.

Why it matters
--------------
A program that hangs, for example because another worker has failed, keeps its GPUs until a person
looks. With a deadline Kubernetes ends it.

A quota with the scope `Terminating` counts pods with a deadline of their own, not of their Job.

References
----------
- https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
"""

from rules.base.traits import GPU_WORKLOAD
from rules.gpu.devices import pod_requests_gpu
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_FIELD = "activeDeadlineSeconds"


def check(workload: KubernetesObject, _context: Context) -> Findings:
    """Yield the Job if nothing limits how long it runs."""
    found, pods = workload.job_spec, workload.pods
    if found is None or not any(pod_requests_gpu(pod) for pod in pods):
        return
    path, spec = found
    field = ".".join(map(str, path[len(workload.path) :]))
    deadlines = (spec.get(_FIELD), *(pod.spec.get(_FIELD) for pod in pods))
    if all(deadline is None for deadline in deadlines):
        yield Finding(
            path=(*path, _FIELD),
            key=_FIELD,
            message="the Job holds GPUs and has no activeDeadlineSeconds: if it hangs, it keeps "
            "them until somebody deletes it",
            help=f"set {field}.{_FIELD} to more than it ever takes",
        )


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_WORKLOAD,))
