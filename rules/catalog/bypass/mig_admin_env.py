"""A container asks to administer the MIG devices of the node.

What it does
------------
Finds `NVIDIA_MIG_CONFIG_DEVICES` and `NVIDIA_MIG_MONITOR_DEVICES` in a container's `env` with any
value except an empty one. A `valueFrom` reference counts too, and in a container with the
capability `SYS_ADMIN` a prefix in `envFrom` that a key can complete to the name. A container that
requests no GPU, and whose `NVIDIA_VISIBLE_DEVICES` is `void` or empty, is not reported: there the
toolkit reads neither.

Why it matters
--------------
With the first variable a container can repartition the MIG devices of the node. With the second
it can watch what all tenants run on them. NVIDIA's toolkit grants both to containers that get a
GPU and have the capability `SYS_ADMIN`, which privileged containers have. Without the capability
it does not start a container that gets a GPU and sets the variable. In mode `cdi`, with CDI
specifications that were written before, it reads neither variable.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: gpuward does not know why the
user wrote it.

References
----------
- NVIDIA container toolkit, `cmd/nvidia-container-runtime-hook/container_config.go`,
  `internal/modifier/cdi.go` (`migCapsDevices`)
"""

from rules.base.traits import GPU_VARIABLE, OTHER_GPU_VARIABLE
from rules.gpu.visibility import (
    certainly_gets_no_gpu,
    describe_setting,
    prefix_findings,
    remove_edits,
)
from rules.in_process.expression import all_of, any_of, choose, not_, text
from rules.in_process.statement import CONTAINER, VARIABLE, Statement
from rules.in_process.variables import has_variable, prefix_statement
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

POWER_VERBS = {"NVIDIA_MIG_CONFIG_DEVICES": "repartition", "NVIDIA_MIG_MONITOR_DEVICES": "watch"}
WITHOUT_SYS_ADMIN = (
    "with any GPU, NVIDIA's runtime refuses to start it without the capability SYS_ADMIN"
)
ADVICE = "remove the variable: only the components of the GPU operator need it"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable that requests the right to configure or monitor MIG devices."""
    for container in pod.containers:
        if certainly_gets_no_gpu(container):
            continue
        for variable in POWER_VERBS:
            if variable in container.env and container.env_value(variable) != "":
                yield _finding(container, variable)
            elif variable not in container.env and container.has_sys_admin:
                yield from prefix_findings(container, variable, effect=f": {_effect(variable)}")


def _effect(variable: str) -> str:
    power = POWER_VERBS[variable]
    return f"with any GPU, its capability SYS_ADMIN lets it {power} everybody's MIG devices"


def _finding(container: Container, variable: str) -> Finding:
    effect = _effect(variable) if container.has_sys_admin else WITHOUT_SYS_ADMIN
    return Finding(
        path=container.env_path(variable),
        key=variable,
        message=_message(container, describe_setting(container, variable), effect),
        container=container,
        help=ADVICE,
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
    )


def _message(container: object, setting: object, effect: object) -> str:
    return f"{container} {setting}: {effect}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    c, v = CONTAINER, VARIABLE
    statements = []
    for variable in POWER_VERBS:
        effect = choose((c.sysAdmin, _effect(variable)), otherwise=WITHOUT_SYS_ADMIN)
        is_set = all_of(v.name == variable, any_of(v.isReference, v.value != ""))
        may_be_prefixed = all_of(not_(has_variable(variable)), c.sysAdmin, not_(c.hasNoDevice))
        statements += [
            Statement(
                "variable",
                where=all_of(is_set, not_(c.hasNoDevice)),
                message=text(_message(c.text, v.setting, effect)),
                help=ADVICE,
            ),
            prefix_statement(variable, f": {_effect(variable)}", may_be_prefixed),
        ]
    return tuple(statements)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE, OTHER_GPU_VARIABLE))
