"""A container adds a capability beyond what GPU programs need, in a pod that has to do with GPUs.

What it does
------------
Finds containers, including init and ephemeral ones, whose `capabilities.add` contains a capability
that is not on the list below, in a pod that has to do with GPUs, as the rule
[privileged-gpu](privileged-gpu.md) says it. Names are read as container runtimes read them: in
upper or lower case, and with or without `CAP_`. A name that Linux does not know adds nothing.

It refuses

- `SYS_ADMIN` and `ALL`,
- `SYS_MODULE`, `SYS_RAWIO` and `SYS_BOOT`,
- `DAC_READ_SEARCH`,
- `BPF` beside `PERFMON`,
- `SYS_PTRACE` beside `hostPID: true`,

and warns of any other that is not on the list. It never refuses, but warns, of a pod that may also
run where no GPU is, and if the name of the runtime class contains `gvisor` or `kata`: in such a
sandbox capabilities have no effect outside the pod. These capabilities are on the list:

- what Pod Security's level `baseline` allows: `AUDIT_WRITE`, `CHOWN`, `DAC_OVERRIDE`, `FOWNER`,
  `FSETID`, `KILL`, `MKNOD`, `NET_BIND_SERVICE`, `SETFCAP`, `SETGID`, `SETPCAP`, `SETUID`,
  `SYS_CHROOT`;
- `NET_RAW`, which containers of containerd and Docker have unless they drop it;
- `IPC_LOCK` and `SYS_RESOURCE`, for memory that RDMA pins;
- `SYS_NICE`, for memory on the NUMA node of the card;
- `SYS_PTRACE`, for debuggers, and for messages between processes that are copied only once, unless
  the pod has `hostPID: true`;
- `PERFMON`, for profilers;
- `NET_ADMIN`, for Google's GPUDirect-TCPXO, unless the pod has `hostNetwork: true`.

Why it matters
--------------
With `SYS_ADMIN` a process lifts the limits that the kernel puts on its devices, and can then use
every GPU or other accelerator of its node, of whatever maker: with cgroup v2 it takes away the
program that allows devices, with cgroup v1 it mounts and writes their list. SELinux can forbid
that. Some other capabilities are worth the node as well.

gVisor and Kata Containers give a pod a kernel of its own. With `hostUsers: false` the kernel of the
node grants capabilities in the user namespace of the pod, and not for what belongs to the node. But
before Kubernetes 1.33, API servers remove this field where the feature gate
`UserNamespacesSupport` is off, and webhooks still see it. So the rule refuses such a pod like any
other.

On nodes of NVIDIA nothing needs to be lifted: NVIDIA's container toolkit treats a container as
privileged because of `SYS_ADMIN`, not because of `privileged: true`. It then obeys
NVIDIA_VISIBLE_DEVICES even where administrators allowed that to privileged containers only, and
lets the container manage MIG devices.

With `SYS_MODULE` a process loads modules into the kernel of the node, with `SYS_BOOT` another
kernel, with `SYS_RAWIO` it reaches the memory and the ports of its devices: each gives it every GPU
of the node. With `DAC_READ_SEARCH` it opens files of the node by their handles, without any path:
the kubelet's key, and the secrets of other pods. With `BPF` and `PERFMON` its programs read the
memory of the kernel. In the network or among the processes of the node, `NET_ADMIN` and
`SYS_PTRACE` are about the whole node.

Fix safety
----------
The fix removes the capabilities only if the policy says `fix: true`: the program may need them, as
DCGM's exporter needs `SYS_ADMIN` for its profiling metrics. List an exporter in a namespace of your
own under `components` in a profile of the policy.

References
----------
- NVIDIA container toolkit, `internal/config/image/privileged.go`
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://man7.org/linux/man-pages/man7/capabilities.7.html
- https://man7.org/linux/man-pages/man7/user_namespaces.7.html
- https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/
- https://cloud.google.com/kubernetes-engine/docs/concepts/sandbox-pods
- the kernel's `Documentation/admin-guide/cgroup-v2.rst`, *Device controller*
- https://man7.org/linux/man-pages/man2/open_by_handle_at.2.html
- https://github.com/bottlerocket-os/bottlerocket/issues/3992
"""

from collections.abc import Callable
from typing import NamedTuple

from rules.base.json_values import as_text, display, remove
from rules.base.traits import GPU_EVIDENCE, PRIVILEGED
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    expression,
    get,
    is_in,
    let,
    not_,
    text,
)
from rules.in_process.requests import added_capabilities
from rules.in_process.statement import CONTAINER, EVIDENCE, Statement, shown
from rules.placement.gpu_nodes import Evidence, gpu_evidence
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

