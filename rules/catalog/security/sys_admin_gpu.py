"""A container adds SYS_ADMIN, or what is worth as much, in a pod that has to do with GPUs.

What it does
------------
Finds containers, including init and ephemeral ones, whose `capabilities.add` contains `SYS_ADMIN`,
`SYS_MODULE`, `SYS_RAWIO` or `ALL`, in upper or lower case and with or without `CAP_`, in a pod that
requests a GPU or selects GPU nodes.

Why it matters
--------------
NVIDIA's container toolkit treats a container as privileged because of this capability, not
because of `privileged: true`. It then obeys NVIDIA_VISIBLE_DEVICES even where administrators
allowed that to privileged containers only, and lets the container manage MIG devices.

With `SYS_MODULE` a process loads modules into the kernel of the node, with `SYS_RAWIO` it reaches
the memory and the ports of its devices: either gives it every GPU of the node.

On nodes with other accelerators, such as TPUs, there is no such toolkit. There the rule warns of
`SYS_ADMIN`, with which a process can mount what belongs to the node.

Fix safety
----------
The fix removes the capability only if the policy says `fix: true`: the program may need it, as
DCGM's exporter does for its profiling metrics. List an exporter in a namespace of your own under
`components` in a profile of the policy.

References
----------
- NVIDIA container toolkit, `internal/config/image/privileged.go`
- https://github.com/bottlerocket-os/bottlerocket/issues/3992
"""

from rules.base.json_values import remove
from rules.base.traits import GPU_OR_NODE_CONSTRAINT, PRIVILEGED
from rules.in_process.statement import Statement, cel, concat
from rules.placement.gpu_nodes import excludes_nvidia, gpu_evidence, is_for_gpus
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

ADMINISTRATION_CAPABILITIES = frozenset({"SYS_ADMIN", "ALL"})
# linux/capability.h: modules of the kernel; /dev/mem, ports and the memory of PCI devices.
KERNEL_CAPABILITIES = frozenset({"SYS_MODULE", "SYS_RAWIO"})
ADDED_CAPABILITIES_PATH = ("securityContext", "capabilities", "add")
TOOLKIT_EFFECT = "the container toolkit takes it for privileged and gives it any GPU that it names"
KERNEL_EFFECT = "it can change the kernel of the node and use every "
MOUNT_EFFECT = "it can mount what belongs to the node, and so perhaps use every "


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container that adds one of the capabilities."""
    containers = [(c, entries) for c in pod.containers if (entries := _administration_entries(c))]
    if containers and is_for_gpus(pod):
        devices = next(gpu_evidence(pod, context)).devices
        has_toolkit = not excludes_nvidia(pod)
        for container, entries in containers:
            yield _finding(container, entries, devices, has_toolkit=has_toolkit)


def _administration_entries(container: Container) -> list[tuple[int, str]]:
    """The entries of `capabilities.add` that include one of them, with their indices."""
    found = ADMINISTRATION_CAPABILITIES | KERNEL_CAPABILITIES
    return [entry for entry in container.added_capabilities if entry[1] in found]


def _finding(
    container: Container, entries: list[tuple[int, str]], devices: str, *, has_toolkit: bool
) -> Finding:
    names = {name for _, name in entries}
    capabilities = " and ".join(sorted(names))
    noun = "capability" if len(names) == 1 else "capabilities"
    effect, action = f"{KERNEL_EFFECT}{devices}", Action.DENY
    if has_toolkit and not names.isdisjoint(ADMINISTRATION_CAPABILITIES):
        effect = TOOLKIT_EFFECT
    elif names == {"SYS_ADMIN"}:
        effect, action = f"{MOUNT_EFFECT}{devices}", Action.WARN
    add = (*container.path, *ADDED_CAPABILITIES_PATH)
    return Finding(
        path=(*add, entries[0][0]),
        key=".".join(ADDED_CAPABILITIES_PATH),
        message=f"{container} adds the {noun} {capabilities} in a pod for {devices}s: {effect}",
        container=container,
        help=f"remove {capabilities} from capabilities.add",
        fix=Fix(f"drop {capabilities}", tuple(remove((*add, index)) for index, _ in entries)),
        action=action,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    known = cel(sorted(ADMINISTRATION_CAPABILITIES | KERNEL_CAPABILITIES))
    added = "c.raw.?securityContext.?capabilities.?add.orValue([])"
    names = f'{known}.filter(n, {added}.exists(x, x.upperAscii() in [n, "CAP_" + n]))'
    administers = f"names.exists(n, n in {cel(sorted(ADMINISTRATION_CAPABILITIES))})"
    only_mounts = f'{names}.all(n, n == "SYS_ADMIN") && $excludesNvidia'
    effect = (
        f"(!$excludesNvidia && {administers} ? {cel(TOOLKIT_EFFECT)}"
        f' : (names == ["SYS_ADMIN"] ? {cel(MOUNT_EFFECT)} : {cel(KERNEL_EFFECT)}) + $evidence[1])'
    )
    message = concat(
        'c.text + " adds the " + (names.size() == 1 ? "capability " : "capabilities ")',
        'names.join(" and ") + " in a pod for " + $evidence[1] + "s: "',
        effect,
    )
    advice = f'"remove " + {names}.join(" and ") + " from capabilities.add"'
    return (
        Statement(
            "container",
            f"$isForGpus && {names}.size() > 0",
            f"[{names}].map(names, {message})[0]",
            advice,
            action=f'({only_mounts} ? "warn" : "deny")',
        ),
    )


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(PRIVILEGED, GPU_OR_NODE_CONSTRAINT)
)
