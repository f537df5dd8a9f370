"""A ConfigMap or Secret that a container takes its variables from sets a visible-devices variable.

What it does
------------
Looks into the ConfigMaps and Secrets that containers name in `envFrom` without a `prefix`, if they
are among the manifests of the same run, and into the ConfigMaps in the webhook's inventory. Finds
`NVIDIA_VISIBLE_DEVICES`, the corresponding variables of other makers, and those that the profile
lists as alternatives, with a value that grants GPUs, or in a container to which a device plugin
gives a GPU, with any value. A variable that `env` sets is not found: it wins over `envFrom`. For an
alternative such as `DOCKER_RESOURCE_GPU`, which few nodes obey, the rule only warns, and so it does
for `CUDA_VERSION` where [legacy-cuda-version](legacy-cuda-version.md) would warn if `env` set it.

The webhook knows the variables of ConfigMaps only where its inventory is told to have them, and
never those of Secrets, which it may not read. The linter shows no value of a Secret. For entries
with a prefix there is `visible-devices-envfrom`, and `voidEveryContainer: true` closes this way for
all containers that request no GPU.

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

from collections.abc import Mapping
from typing import NamedTuple

from rules.base.json_values import Path, as_object, as_objects, as_text, display
from rules.base.traits import ENV_FROM, KNOWN_CONFIG_MAPS, LEGACY_VARIABLES
from rules.gpu.devices import (
    describe_request,
    name_of_unknown_device,
    requests_gpu,
    uses_device_plugin,
)
from rules.gpu.visibility import (
    ALTERNATIVE_VARIABLE,
    CUDA_VERSION,
    NVIDIA_REQUIRE_CUDA,
    NVIDIA_VISIBLE_DEVICES,
    Visibility,
    display_variable,
    hide_edits,
    hide_fix,
    is_for_requested_gpu,
    is_platform_config_map,
    is_unset,
    parse_visibility,
)
from rules.inventory.inventory import ConfigMap, Secret
from rules.placement.gpu_nodes import excludes_nvidia
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# The fields of an entry of `envFrom` that name an object, and the kinds of the objects.
KIND_BY_FIELD: Mapping[str, type[ConfigMap | Secret]] = {
    "configMapRef": ConfigMap,
    "secretRef": Secret,
}
HARMLESS_VISIBILITIES = (Visibility.HIDDEN, Visibility.DRIVER_ONLY)


class _Setting(NamedTuple):
    """A variable that a container takes from an object: the path of the reference, and the value.

    `owner` is the kind of the object and its name.
    """

    path: Path
    kind: type[ConfigMap | Secret]
    owner: str
    value: str


def check(pod: Pod, context: Context) -> Findings:
    """Yield each variable that a known object sets, and that `env` does not override."""
    for container in pod.containers:
        settings = _settings(pod, container, context)
        for variable, setting in settings.items():
            if variable not in LEGACY_VARIABLES and _may_give_gpus(
                container, variable, setting.value
            ):
                yield _finding(container, variable, setting)
        if _looks_legacy(container, settings) and not excludes_nvidia(pod):
            yield _legacy_finding(container, settings[CUDA_VERSION])


def _settings(pod: Pod, container: Container, context: Context) -> dict[str, _Setting]:
    """The variables that known objects set, without those that `env` sets."""
    found: dict[str, _Setting] = {}
    for index, source in as_objects(container.raw.get("envFrom")):
        for field, kind in KIND_BY_FIELD.items():
            name = as_text(as_object(source.get(field)).get("name"))
            if source.get("prefix") or not name:
                continue
            if kind is ConfigMap and is_platform_config_map(pod, container, name):
                continue
            known = context.inventory.find(kind, name, pod.object.namespace)
            path = (*container.path, "envFrom", index, field, "name")
            for variable, value in known.variables.items() if known else ():
                # Of entries that set the same variable the last one counts.
                found.pop(variable, None)
                if variable not in container.env:
                    owner = f"{kind.__name__} {display(name)}"
                    found[variable] = _Setting(path, kind, owner, value)
    return found


def _may_give_gpus(container: Container, variable: str, value: str) -> bool:
    known = container.profile.visible_variable(variable) or ALTERNATIVE_VARIABLE
    replaces_choice = uses_device_plugin(container) and is_for_requested_gpu(known, container)
    return replaces_choice or parse_visibility(value, known) not in HARMLESS_VISIBILITIES


def _finding(container: Container, variable: str, setting: _Setting) -> Finding:
    subject = (
        f"{container} {describe_request(container)} and"
        if requests_gpu(container)
        else str(container)
    )
    has_fix = not uses_device_plugin(container) and hide_edits(container, variable)
    value = f"={display(setting.value)}" if setting.kind is ConfigMap else ""
    return Finding(
        path=setting.path,
        key=f"envFrom.{variable}",
        message=(
            f"{subject} takes all variables of the {setting.owner}, which sets "
            f"{display_variable(variable)}{value}"
        ),
        container=container,
        help=f"remove the key {display_variable(variable)} from the {setting.kind.__name__}",
        fix=hide_fix(container, variable) if has_fix else None,
        action=Action.DENY if container.profile.visible_variable(variable) else Action.WARN,
    )


def _looks_legacy(container: Container, settings: Mapping[str, _Setting]) -> bool:
    """Return whether an object makes the image look older than NVIDIA_VISIBLE_DEVICES.

    `legacy-cuda-version` reports a variable of the container itself.
    """
    required = settings.get(NVIDIA_REQUIRE_CUDA)
    return (
        CUDA_VERSION in settings
        and bool(settings[CUDA_VERSION].value)
        and not (required and required.value)
        and not container.env_value(NVIDIA_REQUIRE_CUDA)
        and NVIDIA_VISIBLE_DEVICES not in settings
        and is_unset(container)
        and not uses_device_plugin(container)
    )


def _legacy_finding(container: Container, setting: _Setting) -> Finding:
    return Finding(
        path=setting.path,
        key=f"envFrom.{CUDA_VERSION}",
        message=(
            f"{container} takes all variables of the {setting.owner}, which sets {CUDA_VERSION}, "
            f"without {NVIDIA_REQUIRE_CUDA} or {NVIDIA_VISIBLE_DEVICES} and "
            f"{describe_request(container)}: NVIDIA's runtime may give it every GPU of the node"
        ),
        container=container,
        help=f"remove the key {CUDA_VERSION} from the {setting.kind.__name__}, or add "
        f"{NVIDIA_VISIBLE_DEVICES} with the value void",
        fix=None if name_of_unknown_device(container) else hide_fix(container),
        action=Action.WARN,
    )


in_process = "it looks into ConfigMaps and Secrets, which are other objects"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(ENV_FROM, KNOWN_CONFIG_MAPS))
