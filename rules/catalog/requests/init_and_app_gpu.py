"""An init container and a container of the application ask for the same GPU resource.

What it does
------------
Finds pods in which an init container, other than a sidecar with `restartPolicy: Always`, requests a
GPU of a device plugin, and a container that runs afterwards requests the same resource.

Why it matters
--------------
Kubernetes lets the application use the GPU that the init container has finished with, so such a pod
starts. When the kubelet restarts, it leaves the devices of running containers alone, but allocates
those of the init container again, although that has long ended. If the node has no free GPU then,
or if the device plugin has not registered again yet, the kubelet ends the running pod with
`UnexpectedAdmissionError`. An update of a node does this to every such pod on it.

References
----------
- https://github.com/kubernetes/kubernetes/issues/138446
- https://github.com/kubernetes/kubernetes/issues/124345
- Kubernetes, `pkg/kubelet/cm/devicemanager/manager.go`
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE, INIT_CONTAINER
from rules.gpu.devices import devices, is_device_class
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

CONSEQUENCE = (
    ": a kubelet that restarts ends such a pod, if it finds no free GPU for the init container"
)
ADVICE = "ask for it in the application alone, or do the work of the init container in its command"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU resource of an init container that a later container asks for as well."""
    later: set[str] = set()
    for container in pod.containers:
        if container.role == "app" or _is_sidecar(container):
            later |= _requested_gpu_resources(container)
    for container in pod.containers:
        if container.role != "init" or _is_sidecar(container):
            continue
        for name in sorted(_requested_gpu_resources(container) & later):
            yield Finding(
                path=container.amount_path(name),
                key=f"init-and-app.{name}",
                message=(f"{container} and the application ask for {display(name)}{CONSEQUENCE}"),
                container=container,
                help=ADVICE,
            )


def _is_sidecar(container: Container) -> bool:
    return container.role == "init" and container.raw.get("restartPolicy") == "Always"


def _requested_gpu_resources(container: Container) -> set[str]:
    """The GPU resources that the container asks a device plugin for."""
    found = devices(container).items()
    return {name for name, each in found if each.is_requested and not is_device_class(name)}


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(INIT_CONTAINER, GPU_RESOURCE),
    needs_resources=True,
)
