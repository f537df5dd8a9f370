"""A pod annotation asks NVIDIA's NRI plugin, or NVIDIA's runtime on CRI-O, for devices.

What it does
------------
Finds the pod annotations that the NRI plugin of NVIDIA's container toolkit reads:
`nvidia.cdi.k8s.io/container.<name>`, `nvidia.cdi.k8s.io/pod` and `nvidia.cdi.k8s.io`. The plugin
uses only the first of the three that applies to a container. The rule still reports each of them:
a container that is added later, such as an ephemeral one, may use the others. It reports every
other key that begins with `nvidia.cdi.k8s.io/` as well.

Why it matters
--------------
Where the plugin is enabled, it injects the devices that the annotation names, in any namespace,
without a request that the scheduler could count. `nvidia.com/gpu=all` is every GPU of the node.

Without the plugin, NVIDIA's runtime reads every key with this prefix if the GPU operator, up to
25.3, has enabled CDI. containerd keeps annotations of a pod from the runtime. CRI-O hands them on.

The toolkit (since 1.19) protects only names with `management.nvidia.com/gpu`, which it accepts
only in its own namespaces. The GPU operator's own pods carry such an annotation. They are
components of the profile, and no rule checks components.

Fix safety
----------
The fix removes the annotation only if the policy says `fix: true`: a refusal is clearer than a
program that silently sees no GPU.

References
----------
- NVIDIA container toolkit, `cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go`
- containerd NRI, `pkg/plugin`, `GetEffectiveAnnotation`
- NVIDIA GPU operator 23.6 to 25.3, `controllers/object_controls.go`
- cri-o/cri-o, `internal/factory/container`, `SpecAddAnnotations`
"""

from rules.base.json_values import as_text, display, remove
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.in_process.expression import OBJECT, all_of, any_of, choose, is_in, text
from rules.in_process.statement import KEY, Statement, shown
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

DOMAIN = "nvidia.cdi.k8s.io"
FOR_POD = f"{DOMAIN}/pod"
FOR_CONTAINER = f"{DOMAIN}/container."
EVERY_CONTAINER, ON_NODES_WITH_CRIO = "every container", " on a node with CRI-O"
ADVICE = f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each annotation that makes the plugin, or the runtime, inject devices."""
    for key, value in pod.annotations.items():
        devices = as_text(value)
        if (key == DOMAIN or key.startswith(f"{DOMAIN}/")) and devices.strip(" ,"):
            yield _finding(pod, key, devices)


def _finding(pod: Pod, key: str, devices: str) -> Finding:
    path = (*pod.metadata_path, "annotations", key)
    is_read_by_plugin = key in (DOMAIN, FOR_POD) or key.startswith(FOR_CONTAINER)
    target = EVERY_CONTAINER if is_read_by_plugin else f"{EVERY_CONTAINER}{ON_NODES_WITH_CRIO}"
    if key.startswith(FOR_CONTAINER):
        target = _container(display(key.removeprefix(FOR_CONTAINER)))
    message = _message(display(key), target, display(devices))
    fix = Fix(f"remove the annotation {display(key)}", (remove(path),))
    return Finding(path=path, key=key, message=message, help=ADVICE, fix=fix)


def _message(key: object, target: object, devices: object) -> str:
    return (
        f"the pod's annotation {key} gives {target} the devices {devices}, "
        "which the scheduler has not counted"
    )


def _container(name: object) -> str:
    return f"the container {name}"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    key, devices = KEY, OBJECT.annotations[KEY]
    is_for_container = key.startsWith(FOR_CONTAINER)
    is_read_by_plugin = any_of(is_in(key, [DOMAIN, FOR_POD]), is_for_container)
    is_read = any_of(key == DOMAIN, key.startsWith(f"{DOMAIN}/"))
    runtime = choose((is_read_by_plugin, ""), otherwise=ON_NODES_WITH_CRIO)
    target = choose(
        (is_for_container, text(_container(shown(key.substring(len(FOR_CONTAINER)))))),
        otherwise=EVERY_CONTAINER + runtime,
    )
    where = all_of(is_read, devices.matches("[^ ,]"))
    message = text(_message(shown(key), target, shown(devices)))
    return (Statement("annotation", where, message, ADVICE),)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,))
