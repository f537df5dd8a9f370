"""A pod names the scheduler of a GPU system and asks for no GPU.

What it does
------------
Finds pods that name a scheduler which the profile requires for its GPU resources, such as
`ack-co-scheduler`, and that request no GPU, although they have to do with GPUs: they select GPU
nodes, name a runtime class that injects GPUs, or have an image that is known to use CUDA or is one
of ACK's samples for GPUs. The pods of DaemonSets and of custom resources are left alone.

The rule only notes it: launchers of jobs have such images too, and use the scheduler for gangs.

Why it matters
--------------
The pod is placed and runs, and its program finds no GPU. Where a limit such as `aliyun.com/gpu-mem`
is missing by mistake, nothing else says so.

References
----------
- Alibaba Cloud, "Shared GPU scheduling in registered clusters" (ACK)
"""

from rules.base.json_values import display
from rules.base.traits import (
    CUDA_IMAGE,
    CUSTOM_SCHEDULER,
    GPU_PROGRAM,
    NODE_CONSTRAINT,
    PROFILE_SCHEDULERS,
    RUNTIME_CLASS,
)
from rules.gpu.devices import pod_requests_gpu, uses_gpu_runtime
from rules.gpu.images import is_cuda_image, is_gpu_sample
from rules.placement.gpu_nodes import gpu_node_label
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

LABEL_SIGN, IMAGE_SIGN = "selects nodes with the label ", "has the image "
RUNTIME_SIGN = "has the runtime class "
CONSEQUENCE = " and asks for no GPU: it gets none"
ADVICE, ADVICE_END = "ask for what it places, such as ", ", or leave schedulerName out"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if it names such a scheduler, requests no GPU and has to do with GPUs."""
    known = next(
        (s for s in pod.profile.schedulers if s.required and s.name == pod.scheduler), None
    )
    if known is None or pod.is_daemon or not pod.is_final or pod.is_partial:
        return
    if pod_requests_gpu(pod) or not (sign := _sign_of_gpus(pod)):
        return
    wanted = (known.resources or known.annotations)[0]
    yield Finding(
        path=(*pod.path, "schedulerName"),
        key="schedulerName.request",
        message=f"the pod names {known.name}, {sign}{CONSEQUENCE}",
        help=f"{ADVICE}{wanted}{ADVICE_END}",
    )


def _sign_of_gpus(pod: Pod) -> str:
    """Return how the pod is related to GPUs; empty if it is not."""
    if label := gpu_node_label(pod):
        return f"{LABEL_SIGN}{display(label)}"
    if uses_gpu_runtime(pod):
        return f"{RUNTIME_SIGN}{display(pod.spec['runtimeClassName'])}"
    for container in pod.containers:
        if is_cuda_image(container.image) or is_gpu_sample(container.image):
            return f"{IMAGE_SIGN}{display(container.image)}"
    return ""


RULE = define_rule(
    check,
    action=Action.AUDIT,
    since="0.1",
    needs=(
        CUSTOM_SCHEDULER,
        PROFILE_SCHEDULERS,
        NODE_CONSTRAINT | RUNTIME_CLASS | CUDA_IMAGE | GPU_PROGRAM,
    ),
)
