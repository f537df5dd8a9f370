"""A container adds SYS_ADMIN in a pod that has to do with GPUs.

What it does
------------
Finds containers, including init and ephemeral ones, whose `capabilities.add` contains
`SYS_ADMIN`, `CAP_SYS_ADMIN` or `ALL`, in upper or lower case, in a pod that requests a GPU or
selects GPU nodes.

Why it matters
--------------
NVIDIA's container toolkit treats a container as privileged because of this capability, not
because of `privileged: true`. It then obeys NVIDIA_VISIBLE_DEVICES even where administrators
allowed that to privileged containers only, and lets the container manage MIG devices.

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
from rules.gpu.components import advice_for_agents
from rules.placement.gpu_nodes import is_for_gpus
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

ADMINISTRATION = ("SYS_ADMIN", "ALL")
FIELD = ("securityContext", "capabilities", "add")


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that adds the capability."""
    containers = [(c, entries) for c in pod.containers if (entries := _administration(c))]
    if containers and is_for_gpus(pod):
        yield from (_finding(pod, container, entries) for container, entries in containers)


def _administration(container: Container) -> list[tuple[int, str]]:
    """The entries of `capabilities.add` that include SYS_ADMIN, with their indices."""
    return [entry for entry in container.added_capabilities if entry[1] in ADMINISTRATION]


def _finding(pod: Pod, container: Container, entries: list[tuple[int, str]]) -> Finding:
    capabilities = " and ".join(sorted({name for _, name in entries}))
    add = (*container.path, *FIELD)
    message = (
        f"{container} adds the capability {capabilities} in a pod for GPUs: "
        "the container toolkit takes it for privileged and gives it any GPU that it names"
    )
    advice = f"remove {capabilities} from capabilities.add{advice_for_agents(pod)}"
    fix = Fix(f"drop {capabilities}", tuple(remove((*add, index)) for index, _ in entries))
    return Finding(
        path=(*add, entries[0][0]),
        key=".".join(FIELD),
        message=message,
        container=container,
        help=advice,
        fix=fix,
    )


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(PRIVILEGED, GPU_OR_NODE_CONSTRAINT)
)
