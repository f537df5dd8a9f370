"""A ConfigMap that a container takes its variables from sets a visible-devices variable.

What it does
------------
Looks into the ConfigMaps that containers name in `envFrom` without a `prefix`, if they are among
the manifests of the same run, or in the webhook's inventory. Finds `NVIDIA_VISIBLE_DEVICES`, the
corresponding variables of other makers, and those that the profile lists as alternatives, with a
value that grants GPUs, or in a container to which a device plugin gives a GPU, with any value. A
variable that `env` sets is not found: it wins over `envFrom`. For an alternative such as
`DOCKER_RESOURCE_GPU`, which few nodes obey, the rule only warns.

The webhook knows the variables of ConfigMaps only where its inventory is told to have them. For
entries with a prefix there is `visible-devices-envfrom`, and `voidEveryContainer: true` closes this
way for all containers that request no GPU.

Why it matters
--------------
The variable makes the container runtime inject GPUs that the scheduler has not counted, and the pod
does not show it. In a container that requests a GPU, the variable replaces the device plugin's
choice.

Fix safety
----------
In a container without a GPU, or with only resource claims, the fix adds an explicit value to `env`,
which wins over `envFrom`. It needs `fix: true` in the policy, because a user wrote the variable. In
a container to which a device plugin gives a GPU there is no fix: remove the key.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.traits import ENV_FROM, KNOWN_CONFIG_MAPS
from rules.gpu.devices import describe_request, requests_gpu, uses_device_plugin
from rules.gpu.visibility import (
    ALTERNATIVE_VARIABLE,
    Visibility,
    display_variable,
    is_for_requested_gpu,
    is_platform_config_map,
    parse_visibility,
)
from rules.gpu.visibility_edits import hide_edits, hide_fix
from rules.inventory.inventory import ConfigMap
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

REFERENCE_FIELD = "configMapRef"
HARMLESS_VISIBILITIES = (Visibility.HIDDEN, Visibility.DRIVER_ONLY)


def check(pod: Pod, context: Context) -> Findings:
    """Yield each variable that a known ConfigMap sets, and that `env` does not override."""
    for container in pod.containers:
        found: dict[str, Finding] = {}  # of entries that set the same variable the last one counts
        for index, source in as_objects(container.raw.get("envFrom")):
            name = as_text(as_object(source.get(REFERENCE_FIELD)).get("name"))
            if source.get("prefix") or is_platform_config_map(pod, container, name):
                continue
            config_map = context.inventory.find(ConfigMap, name, pod.object.namespace)
            for variable, value in config_map.variables.items() if config_map else ():
                found.pop(variable, None)
                if _may_give_gpus(container, variable, value):
                    place = (*container.path, "envFrom", index)
                    found[variable] = _finding(container, place, name, variable, value)
        yield from found.values()


def _may_give_gpus(container: Container, variable: str, value: str) -> bool:
    if variable in container.env:
        return False
    known = container.profile.visible_variable(variable) or ALTERNATIVE_VARIABLE
    replaces_choice = uses_device_plugin(container) and is_for_requested_gpu(known, container)
    return replaces_choice or parse_visibility(value, known) not in HARMLESS_VISIBILITIES


def _finding(
    container: Container, place: tuple[str | int, ...], name: str, variable: str, value: str
) -> Finding:
    subject = (
        f"{container} {describe_request(container)} and"
        if requests_gpu(container)
        else str(container)
    )
    has_fix = not uses_device_plugin(container) and hide_edits(container, variable)
    return Finding(
        path=(*place, REFERENCE_FIELD, "name"),
        key=f"envFrom.{variable}",
        message=(
            f"{subject} takes all variables of the ConfigMap {display(name)}, which sets "
            f"{display_variable(variable)}={display(value)}"
        ),
        container=container,
        help=f"remove the key {display_variable(variable)} from the ConfigMap",
        fix=hide_fix(container, variable) if has_fix else None,
        action=Action.DENY if container.profile.visible_variable(variable) else Action.WARN,
    )


in_process = "it looks into ConfigMaps, which are other objects"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(ENV_FROM, KNOWN_CONFIG_MAPS))
