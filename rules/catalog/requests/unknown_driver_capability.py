"""A GPU container asks for a driver capability that NVIDIA's container toolkit does not know.

What it does
------------
Reads `NVIDIA_DRIVER_CAPABILITIES` of containers that request a GPU of NVIDIA. Finds words other
than `compute`, `compat32`, `graphics`, `utility`, `video`, `display`, `ngx` and `all`. Capitals
count; blanks around a word do not.

Not reported: values that the manifest does not show, and lists with `all`.

Why it matters
--------------
The variable says which parts of the driver the container gets. The toolkit's hook stops at a word
that it does not know, with `unsupported capabilities found`, and the container does not start.
Where a node injects its GPUs by CDI, the hook does not run.

References
----------
- https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
- NVIDIA/nvidia-container-toolkit, `internal/config/image/capabilities.go`,
  `cmd/nvidia-container-runtime-hook/container_config.go` (`getDriverCapabilities`)
"""

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import GPU_RESOURCE, GPU_VARIABLE
from rules.gpu.commands.of_containers import expand_variables
from rules.gpu.devices import request_of
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_VARIABLE, _VENDOR, _ALL_WORD = "NVIDIA_DRIVER_CAPABILITIES", "nvidia", "all"
_KNOWN_CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "compat32", "ngx")
# Characters of a word that may be a misspelt one.
_MAX_WORD_CHARACTERS = 20


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the first unknown capability of each container."""
    for container in pod.containers:
        if _VARIABLE not in container.env or not _gets_nvidia_gpu(container):
            continue
        value = expand_variables(container, container.env_value(_VARIABLE) or "") or ""
        words = [word for word in map(str.strip, value.split(",")) if word]
        unknown = [word for word in words if word not in _KNOWN_CAPABILITIES]
        if not unknown or _ALL_WORD in words or has_placeholder(value):
            continue
        right = (
            nearest_word(unknown[0], (*_KNOWN_CAPABILITIES, _ALL_WORD))
            if len(unknown[0]) <= _MAX_WORD_CHARACTERS
            else None
        )
        yield Finding(
            path=container.env_path(_VARIABLE),
            key=_VARIABLE,
            message=f"{container} sets {_VARIABLE} to {display(value)}, and NVIDIA's container "
            f"toolkit knows no capability {display(unknown[0])}",
            container=container,
            help=f"write {right}"
            if right
            else f"write some of {', '.join(_KNOWN_CAPABILITIES)}, or {_ALL_WORD}",
        )


def _gets_nvidia_gpu(container: Container) -> bool:
    request = request_of(container)
    return _VENDOR in request.vendors and request.is_from_plugin


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_VARIABLE, GPU_RESOURCE))
