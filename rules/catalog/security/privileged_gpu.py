"""A container is privileged in a pod that has to do with GPUs.

What it does
------------
Finds containers, including init and ephemeral ones, with `privileged: true`, and HostProcess
containers of Windows, in a pod that has to do with GPUs or other accelerators. A pod has, if it

- requests a GPU; a resource claim counts, because the pod does not show its class,
- selects GPU nodes by a label, or by a `topologyKey` that only they have, in a required topology
  spread or a required pod affinity,
- selects a GPU node by its name, where gpuward knows
  [the names](../other-objects.md#names-of-gpu-nodes),
- names a runtime class that injects GPUs,
- has an image that is known to use CUDA, ROCm, Gaudi, Neuron, TPUs, Ascend or another maker's
  devices, or one of NVIDIA's GPU operator and its like, such as the driver or the validator,
- sets a variable that a driver or a runtime of such devices reads, such as `CUDA_VISIBLE_DEVICES`,
  `ROCR_VISIBLE_DEVICES` or `NEURON_RT_VISIBLE_CORES`, except to hide the GPUs.

The rule only warns if the pod prefers GPU nodes, tolerates their taint by name, sets another
variable whose name begins with `NVIDIA_` or `CUDA_`, or if the privileged container names
`nvidia-smi`, `torchrun` or `torch.distributed` in its command, a hook or a probe, or has one of
ACK's sample images: such a pod may run where no GPU is. A toleration of all taints says nothing:
node agents have it.
Pods that the DaemonSet controller creates may be agents. Of these only a request and the selection
of GPU nodes count, and about an image that is known to use such devices the rule warns, except
those of agents: NVIDIA's that run their own program, and of other makers those in a folder of the
maker whose name shows a device plugin, an exporter or the like. Such a container must run the
program of its image, programs with such a name, or a plain script of them; beside these, what only
looks or waits, such as `ls` in a probe. An interpreter and other scripts would run anything. So may
a program that a variable names or a volume contains, and variables such as `LD_PRELOAD`; a
ConfigMap may have these, so a container with `envFrom` is not excused. Libraries in volumes are not
judged, because makers' agents mount those of the node. The pods in which NVIDIA's operator tests a
node are excused where its validator itself creates them.

Why it matters
--------------
A privileged container sees every device file of its node. It can therefore use every GPU, or other
accelerator, there, whatever it was allocated, and read the data of other tenants in them.

`NVIDIA_VISIBLE_DEVICES=void` hides nothing from it. Fast networks do not need it: RDMA needs the
capability `IPC_LOCK` and its own device plugin. Where a vendor's sample does need the privilege,
write an exception for it.

Fix safety
----------
The fix sets `privileged` to false only if the policy says `fix: true`: the program may need it.
There is no fix for HostProcess containers, which need the network of the node as well.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/
- NVIDIA container toolkit, `internal/config/image/privileged.go`
"""

from rules.base.json_values import display, put
from rules.base.traits import GPU_EVIDENCE, GPU_PROGRAM, PRIVILEGED
from rules.gpu.commands.of_containers import gpu_program
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.images import is_gpu_sample
from rules.gpu.visibility import NODE_DEBUGGER_ADVICE, is_node_debugger
from rules.in_process.components import is_node_debugger as is_node_debugger_in_cel
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    choose,
    get,
    not_,
    text,
)
from rules.in_process.statement import CONTAINER, EVIDENCE, Statement
from rules.objects.container import is_host_process
from rules.placement.gpu_nodes import GPU_WORD, Evidence, gpu_evidence
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

