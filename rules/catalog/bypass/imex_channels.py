"""A container takes IMEX channels by a variable.

What it does
------------
Finds `NVIDIA_IMEX_CHANNELS` in a container's `env` with any value except an empty one, a
`valueFrom` reference, and a prefix in `envFrom` that a key can complete to the name. A container
that requests no GPU, and whose `NVIDIA_VISIBLE_DEVICES` is `void` or empty, is not reported: it
gets no channel.

Why it matters
--------------
Over an IMEX channel (Internode Memory Exchange) a program reads and writes GPU memory of other
nodes that are connected by NVLink. Containers that use the same channel are not isolated from each
other. NVIDIA's toolkit gives a container every channel that the variable names, and nobody counts
them. With a ComputeDomain of NVIDIA's DRA driver, each workload gets a channel of its own through a
resource claim and needs no variable.

The rule warns, because clusters without that driver have no other way to channels. Where all
workloads use compute domains, set its action to `deny`.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: without a channel a program may
lose its fast connection to other nodes.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`ImexChannelsFromEnvVar`)
- https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu
"""

from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.visibility import (
    certainly_gets_no_gpu,
    describe_setting,
    prefix_findings,
    remove_edits,
)
from rules.in_process.statement import Statement, cel, concat
from rules.in_process.variables import has_variable, prefix_statement
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

VARIABLE = "NVIDIA_IMEX_CHANNELS"
EFFECT = (
    "beside a GPU, NVIDIA's runtime gives it channels to the GPU memory of other nodes that nobody "
    "counted"
)
HELP = "use the resource claim of a ComputeDomain, which injects a channel of its own"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that names channels itself, or may take their names from elsewhere."""
    for container in pod.containers:
        if certainly_gets_no_gpu(container):
            continue
        if VARIABLE in container.env:
            if container.env_value(VARIABLE) == "":
                continue
            yield Finding(
                path=container.env_path(VARIABLE),
                key=VARIABLE,
                message=f"{container} {describe_setting(container, VARIABLE)}: {EFFECT}",
                container=container,
                help=f"remove the variable; {HELP}",
                fix=Fix(f"remove {VARIABLE}", remove_edits(container, VARIABLE)),
            )
        else:
            effect, remedy = f": {EFFECT}", f"; {HELP}"
            yield from prefix_findings(container, VARIABLE, effect=effect, remedy=remedy)


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    where = f'v.name == {cel(VARIABLE)} && (v.isReference || v.value != "") && !c.hasNoDevice'
    message = concat('c.text + " " + v.setting', cel(f": {EFFECT}"))
    return (
        Statement("variable", where, message, cel(f"remove the variable; {HELP}")),
        prefix_statement(
            VARIABLE,
            f": {EFFECT}",
            f"!{has_variable(VARIABLE)} && !c.hasNoDevice",
            remedy=f"; {HELP}",
        ),
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
