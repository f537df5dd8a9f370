"""A pod annotation asks NVIDIA's NRI plugin for devices.

What it does
------------
Finds the pod annotations that the NRI plugin of NVIDIA's container toolkit reads:
`nvidia.cdi.k8s.io/container.<name>`, `nvidia.cdi.k8s.io/pod` and `nvidia.cdi.k8s.io`. The plugin
uses only the first of the three that applies to a container. The rule still reports each of them:
a container that is added later, such as an ephemeral one, may use the others.

Why it matters
--------------
Where the plugin is enabled, it injects the devices that the annotation names, in any namespace,
without a request that the scheduler could count. `nvidia.com/gpu=all` is every GPU of the node.

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
"""

from rules.base.json_values import as_text, display, remove
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.visibility_edits import REQUEST_IN_LIMITS_ADVICE
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

DOMAIN = "nvidia.cdi.k8s.io"
FOR_POD = f"{DOMAIN}/pod"
FOR_CONTAINER = f"{DOMAIN}/container."


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each annotation that makes the plugin inject devices."""
    for key, value in pod.annotations.items():
        devices = as_text(value)
        if key.startswith(DOMAIN) and _is_nri_key(key) and devices.strip(" ,"):
            yield _finding(pod, key, devices)


def _is_nri_key(key: str) -> bool:
    return key in (DOMAIN, FOR_POD) or key.startswith(FOR_CONTAINER)


def _finding(pod: Pod, key: str, devices: str) -> Finding:
    path = (*pod.metadata_path, "annotations", key)
    target = "every container"
    if key.startswith(FOR_CONTAINER):
        target = f"the container {display(key.removeprefix(FOR_CONTAINER))}"
    message = (
        f"the pod's annotation {display(key)} gives {target} the devices {display(devices)}, "
        "which the scheduler has not counted"
    )
    advice = f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}"
    fix = Fix(f"remove the annotation {display(key)}", (remove(path),))
    return Finding(path=path, key=key, message=message, help=advice, fix=fix)


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,))
