"""Nodes whose cards ACK's cGPU shares: versions, regions, and pods for each card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from cluster.doctor.facts import Facts, by_name, nodes_with_shared_cards, why_missing
from cluster.source.objects import Object
from cluster_commands.doctor.rows import Row, names, not_known, ok, wrong
from cluster_commands.source.resources import DAEMON_SETS, NODES, PODS
from rules.base.json_access import as_object, as_text
from rules.gpu.images import image_name, image_tag
from rules.placement.ack_nodes import CARD_LABELS, DRIVER_LABELS, GPU_MEM, MODE, REGION_LABELS
from rules.profile.platforms.ack import FEATURES_BY_MODE, MEMORY_ISOLATION
from rules.profile.platforms.programs import KUBE_SCHEDULER
from rules.profile.platforms.records import Component, Feature, Minimum
from rules.profile.platforms.support import (
    Support,
    card_support,
    minimum_of,
    os_support,
    region_support,
    runtime_support,
    version_support,
)

_CHECK = "requirements"


def check_requirements(facts: Facts) -> Iterator[Row]:
    """One row for each requirement of a feature and each version that nodes or the cluster have."""
    schedulers = [image_tag(i) for i in sorted(facts.images) if image_name(i) == KUBE_SCHEDULER]
    # ACK's pages name no object of the cluster that shows the version of cGPU.
    components: dict[Component, list[str]] = {
        "kube-scheduler": schedulers,
        "ack-ai-installer": sorted(_installer_versions(facts)),
        "cgpu": [],
    }
    answers: dict[tuple[str, str, str, Support, str], tuple[Feature, list[str]]] = {}
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        for feature in FEATURES_BY_MODE.get(as_text(labels.get(MODE)), ()):
            kubelet = as_text(as_object(_status(node).get("nodeInfo")).get("kubeletVersion"))
            requirements = (
                *_requirements(feature, node, labels),
                *_of_components(feature, kubelet, components),
            )
            for what, value, support, needed in requirements:
                key = feature.name, what, value, support, needed
                answers.setdefault(key, (feature, []))[1].append(name)
    for (_, what, value, support, needed), (feature, found) in sorted(
        answers.items(), key=lambda item: (*item[0][:3], item[0][4])
    ):
        subject = f"{names(found)} ({what})"
        thing = f"{feature.title}: {what} {value}".rstrip()
        remedy = f'see "{feature.source.title}" of {feature.source.publisher}'
        match support:
            case Support.SUPPORTED:
                yield ok(_CHECK, subject, f"{thing} is supported")
            case Support.UNSUPPORTED:
                minimum = f": it needs {needed}" if needed else ""
                yield wrong(_CHECK, subject, f"{thing} is not supported{minimum}", remedy)
            case Support.UNKNOWN:
                nowhere = "shows in no pod" if what in components else "is not stated by the node"
                why = "is on no list" if value else nowhere
                yield not_known(_CHECK, subject, f"{thing} {why}", remedy)


def _requirements(
    feature: Feature, node: Object, labels: Mapping[str, object]
) -> Iterator[tuple[str, str, Support, str]]:
    info = as_object(_status(node).get("nodeInfo"))
    kubelet = as_text(info.get("kubeletVersion"))
    if needed := minimum_of(feature, "kubernetes", kubelet):
        support = version_support(feature, "kubernetes", kubelet)
        yield "Kubernetes", kubelet, support, _shown(needed)
    runtime = as_text(info.get("containerRuntimeVersion"))
    if needed := minimum_of(feature, "docker" if runtime.startswith("docker:") else "containerd"):
        yield "runtime", runtime, runtime_support(feature, runtime), _shown(needed)
    if needed := minimum_of(feature, "driver"):
        driver = _first(labels, DRIVER_LABELS)
        yield "driver", driver, version_support(feature, "driver", driver), _shown(needed)
    if feature.operating_systems:
        system = as_text(info.get("osImage"))
        yield "operating system", system, os_support(feature, system), ""
    if feature.regions:
        region = _first(labels, REGION_LABELS)
        yield "region", region, region_support(feature, region), ""
    if feature.card_families:
        card = _first(labels, CARD_LABELS)
        yield "card", card, card_support(feature, card), ""


def _of_components(
    feature: Feature, cluster: str, versions: Mapping[Component, list[str]]
) -> Iterator[tuple[str, str, Support, str]]:
    """Programs that are the same for all nodes, on a cluster of this version."""
    for component, stated in versions.items():
        if needed := minimum_of(feature, component, cluster):
            for version in stated or [""]:
                support = version_support(feature, component, version, cluster)
                yield component, version, support, _shown(needed)


def _shown(minimum: Minimum) -> str:
    return f"a version after {minimum.version}" if minimum.after else f"{minimum.version} or newer"


def _installer_versions(facts: Facts) -> Iterator[str]:
    """The versions of the chart that installs sharing, as Helm's label says them."""
    for item in facts.objects(DAEMON_SETS):
        labels = as_object(as_object(item.get("metadata")).get("labels"))
        name, _, version = as_text(labels.get("helm.sh/chart")).rpartition("-")
        if name == "ack-ai-installer":
            yield version


def _status(node: Object) -> Mapping[str, object]:
    return as_object(node.get("status"))


def _first(labels: Mapping[str, object], keys: Iterable[str]) -> str:
    """The value of the first label that the node has; empty if it has none."""
    return next(filter(None, (as_text(labels.get(key)) for key in keys)), "")


def check_pods_per_card(facts: Facts) -> Iterator[Row]:
    """One row for each card with more pods than cGPU allows, or one for all."""
    most = MEMORY_ISOLATION.max_pods_per_card
    nodes = nodes_with_shared_cards(facts)
    if not nodes:
        return  # no cards are shared so
    if row := why_missing(facts, "pods per card", PODS):
        yield row
        return
    pods: Counter[tuple[str, str]] = Counter()
    for consumer in facts.usage.consumers if facts.usage else ():
        pods.update({(consumer.node, s.card) for s in consumer.shares if s.resource == GPU_MEM})
    crowded = [(place, count) for place, count in sorted(pods.items()) if count > most]
    for (node, card), count in crowded:
        message = f"{count} pods share the card; cGPU allows {most}"
        yield wrong("pods per card", f"card {card} of {node}", message, "move some of them away")
    if not crowded:
        yield ok("pods per card", names(nodes), f"no card has more than {most}")
