"""A pod selects a node label, or a value of one, that no node has.

What it does
------------
Checks `nodeSelector` and the required node affinity of every pod for the labels of nodes that tell
how a node offers its GPUs, such as `ack.node.gpu.schedule`. Finds values that the GPU platform does
not know: `cGPU` for `cgpu`, and labels that differ from such a label by one letter, such as
`ack.node.gpu.scheduler`. The `nodeModes` of a profile list the labels and all their values. Of
GKE's label for the model of the GPU, whose values grow in number, it finds parts of known ones,
such as `nvidia-h100`, and misspelt ones, such as `nvidia-L4`.

Values that a pod excludes or only prefers are not checked, nor pods that have their node.

Why it matters
--------------
Kubernetes compares values letter by letter and accepts every one. A pod that selects a misspelt
value stays Pending, although nodes with the right one are free.

References
----------
- https://www.alibabacloud.com/help/en/container-service-for-kubernetes/latest/labels-used-by-ack-to-control-gpus
- NVIDIA/k8s-device-plugin, `docs/gpu-feature-discovery/README.md`
- https://cloud.google.com/kubernetes-engine/docs/how-to/timesharing-gpus
"""

from rules.base.json_values import display
from rules.base.traits import NODE_SELECTION
from rules.placement.node_labels import (
    advice_on_unknown_value,
    misspelt_mode_label,
    selected_labels,
    selected_modes,
    selected_values,
)
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

GKE_MODEL_LABEL = "cloud.google.com/gke-accelerator"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each misspelt label and each unknown value that the pod selects, each once."""
    if pod.is_placed:
        return
    misspelt: set[str] = set()
    for path, label in selected_labels(pod):
        right = None if label in misspelt else misspelt_mode_label(pod.profile, label)
        if right is not None:
            misspelt.add(label)
            yield Finding(
                path=path,
                key=f"nodes.{label}",
                message=f"the pod selects nodes with the label {display(label)}, which is close to "
                f"{display(right)}, and which no node has",
                help=f"write {right}",
            )
    reported: set[tuple[str, str]] = set()
    for path, label, value in selected_modes(pod):
        if (label, value) in reported:
            continue
        reported.add((label, value))
        advice = advice_on_unknown_value(pod.profile.node_modes[label], value)
        if advice is None:
            continue
        message = f"the pod selects nodes with {label}: {display(value)}, a value that no node has"
        yield Finding(path=path, key=f"nodes.{label}={value}", message=message, help=advice)
    yield from _findings_of_models(pod)


def _findings_of_models(pod: Pod) -> Findings:
    for path, label, value in selected_values(pod, (GKE_MODEL_LABEL,)):
        from rules.profile.platforms.gke import longer_models, nearest_model  # noqa: PLC0415  # rarely needed

        selected = f"the pod selects nodes with {label}: {display(value)}"
        if models := longer_models(value):
            message = f"{selected}, and GKE's name for this GPU is longer"
        elif model := nearest_model(value):
            models, message = [model], f"{selected}, a value that no node has"
        else:
            continue
        advice = f"write {' or '.join(models)}"
        yield Finding(path=path, key=f"nodes.{label}={value}", message=message, help=advice)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION,))
