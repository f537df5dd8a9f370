"""A pod selects nodes that do not offer the GPU resource that it asks for.

What it does
------------
Some labels tell how a node offers its GPUs, such as `ack.node.gpu.schedule`; the `nodeModes` of a
profile list them. Compares their values in `nodeSelector` and in the required node affinity with
the GPU resources that the pod requests. Finds a resource that nodes with none of the selected
values offer: `nvidia.com/gpu` on nodes with the value `cgpu`, which offer `aliyun.com/gpu-mem`.
Resources that `nodeModes` do not mention, and values of which they do not say what such nodes
offer, are not compared, nor are pods that have their node. `unknown-node-label-value` reports
values that `nodeModes` do not list.

Why it matters
--------------
The label decides which resource a node offers. No node with that value offers the one that the pod
asks for, so the pod stays Pending, although GPUs are free.

References
----------
- https://www.alibabacloud.com/help/en/container-service-for-kubernetes/latest/labels-used-by-ack-to-control-gpus
- NVIDIA/k8s-device-plugin, `docs/gpu-feature-discovery/README.md`
"""

from collections.abc import Mapping
from itertools import chain
from typing import TypeAlias

from rules.base.json_values import Path, display
from rules.base.text_matching import matches_any
from rules.base.traits import GPU_RESOURCE, NODE_SELECTION
from rules.gpu.devices import requested_resources
from rules.placement.node_labels import (
    allowed_values,
    offered_resources,
    selected_modes,
    values_without_wildcard,
)
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

ResourcesByMode: TypeAlias = Mapping[str, tuple[str, ...]]


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each label of which no selected value offers what the pod requests."""
    if pod.is_placed:
        return
    places: dict[str, Path] = {}
    for path, label, _ in selected_modes(pod):
        places.setdefault(label, path)
    for label, path in places.items():
        modes = pod.profile.node_modes[label]
        everything = tuple(chain.from_iterable(modes.values()))
        wanted = [name for name in requested_resources(pod) if matches_any(everything, name)]
        stated = (value for value in values_without_wildcard(modes) if modes[value])
        fitting = [value for value in stated if _may_offer(modes, value, wanted)]
        selected = allowed_values(pod, label)
        # If no mode fits, the fault is what the pod asks for: `mixed-families` reports it.
        if not (wanted and fitting and selected):
            continue
        if not any(_may_offer(modes, value, wanted) for value in selected):
            chosen = sorted(selected, key=[*modes, *sorted(selected)].index)
            yield _finding((path, label), modes, wanted, fitting, chosen)


def _may_offer(modes: ResourcesByMode, value: str, wanted: list[str]) -> bool:
    """Return whether nodes with `value` offer all `wanted` resources; True if that is not known."""
    offered = offered_resources(modes, value)
    return not offered or all(matches_any(offered, name) for name in wanted)


def _finding(
    place: tuple[Path, str],
    modes: ResourcesByMode,
    wanted: list[str],
    fitting: list[str],
    chosen: list[str],
) -> Finding:
    path, label = place
    lists = (offered_resources(modes, value) or () for value in chosen)
    offered = tuple(dict.fromkeys(chain.from_iterable(lists)))
    missing = [name for name in wanted if not matches_any(offered, name)] or wanted
    message = (
        f"the pod asks for {' and '.join(map(display, missing))} and selects nodes with "
        f"{label}: {' or '.join(chosen)}, which offer only {', '.join(offered)}"
    )
    fewest = min(len(modes[value]) for value in fitting)  # nothing more than what is asked for
    nearest = " or ".join(value for value in fitting if len(modes[value]) == fewest)
    advice = f"select {label}: {nearest}, or ask only for what the selected nodes offer"
    return Finding(path=path, key=f"nodes.{label}", message=message, help=advice)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION, GPU_RESOURCE))
