"""A node does not meet what its GPU mode requires.

What it does
------------
Compares a Node that has the label `ack.node.gpu.schedule` with what ACK requires for the mode: the
versions of the kubelet, of the container runtime and of NVIDIA's driver, the operating system, the
card and the region. Versions and operating system are in `status.nodeInfo`, as `kubectl get`
prints it; driver, card and region are in labels. What a node does not state, or ACK's page does not
mention, is not reported. With the profile `ack-registered`, what the page about registered clusters
demands is checked as well.

Why it matters
--------------
The label is accepted on every node. Where cGPU does not support the node, its module is not
installed or does not isolate, and pods that share a card take memory from each other or do not
start. The lists of regions differ: memory is isolated in China (Wulanchabu) and Frankfurt, where
computing power cannot be allocated; in Thailand and China East 2 Finance it is the reverse.

References
----------
- Alibaba Cloud, "Manage the shared GPU scheduling component", limitations
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU", prerequisites and limitations
- Alibaba Cloud, "Shared GPU scheduling in registered clusters", prerequisites
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rules.base.json_values import Path, as_object, as_text, display
from rules.base.traits import NODE
from rules.placement.node_labels import CARD_LABELS, DRIVER_LABELS, MODE_LABEL, REGION_LABELS
from rules.rule import Action, Context, Finding, Findings, KubernetesObject, define_rule

if TYPE_CHECKING:
    from rules.profile.platforms.records import Component, Feature

RUNTIME_COMPONENTS: Mapping[str, "Component"] = {"containerd": "containerd", "docker": "docker"}
NODE_INFO: Path = ("status", "nodeInfo")
KUBELET: Path = (*NODE_INFO, "kubeletVersion")
RUNTIME: Path = (*NODE_INFO, "containerRuntimeVersion")


def check(node: KubernetesObject, _context: Context) -> Findings:
    """Yield each version, system, card or region that the node's mode does not work with."""
    labels = as_object(as_object(node.raw.get("metadata")).get("labels"))
    mode = as_text(labels.get(MODE_LABEL))
    if not mode:
        return
    info = as_object(as_object(node.raw.get("status")).get("nodeInfo"))
    from rules.profile.platforms.ack import (  # noqa: PLC0415  # rarely needed
        REGISTERED_SCHEDULER,
        features_of,
        titles_of_pages_listing,
    )

    is_registered = REGISTERED_SCHEDULER in node.profile.scheduler_names
    features = features_of(mode, as_text(info.get("osImage")), is_registered=is_registered)
    for feature in features:
        for path, fault in (
            *_old_versions(feature, info, labels),
            *_unsupported_places(feature, info, labels),
        ):
            advice = f'see "{feature.source.title}" of {feature.source.publisher}'
            if path[-1] in REGION_LABELS:
                others = titles_of_pages_listing(as_text(labels.get(path[-1])), features)
                advice += f", although {others} lists the region" if others else ""
            yield Finding(
                path=(*node.path, *path),
                key=f"{feature.name}.{path[-1]}",
                message=f"the node has the label {MODE_LABEL}: {mode}, and {fault}",
                help=f"{advice}, or choose another mode",
            )


def _old_versions(
    feature: "Feature", info: Mapping[str, Any], labels: Mapping[str, Any]
) -> Iterator[tuple[Path, str]]:
    from rules.profile.platforms.support import Support, minimum_of, version_support  # noqa: PLC0415

    runtime, _, runtime_version = as_text(info.get("containerRuntimeVersion")).partition("://")
    driver = next((label for label in DRIVER_LABELS if label in labels), DRIVER_LABELS[0])
    stated: list[tuple[Component, str, str, Path]] = [
        ("kubernetes", "kubelet", as_text(info.get("kubeletVersion")), KUBELET),
        ("driver", "NVIDIA driver", as_text(labels.get(driver)), ("metadata", "labels", driver)),
    ]
    if name := RUNTIME_COMPONENTS.get(runtime):
        stated.append((name, runtime, runtime_version, RUNTIME))
    for component, noun, version, path in stated:
        minimum = minimum_of(feature, component)
        if minimum and version_support(feature, component, version) is Support.UNSUPPORTED:
            fault = f"its {noun} {display(version)} is older than {minimum.version}"
            yield path, f"{fault}, which {feature.title} requires"


def _unsupported_places(
    feature: "Feature", info: Mapping[str, Any], labels: Mapping[str, Any]
) -> Iterator[tuple[Path, str]]:
    from rules.profile.platforms.support import Support, card_support, os_support, region_support  # noqa: PLC0415  # rarely needed

    region = next((label for label in REGION_LABELS if label in labels), REGION_LABELS[0])
    card = next((label for label in CARD_LABELS if label in labels), CARD_LABELS[0])
    checks = (
        ("on its operating system", os_support, info.get("osImage"), (*NODE_INFO, "osImage")),
        ("in its region", region_support, labels.get(region), ("metadata", "labels", region)),
        ("with its card", card_support, labels.get(card), ("metadata", "labels", card)),
    )
    for where, support, value, path in checks:
        if support(feature, as_text(value)) is Support.UNSUPPORTED:
            yield path, f"{feature.title} is not supported {where} {display(as_text(value))}"


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE,))