ADVICE = "remove `privileged: true`"
WINDOWS_ADVICE = "remove `hostProcess: true`"
OF_THE_NODE, OF_ITS_NODE = "of the node", "that its node has"
EACH_CONTAINER_IS = "each of its containers is"
RDMA_ADVICE = f"{ADVICE}; RDMA needs no more than `capabilities: {{add: [IPC_LOCK]}}`"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each privileged container, and each HostProcess one."""
    privileged = [c for c in pod.containers if c.is_privileged]
    windows = [c for c in pod.containers if is_host_process(c.raw) and not c.is_privileged]
    if not (privileged or windows or is_host_process(pod.spec)):
        return
    evidence = next(gpu_evidence(pod, context), None) or _program_evidence(pod, privileged, context)
    if evidence is None:
        return
    advice = RDMA_ADVICE if evidence.devices == GPU_WORD else ADVICE
    if is_node_debugger(pod):
        advice = NODE_DEBUGGER_ADVICE
    yield from (_finding(container, evidence, advice) for container in privileged)
    yield from (_host_process_finding(container, pod, evidence) for container in windows)
    if is_host_process(pod.spec):
        yield _host_process_finding(None, pod, evidence)


def _program_evidence(pod: Pod, privileged: list[Container], context: Context) -> Evidence | None:
    """Return what the commands and images of the privileged containers show.

    Agents may run as much.
    """
    for container in () if is_made_by_daemon_set(pod, context) else privileged:
        if program := gpu_program(container.raw):
            return Evidence(f"a pod that runs {program}", is_certain=False)
        if is_gpu_sample(container.image):
            where = f"a pod with the image {display(container.image)}, a sample for GPUs"
            return Evidence(where, is_certain=False)
    return None


def _effect(devices: object, place: object) -> str:
    return f"it can use every {devices} {place}"


def _where(evidence: Evidence) -> str:
    place = OF_THE_NODE if evidence.is_certain else OF_ITS_NODE
    return f"{evidence.pod}: {_effect(evidence.devices, place)}"


def _message(container: object, where: object) -> str:
    return f"{container} is privileged in {where}"


def _host_process_message(who: object, where: object) -> str:
    return f"{who} a HostProcess container in {where}"


def _finding(container: Container, evidence: Evidence, advice: str) -> Finding:
    path = (*container.path, "securityContext", "privileged")
    return Finding(
        path=path,
        key="securityContext.privileged",
        message=_message(container, _where(evidence)),
        container=container,
        help=advice,
        fix=Fix("set privileged: false", (put(path, value=False),)),
        action=Action.DENY if evidence.is_certain else Action.WARN,
    )


def _host_process_finding(container: Container | None, pod: Pod, evidence: Evidence) -> Finding:
    """The finding about one container, or about the field of the pod."""
    who = f"{container} is" if container else EACH_CONTAINER_IS
    path = container.path if container else pod.path
    names = ("securityContext", "windowsOptions", "hostProcess")
    return Finding(
        path=(*path, *names),
        key=".".join(names),
        message=_host_process_message(who, _where(evidence)),
        container=container,
        help=WINDOWS_ADVICE,
        action=Action.DENY if evidence.is_certain else Action.WARN,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    place = choose((EVIDENCE.is_certain, OF_THE_NODE), otherwise=OF_ITS_NODE)
    where = text(f"{EVIDENCE.pod}: {_effect(EVIDENCE.devices, place)}")
    action = choose((EVIDENCE.is_certain, "deny"), otherwise="warn")
    advice = choose(
        (is_node_debugger_in_cel(), NODE_DEBUGGER_ADVICE),
        (EVIDENCE.devices == GPU_WORD, RDMA_ADVICE),
        otherwise=ADVICE,
    )
    is_privileged = get(CONTAINER.raw, "securityContext.privileged", False)

    def is_windows(raw: Expression) -> Expression:
        return get(raw, "securityContext.windowsOptions.hostProcess", False)

    return (
        Statement(
            "container",
            all_of(is_privileged, EVIDENCE.is_there),
            text(_message(CONTAINER.text, where)),
            advice,
            action=action,
            leaves_out="it reads no commands, and knows no sample images",
        ),
        Statement(
            "container",
            all_of(not_(is_privileged), is_windows(CONTAINER.raw), EVIDENCE.is_there),
            text(_host_process_message(f"{CONTAINER.text} is", where)),
            WINDOWS_ADVICE,
            action=action,
        ),
        Statement(
            "pod",
            all_of(is_windows(OBJECT.spec), EVIDENCE.is_there),
            text(_host_process_message(EACH_CONTAINER_IS, where)),
            WINDOWS_ADVICE,
            action=action,
        ),
    )


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(PRIVILEGED, GPU_EVIDENCE | GPU_PROGRAM),
)
