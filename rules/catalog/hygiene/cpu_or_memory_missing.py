"""A GPU container requests no CPU or no memory.

What it does
------------
Finds containers that request a GPU resource and for CPU, or for memory, have neither a request nor
a limit, nor has the pod (`spec.resources`). A default that a LimitRange of the same run gives the
namespace counts as well. Nothing is reported if another object or an operator completes the pod, as
for KServe and TrainJobs.

Why it matters
--------------
The scheduler then counts nothing for the container: it puts other pods on the CPUs that should feed
the GPU, and when memory runs short the kernel kills a container without a request first. In a
namespace whose quota counts CPU or memory, the API server refuses the pod.

References
----------
- https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
- https://kubernetes.io/docs/concepts/policy/limit-range/
- https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from rules.base.json_values import as_object
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import request_of
from rules.inventory.inventory import LimitRange
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_DISPLAYED_NAMES = {"cpu": "CPU", "memory": "memory"}


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU container for which the scheduler counts no CPU or no memory."""
    namespace = pod.object.namespace
    if not pod.is_complete or context.inventory.lacks_some(LimitRange, namespace):
        return
    resources = as_object(pod.spec.get("resources"))
    given = {*as_object(resources.get("requests")), *as_object(resources.get("limits"))}
    for known in context.inventory.all_in(LimitRange, namespace).values():
        given |= known.requests
    for container in pod.containers:
        if container.role == "ephemeral" or not request_of(container).first_name:
            continue
        missing = [
            name
            for name in _DISPLAYED_NAMES
            if name not in given and not _has_amount(container, name)
        ]
        if missing:
            words = " and no ".join(_DISPLAYED_NAMES[name] for name in missing)
            yield Finding(
                path=container.resources_path,
                key="resources.cpu-memory",
                message=f"{container} asks for a GPU and requests no {words}: the scheduler counts "
                "none for it",
                container=container,
                help=f"set resources.requests of {' and '.join(missing)}",
            )


def _has_amount(container: Container, name: str) -> bool:
    return name in container.requests or name in container.limits


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,), needs_resources=True
)
