"""Two NVIDIADriver objects select the same nodes.

What it does
------------
Compares the `nodeSelector` of each NVIDIADriver of NVIDIA's operator with those of the others among
the manifests of the same run. Finds two of which one selects every node of the other: without a
`nodeSelector` it selects every node with a GPU. If only nodes with the labels of both would be
selected twice, it is a note. Of several such NVIDIADrivers the surest is named, and of more than
100 among the manifests the first 100 are compared. One with `default: true` is for the nodes that
are left, and overlaps none.

Why it matters
--------------
The operator looks for nodes that two NVIDIADrivers select. If there is one, it reports a conflict
in their status (`conflicting NVIDIADriver NodeSelectors found`) and goes no further with any of
them: no node gets a driver, or a new version.

References
----------
- https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-configuration.html
- NVIDIA/gpu-operator, `internal/validator/validator.go`,
  `api/nvidia/v1alpha1/nvidiadriver_types.go`
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from rules.base.json_values import as_object, display
from rules.base.traits import GPU_OPERATOR
from rules.inventory.inventory import NVIDIADriver
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

_KIND = "NVIDIADriver"
_FIELD = "nodeSelector"
# Each is compared with so many others; a cluster has a few.
_MAX_COMPARED = 100
# The nodes of an NVIDIADriver without a selector have it, and so has every node with a GPU.
_LABEL_OF_GPU_NODES = ("nvidia.com/gpu.present", "true")


def check(driver: KubernetesObject, context: Context) -> Findings:
    """Yield the driver if another one selects the same nodes."""
    spec = as_object(driver.raw.get("spec"))
    if driver.object.kind != _KIND or context.is_patch or spec.get("default") is True:
        return
    own = _labels(as_object(spec.get(_FIELD)))
    others = islice(context.inventory.all_in(NVIDIADriver, None).items(), _MAX_COMPARED)
    overlaps = []
    for name, other in others:
        labels = _labels(other.node_selector)
        if name != driver.object.name and not other.is_default and _may_be_on_one_node(own, labels):
            overlaps.append((not (own <= labels or labels <= own), name))
    if not overlaps:
        return
    is_unsure, name = min(overlaps)
    shared = "nodes with the labels of both" if is_unsure else "nodes of this one"
    yield Finding(
        path=(*driver.path, "spec", _FIELD),
        key=f"{_FIELD}.{name}",
        message=f"the NVIDIADriver {display(name)} selects {shared} as well: if there is "
        "such a node, the operator reports a conflict and installs no driver by either",
        help="select every node by one of them, for example by different values of one label",
        action=Action.AUDIT if is_unsure else Action.WARN,
    )


def _labels(selector: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((key, str(value)) for key, value in selector.items()) - {_LABEL_OF_GPU_NODES}


def _may_be_on_one_node(one: frozenset[tuple[str, str]], other: frozenset[tuple[str, str]]) -> bool:
    values = dict(one)
    return all(values.get(key, value) == value for key, value in other)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU_OPERATOR,))
