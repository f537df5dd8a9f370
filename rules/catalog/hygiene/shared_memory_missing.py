"""A container with several GPUs has no volume at /dev/shm.

What it does
------------
Finds containers that request two or more whole GPUs and mount nothing at `/dev/shm`. A pod with
`hostIPC` has the node's. For Ray's kinds the operator KubeRay adds the volume. Nothing is reported
if another object or an operator completes the pod, as for KServe and TrainJobs.

Why it matters
--------------
Processes that work on several GPUs of a machine exchange data through shared memory: NCCL does, and
so do the workers of PyTorch's data loaders. Without a volume, containerd gives a container 64 MiB
of it. A process that needs more fails, often only after hours.

References
----------
- https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory
- https://docs.vllm.ai/en/stable/deployment/k8s.html
- KubeRay, `ray-operator/controllers/ray/common/pod.go`
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import devices, whole_gpus
from rules.gpu.volumes import SHARED_MEMORY_PATH, shared_memory_mount
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# The kinds of KubeRay, and those of others in which there is one of them.
_RAY_KINDS = "Ray"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that holds several GPUs and has only the default shared memory."""
    if not pod.is_complete or pod.spec.get("hostIPC") is True:
        return
    if pod.object.kind.startswith(_RAY_KINDS):
        return
    for container in pod.containers:
        gpus = whole_gpus(container) or 0
        if gpus > 1 and container.role != "ephemeral" and shared_memory_mount(container) is None:
            yield Finding(
                path=(*container.path, "volumeMounts"),
                key="volumeMounts.shm",
                message=f"{container} asks for {gpus} of {_names(container)} and mounts no volume "
                f"at {SHARED_MEMORY_PATH}: its processes share 64 MiB, "
                "the container runtime's default",
                container=container,
                help="mount an emptyDir with medium: Memory and a sizeLimit at "
                f"{SHARED_MEMORY_PATH}",
            )


def _names(container: Container) -> str:
    requested = (name for name, device in devices(container).items() if device.is_requested)
    return " and ".join(map(display, requested))


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,), needs_resources=True
)