# Pod Security's level baseline (kubernetes/pod-security-admission
# policy/check_capabilities_baseline.go).
_BASELINE = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
# - NET_RAW: containerd pkg/oci/spec.go, the default of all containers.
# - IPC_LOCK: the manifests for EFA in aws-samples/awsome-distributed-training, and others.
# - SYS_RESOURCE: beside IPC_LOCK in ai-dynamo/dynamo's recipes for InfiniBand.
# - SYS_NICE: vllm-project/vllm docs/getting_started/installation/cpu.md, pull request 24017.
# - SYS_PTRACE: ROCm/k8s-device-plugin example/vllm-serve/deployment.yaml.
# - PERFMON: the kernel's Documentation/admin-guide/perf-security.rst, in place of SYS_ADMIN.
_FOR_GPU_PROGRAMS = frozenset(
    {"NET_RAW", "IPC_LOCK", "SYS_RESOURCE", "SYS_NICE", "SYS_PTRACE", "PERFMON"}
)
# Of these, the one for the processes of the pod alone.
_FOR_OWN_PROCESSES = "SYS_PTRACE"
# For the network of the pod alone: gpudirect-tcpxo/nccl-test-latest.yaml in
# GoogleCloudPlatform/container-engine-accelerators.
_FOR_OWN_NETWORK = "NET_ADMIN"
# linux/capability.h. Runtimes know no other names: runc ignores them (libcontainer/capabilities),
# CRI-O and crun do not start the container.
_OF_LINUX = frozenset(
    {
        *("AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF"),
        *("CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID"),
        *("IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN"),
        *("MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW"),
        *("PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT"),
        *("SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO"),
        *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM"),
    }
)
ADMINISTRATION_CAPABILITIES = frozenset({"SYS_ADMIN", "ALL"})
# capabilities(7): modules of the kernel; /dev/mem, ports and the memory of PCI devices; kexec_load.
KERNEL_CAPABILITIES = frozenset({"SYS_MODULE", "SYS_RAWIO", "SYS_BOOT"})
FILE_CAPABILITY = "DAC_READ_SEARCH"
# libcap doc/values/39.txt: together they load tracing programs, which read the kernel's memory.
BPF, PERFMON = "BPF", "PERFMON"
WORTH_THE_NODE = ADMINISTRATION_CAPABILITIES | KERNEL_CAPABILITIES | {FILE_CAPABILITY}
_OTHERS = _OF_LINUX - _BASELINE - _FOR_GPU_PROGRAMS - {_FOR_OWN_NETWORK}
ADDED_CAPABILITIES_PATH = ("securityContext", "capabilities", "add")
NOUNS, AND = ("capability", "capabilities"), " and "


class Effect(NamedTuple):
    """An effect of capabilities, and what is done about it.

    `beside` is a capability without which the others have no such effect, and `names_devices` says
    that the devices of the node end the text.
    """

    capabilities: frozenset[str]
    text: str
    action: Action = Action.DENY
    beside: str = ""
    names_devices: bool = False


