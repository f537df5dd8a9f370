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
other. NVIDIA's toolkit gives a container every channel that the variable names, and no scheduler
counts them. With a ComputeDomain of NVIDIA's DRA driver, each workload gets a channel of its own
through a resource claim and needs no variable.

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
from rules.in_process.expression import all_of, any_of, not_, text
from rules.in_process.statement import CONTAINER, VARIABLE, Statement
from rules.in_process.variables import has_variable, prefix_statement
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

CHANNELS = "NVIDIA_IMEX_CHANNELS"
EFFECT = (
    ": beside a GPU, NVIDIA's runtime gives it channels to the GPU memory of other nodes that "
    "nobody counted"
)
HELP = "use the resource claim of a ComputeDomain, which injects a channel of its own"
ADVICE = f"remove the variable; {HELP}"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each container that names channels itself, or may take their names from elsewhere."""
    for container in pod.containers:
        if certainly_gets_no_gpu(container):
            continue
        if CHANNELS in container.env:
            if container.env_value(CHANNELS) == "":
                continue
            yield Finding(
                path=container.env_path(CHANNELS),
                key=CHANNELS,
                message=_message(container, describe_setting(container, CHANNELS)),
                container=container,
                help=ADVICE,
                fix=Fix(f"remove {CHANNELS}", remove_edits(container, CHANNELS)),
            )
        else:
            yield from prefix_findings(container, CHANNELS, effect=EFFECT, remedy=f"; {HELP}")


def _message(container: object, setting: object) -> str:
    return f"{container} {setting}{EFFECT}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    is_set = all_of(v.name == CHANNELS, any_of(v.isReference, v.value != ""))
    may_be_prefixed = all_of(not_(has_variable(CHANNELS)), not_(c.hasNoDevice))
    return (
        Statement(
            "variable",
            where=all_of(is_set, not_(c.hasNoDevice)),
            message=text(_message(c.text, v.setting)),
            help=ADVICE,
        ),
        prefix_statement(CHANNELS, EFFECT, may_be_prefixed, remedy=f"; {HELP}"),
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
