"""Only init containers of a pod ask for a GPU.

What it does
------------
Finds pods in which an init container requests a GPU resource and no container that runs after the
init containers does. A sidecar (an init container with `restartPolicy: Always`) runs as long as the
pod and counts like an application. A part of a GPU that annotations request is not reported, nor
are resource claims: both name their container on purpose.

Why it matters
--------------
The scheduler keeps the GPU for the pod as long as the pod exists, but the device plugin gives it to
the init container alone. When that has ended, the GPU is idle and no other pod can have it. If
the application was meant to have it, it works only as long as its image and the node give it every
GPU, including those of other pods.

References
----------
- https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE, INIT_CONTAINER
from rules.gpu.devices import only_init_requests_gpu, request_of
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

CONSEQUENCE = (
    ": the scheduler keeps it for the pod's whole life, and no container of the application gets it"
)
ADVICE_END = " in the container that works with the GPU as well"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield a GPU resource of each init container, if no other container has any."""
    if not only_init_requests_gpu(pod) or not _has_application(pod):
        return
    for container in pod.containers:
        name = request_of(container).first_name
        if not name or not request_of(container).is_from_plugin:
            continue
        yield Finding(
            path=container.amount_path(name),
            key=f"init.{name}",
            message=(f"only {container} asks for {display(name)}{CONSEQUENCE}"),
            container=container,
            help=f"ask for {display(name)}{ADVICE_END}",
        )


def _has_application(pod: Pod) -> bool:
    """Return whether the pod has app containers; a patch may have init containers alone."""
    return any(container.role == "app" for container in pod.containers)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(INIT_CONTAINER, GPU_RESOURCE),
    needs_resources=True,
)
