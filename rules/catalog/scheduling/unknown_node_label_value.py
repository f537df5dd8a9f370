"""A pod selects a node label, or a value of one, that no node has.

What it does
------------
Checks `nodeSelector` and the required node affinity of every pod for the labels of nodes that tell
how a node offers its GPUs, such as `ack.node.gpu.schedule`. Finds values that the GPU platform does
not know: `cGPU` for `cgpu`, and labels that differ from such a label by one letter, such as
`ack.node.gpu.scheduler`. The `nodeModes` of a profile list the labels and all their values.

Other labels name models and drivers, and their values grow in number or are those of users. Of
these the rule finds near misses of values that are known:

- `cloud.google.com/gke-accelerator`, `cloud.google.com/gke-tpu-accelerator`, Karpenter's and EKS
  Auto Mode's `instance-gpu-name` and `instance-gpu-manufacturer`, Karpenter's
  `instance-accelerator-name`, and on Azure its `sku-gpu-name` and `sku-gpu-manufacturer`: parts,
  such as `l4`, `nvidia-h100`, `nvidia-tesla` and `tpu-v6e`, another case or punctuation, such as
  `nvidia-L4`, and misspelt words. Another number is another model, which may be new.
- `cloud.google.com/gke-gpu-partition-size`: sizes that no card has, such as `1g.7gb`, and those of
  the A30, which GKE does not offer.
- `cloud.google.com/gke-gpu-driver-version`: everything but `default` and `latest`.
- `cloud.google.com/compute-class: Accelerator` and Huawei's `accelerator: huawei-Ascend910`, in
  pods that ask for a GPU: another case alone, as users may have any other value. These it never
  refuses, because nodes may have that one, too.

Values that a pod excludes or only prefers are not checked, nor pods that have their node, nor more
than the first 500 labels and the first 100 values of a pod: the one behind them is a finding.

Why it matters
--------------
Kubernetes compares values letter by letter and accepts every one. A pod that selects a misspelt
value stays Pending, although nodes with the right one are free.

References
----------
- https://www.alibabacloud.com/help/en/container-service-for-kubernetes/latest/labels-used-by-ack-to-control-gpus
- NVIDIA/k8s-device-plugin, `docs/gpu-feature-discovery/README.md`
- https://cloud.google.com/kubernetes-engine/docs/how-to/timesharing-gpus
- https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
- https://cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus
- https://karpenter.sh/docs/reference/instance-types/
- Azure/karpenter-provider-azure, `pkg/providers/instancetype/instancetypes.go`
- https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""

import re

from rules.base.json_values import Path, display
from rules.base.text_matching import has_placeholder, nearest_word
from rules.base.traits import NODE_SELECTION
from rules.gpu.devices import pod_requests_gpu
from rules.placement.node_labels import (
    FEWER_LABELS_ADVICE,
    FEWER_VALUES_ADVICE,
    MAX_COMPARED_LABELS,
    MAX_COMPARED_VALUES,
    NO_NODE,
    advice_on_unknown_value,
    misspelt_mode_label,
    selected_labels,
    selected_modes,
    selected_values,
)
from rules.placement.selected_cards import GKE_PARTITION_SIZE
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

SIZE_PATTERN = r"([0-9])g\.([0-9]{1,3})gb([.+-].*)?"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each misspelt label and each unknown value that the pod selects, each once."""
    if pod.is_placed:
        return
    yield from _misspelt_labels(pod)
    yield from _unknown_modes(pod)
    yield from _near_misses(pod)


def _misspelt_labels(pod: Pod) -> Findings:
    compared: set[str] = set()
    for path, label in selected_labels(pod):
        if label in compared:
            continue
        if len(compared) == MAX_COMPARED_LABELS:
            yield _too_many_labels(path, label)
            break
        compared.add(label)
        right = misspelt_mode_label(pod.profile, label)
        if right is not None:
            yield Finding(
                path=path,
                key=f"nodes.{label}",
                message=f"the pod selects nodes with the label {display(label)}, which is close to "
                f"{display(right)}, and which no node has",
                help=f"write {right}",
            )


def _unknown_modes(pod: Pod) -> Findings:
    seen: set[tuple[str, str]] = set()
    for path, label, value in selected_modes(pod):
        if (label, value) in seen:
            continue
        if len(seen) == MAX_COMPARED_VALUES:
            yield _too_many(path, label)
            break
        seen.add((label, value))
        advice = advice_on_unknown_value(pod.profile.node_modes[label], value)
        if advice is None and label == GKE_PARTITION_SIZE:
            advice = _advice_on_size(value)
        if advice is not None:
            yield _finding(path, label, value, NO_NODE, advice)


def _finding(path: Path, label: str, value: str, reason: str, advice: str) -> Finding:
    return Finding(
        path=path,
        key=f"nodes.{label}={value}",
        message=f"the pod selects nodes with {label}: {display(value)}, {reason}",
        help=advice,
    )


def _too_many_labels(path: Path, label: str) -> Finding:
    return Finding(
        path=path,
        key=f"nodes.{label}",
        message=f"the pod selects nodes by more than {MAX_COMPARED_LABELS} labels; "
        f"{display(label)} and those behind it are not checked",
        help=FEWER_LABELS_ADVICE,
    )


def _too_many(path: Path, label: str) -> Finding:
    return Finding(
        path=path,
        key=f"nodes.{label}",
        message=f"the pod selects nodes by more than {MAX_COMPARED_VALUES} values of labels; this "
        f"one of {label} and those behind it are not checked",
        help=FEWER_VALUES_ADVICE,
    )


def _advice_on_size(size: str) -> str | None:
    """Return what to write for a size of partitions; None if a card of GKE may have it."""
    from rules.gpu.resource_names import fault_of_name  # noqa: PLC0415  # rarely needed
    from rules.profile.platforms.gke import PARTITION_SIZES, SIZES_OF_OTHER_CARDS  # noqa: PLC0415  # the same

    if size in PARTITION_SIZES or has_placeholder(size):
        return None
    form = re.fullmatch(SIZE_PATTERN, size)
    if form is None:
        nearest = nearest_word(size, sorted(PARTITION_SIZES))
        return f"write {nearest}" if nearest else "write a size such as 1g.5gb"
    if size not in SIZES_OF_OTHER_CARDS and fault_of_name(f"nvidia.com/mig-{size}") is None:
        return None
    slices, memory = form[1], int(form[2])
    sizes = [known for known in PARTITION_SIZES if known.startswith(f"{slices}g.")]
    nearest = min(sizes, key=lambda known: (abs(_memory(known) - memory), known), default=None)
    return f"write a size that the cards have, such as {nearest or '1g.5gb'}"


def _memory(size: str) -> int:
    return int(size.partition(".")[2].removesuffix("gb"))


def _near_misses(pod: Pod) -> Findings:
    from rules.profile.platforms.label_values import LABELS, near_miss  # noqa: PLC0415  # rarely needed

    seen: set[tuple[str, str]] = set()
    for path, label, value in selected_values(pod, LABELS):
        if (label, value) in seen:
            continue
        if len(seen) == MAX_COMPARED_VALUES:
            yield _too_many(path, label)
            break
        seen.add((label, value))
        found = near_miss(label, value)
        if found is None or (found.may_be_of_users and not pod_requests_gpu(pod)):
            continue
        finding = _finding(path, label, value, found.reason or NO_NODE, found.advice)
        yield finding._replace(action=Action.WARN) if found.may_be_of_users else finding


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION,))
