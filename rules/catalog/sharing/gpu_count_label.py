"""The label that spreads a pod over several shared cards is wrong.

What it does
------------
Checks the pod label `aliyun.com/gpu-count`: it must be a whole number from 1 up and must divide
the amounts of shared GPUs that the containers request, and the pod must request
`aliyun.com/gpu-mem`. Also finds `aliyun.com/gpu-count` among a container's resources.

Why it matters
--------------
ACK divides the memory and computing power that a container requests by this number, one part for
each card. Its scheduler does not place a pod whose amount cannot be divided.

Nodes state how many cards they have as a resource of the same name, but the device plugin only
writes that number into the node and hands out nothing by it. A container that requests the
resource takes from the number and gets no GPU.

References
----------
- koordinator-sh/koordinator, `pkg/scheduler/plugins/ack/gpushare`
- AliyunContainerService/gpushare-device-plugin, `pkg/gpu/nvidia/podmanager.go`
"""

from rules.base.json_values import as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import GPU_METADATA_KEY, SHARE
from rules.gpu.amounts import api_refuses_amounts
from rules.placement.node_labels import GPU_CORE, GPU_COUNT, GPU_MEM
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

DIVIDED_RESOURCES = (GPU_MEM, GPU_CORE)
MAX_DIGITS = 4
NO_COUNT_FAULT = "it must be a whole number from 1 up, in quotes as every label"
NO_MEMORY_FAULT = f"it has a meaning only where a container asks for {GPU_MEM}"
DIVISION_FAULT = "it does not divide the "
LABEL_ADVICE = "write the number of cards that share the container's GPU memory evenly"
RESOURCE_FAULT = (
    f" asks for {GPU_COUNT}, the name under which nodes state how many cards they have: no device "
    "plugin serves it, so the container gets no GPU by it"
)
RESOURCE_ADVICE = f"ask for {GPU_MEM}; to spread it over two cards label the pod {GPU_COUNT}: '2'"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield what is wrong with the label, and each container that uses it as a resource."""
    if GPU_COUNT in pod.labels and (fault := _fault(pod, pod.labels[GPU_COUNT])):
        message = (
            f"the pod label {GPU_COUNT} is {display(parse(pod.labels[GPU_COUNT]).text)}: {fault}"
        )
        path = (*pod.metadata_path, "labels", GPU_COUNT)
        yield Finding(path=path, key=f"labels.{GPU_COUNT}", message=message, help=LABEL_ADVICE)
    for container in pod.containers if not pod.layout.gpu_field else ():
        field = "limits" if GPU_COUNT in container.limits else "requests"
        if GPU_COUNT in getattr(container, field):
            path = (*container.resources_path, field, GPU_COUNT)
            yield Finding(
                path=path,
                key=f"{field}.{GPU_COUNT}",
                message=f"{container}{RESOURCE_FAULT}",
                container=container,
                help=RESOURCE_ADVICE,
                api_refuses=api_refuses_amounts(GPU_COUNT, container.limits, container.requests),
            )


def _fault(pod: Pod, value: object) -> str | None:
    count = as_text(value)
    if not (count.isascii() and count.isdigit() and len(count) <= MAX_DIGITS and int(count)):
        return NO_COUNT_FAULT
    if not any(GPU_MEM in {**c.limits, **c.requests} for c in pod.containers):
        return NO_MEMORY_FAULT
    for container in pod.containers:
        for name in DIVIDED_RESOURCES:
            if _is_indivisible(container, name, int(count)):
                return f"{DIVISION_FAULT}{name} of {container}"
    return None


def _is_indivisible(container: Container, name: str, cards: int) -> bool:
    amount = parse(container.limits.get(name, container.requests.get(name)))
    return isinstance(amount, Quantity) and amount.is_integer and amount.value % cards != 0


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_METADATA_KEY | SHARE,))