# The strongest first.
EFFECTS = (
    # kernel/bpf/syscall.c: SYS_ADMIN opens the program of a cgroup, and detaches it.
    Effect(
        ADMINISTRATION_CAPABILITIES,
        "it can lift the limits on its devices and use every ",
        names_devices=True,
    ),
    Effect(
        KERNEL_CAPABILITIES,
        "it can change the kernel of the node and use every ",
        names_devices=True,
    ),
    Effect(
        frozenset({FILE_CAPABILITY}),
        "it can read the files of the node and of other pods, such as their secrets",
    ),
    Effect(
        frozenset({BPF}), "with PERFMON it can read the memory of the node's kernel", beside=PERFMON
    ),
    Effect(frozenset({_FOR_OWN_PROCESSES}), "it can control every process of the node"),
    Effect(frozenset({_FOR_OWN_NETWORK}), "it can change the network of the node", Action.WARN),
)
OTHER_EFFECT = "no program for GPUs is known to need that"
# Runtimes with a kernel for each pod, after which runtime classes are named.
SANDBOXES = ("gvisor", "kata")
IN_USER_NAMESPACE = ", unless the node gives the pod a user namespace"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that adds one of the capabilities."""
    containers = [(c, entries) for c in pod.containers if (entries := _entries(c, pod))]
    evidence = next(gpu_evidence(pod, context), None) if containers else None
    if evidence is None:
        return
    sandbox = _sandbox(pod)
    for container, entries in containers:
        effect, action = _in_sandbox(sandbox), Action.WARN
        if not sandbox:
            effect, action = _effect(container, entries, evidence, pod)
        yield _finding(
            container, entries, evidence, effect, action if evidence.is_certain else Action.WARN
        )


def _sandbox(pod: Pod) -> str:
    """The name of the runtime class, if that gives `pod` a kernel of its own; else empty."""
    runtime_class = as_text(pod.spec.get("runtimeClassName"))
    return display(runtime_class) if any(word in runtime_class for word in SANDBOXES) else ""


def _in_sandbox(runtime_class: object) -> str:
    return f"it has no effect outside the pod, if the runtime class {runtime_class} is a sandbox"


def _entries(container: Container, pod: Pod) -> list[tuple[int, str]]:
    """The entries of `capabilities.add` that are not on the list, with their indices."""
    found = WORTH_THE_NODE
    # A privileged container has the others anyway.
    if not container.is_privileged:
        found |= _OTHERS
        if pod.spec.get("hostNetwork") is True:
            found |= {_FOR_OWN_NETWORK}
        if pod.spec.get("hostPID") is True:
            found |= {_FOR_OWN_PROCESSES}
    return [entry for entry in container.added_capabilities if entry[1] in found]


def _effect(
    container: Container, entries: list[tuple[int, str]], evidence: Evidence, pod: Pod
) -> tuple[str, Action]:
    """Return the effect of the capabilities on the node, and the action that it deserves."""
    names = {name for _, name in entries}
    added = {name for _, name in container.added_capabilities}
    found = next((e for e in EFFECTS if _has(e, names, added)), None)
    if found is None:
        return OTHER_EFFECT, Action.WARN
    devices = evidence.devices if found.names_devices else ""
    condition = IN_USER_NAMESPACE if pod.spec.get("hostUsers") is False else ""
    return f"{found.text}{devices}{condition}", found.action


def _finding(
    container: Container,
    entries: list[tuple[int, str]],
    evidence: Evidence,
    effect: str,
    action: Action,
) -> Finding:
    names = {name for _, name in entries}
    capabilities = AND.join(sorted(names))
    noun = NOUNS[0] if len(names) == 1 else NOUNS[1]
    add = (*container.path, *ADDED_CAPABILITIES_PATH)
    return Finding(
        path=(*add, entries[0][0]),
        key=".".join(ADDED_CAPABILITIES_PATH),
        message=_message(container, noun, capabilities, evidence.pod, effect),
        container=container,
        help=_advice(capabilities),
        fix=Fix(f"drop {capabilities}", tuple(remove((*add, index)) for index, _ in entries)),
        action=action,
    )


def _has(effect: Effect, names: set[str], added: set[str]) -> bool:
    """Return whether capabilities with `names`, of all that are `added`, have the effect."""
    is_complete = not effect.beside or effect.beside in added
    return is_complete and not names.isdisjoint(effect.capabilities)


def _message(
    container: object, noun: object, capabilities: object, pod: object, effect: object
) -> str:
    return f"{container} adds the {noun} {capabilities} in {pod}: {effect}"


def _advice(capabilities: object) -> str:
    return f"remove {capabilities} from capabilities.add"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    added = added_capabilities(CONTAINER.raw)
    found = let(added, lambda every: POLICY.capabilities.filter(_is_fault(every)))
    refused = [effect for effect in EFFECTS if effect.action is Action.DENY]
    runtime_class = get(OBJECT.spec, "runtimeClassName", "")
    is_in_sandbox = any_of(*(runtime_class.contains(word) for word in SANDBOXES))
    has_users_of_node = get(OBJECT.spec, "hostUsers", True)
    condition = choose((has_users_of_node, ""), otherwise=IN_USER_NAMESPACE)

    def has(effect: Effect, names: Expression) -> Expression:
        is_one = names.exists(lambda n: is_in(n, sorted(effect.capabilities)))
        beside = [is_in(effect.beside, added)] if effect.beside else []
        return all_of(is_one, *beside)

    def message(names: Expression) -> Expression:
        effect = choose(
            (is_in_sandbox, text(_in_sandbox(shown(runtime_class)))),
            *((has(e, names), _text_in_cel(e, condition)) for e in EFFECTS),
            otherwise=OTHER_EFFECT,
        )
        noun = choose((names.size() == 1, NOUNS[0]), otherwise=NOUNS[1])
        return text(_message(CONTAINER.text, noun, names.join(AND), EVIDENCE.pod, effect))

    is_refused = expression([found]).exists(
        lambda names: all_of(
            not_(is_in_sandbox), any_of(*(has(effect, names) for effect in refused))
        )
    )
    return (
        Statement(
            "container",
            all_of(EVIDENCE.is_there, found.size() > 0),
            let(found, message),
            text(_advice(found.join(AND))),
            action=choose((all_of(EVIDENCE.is_certain, is_refused), "deny"), otherwise="warn"),
            facts={
                "capabilities": sorted(
                    {*WORTH_THE_NODE, *_OTHERS, _FOR_OWN_NETWORK, _FOR_OWN_PROCESSES}
                ),
                "worthTheNode": sorted(WORTH_THE_NODE),
            },
        ),
    )


def _text_in_cel(effect: Effect, condition: Expression) -> Value:
    devices = EVIDENCE.devices if effect.names_devices else ""
    return text(f"{effect.text}{devices}{condition}")


def _is_fault(added: Expression) -> Callable[[Expression], Expression]:
    """Return a test of whether a capability is one of `_entries`; `added` are those added."""
    is_privileged = get(CONTAINER.raw, "securityContext.privileged", False)
    return lambda n: all_of(
        is_in(n, added),
        any_of(is_in(n, POLICY.worthTheNode), not_(is_privileged)),
        any_of(n != _FOR_OWN_NETWORK, get(OBJECT.spec, "hostNetwork", False)),
        any_of(n != _FOR_OWN_PROCESSES, get(OBJECT.spec, "hostPID", False)),
    )


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(PRIVILEGED, GPU_EVIDENCE),
)
