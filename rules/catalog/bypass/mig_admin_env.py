"""A container asks to administer the MIG devices of the node.

What it does
------------
Finds `NVIDIA_MIG_CONFIG_DEVICES` and `NVIDIA_MIG_MONITOR_DEVICES` in a container's `env` with any
value except an empty one. A `valueFrom` reference counts too, and in a container with the
capability `SYS_ADMIN` a prefix in `envFrom` that a key can complete to the name.

Why it matters
--------------
With the first variable a container can repartition the MIG devices of the node. With the second
it can watch what all tenants run on them. NVIDIA's toolkit grants both to containers with the
capability `SYS_ADMIN`, which privileged containers have. It does not start a container that sets
the variable without the capability.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: gpuward does not know why the
user wrote it.

References
----------
- NVIDIA container toolkit, `cmd/nvidia-container-runtime-hook/container_config.go`
"""

from rules.base.traits import GPU_VARIABLE
from rules.gpu.visibility import describe_setting, prefix_findings
from rules.gpu.visibility_edits import remove_edits
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

POWERS = {"NVIDIA_MIG_CONFIG_DEVICES": "repartition", "NVIDIA_MIG_MONITOR_DEVICES": "watch"}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable that requests the right to configure or monitor MIG devices."""
    for container in pod.containers:
        for variable in POWERS:
            if variable in container.env and container.value_of(variable) != "":
                yield _finding(container, variable)
            elif variable not in container.env and container.has_sys_admin:
                yield from prefix_findings(container, variable, effect=f": {_effect(variable)}")


def _effect(variable: str) -> str:
    return f"with its capability SYS_ADMIN it can {POWERS[variable]} everybody's MIG devices"


def _finding(container: Container, variable: str) -> Finding:
    effect = (
        _effect(variable)
        if container.has_sys_admin
        else "without the capability SYS_ADMIN NVIDIA's runtime refuses to start it"
    )
    return Finding(
        path=container.env_path(variable),
        key=variable,
        message=f"{container} {describe_setting(container, variable)}: {effect}",
        container=container,
        help="remove the variable: only the components of the GPU operator need it",
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
    )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_VARIABLE,))
