"""Nodes: ACK's cGPU on them, what GPU nodes offer, CPU policies, and the catalog's rules."""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote

from cluster.accounting.nodes import taints_of
from cluster.accounting.passthrough import is_passthrough
from cluster.accounting.pod_requests import amount_of
from cluster.api.errors import ClusterError, ForbiddenError
from cluster.doctor.facts import (
    DoctorFacts,
    by_name,
    daemon_sets,
    may_be_on,
    name_of,
    nodes_with_shared_cards,
    why_missing,
)
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import (
    DAEMON_SETS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    VALIDATING,
    Object,
    is_device_plugin,
)
from rules.all_rules import ALL_RULES
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.text_matching import matches_any
from rules.base.traits import NODE, WEBHOOK_CONFIGURATION, satisfies
from rules.engine.fixing import check
from rules.finding import Action
from rules.gpu.images import image_name, image_tag
from rules.objects.kubernetes_objects import KubernetesObject
from rules.placement.node_labels import (
    CARD_LABELS,
    DRIVER_LABELS,
    GPU_CORE,
    GPU_MEM,
    MODE_LABEL,
    REGION_LABELS,
)
from rules.placement.tolerations import display_taint, tolerates
from rules.profile.context import Context
from rules.profile.platforms.ack import (
    MEMORY_ISOLATION,
    REGISTERED_SCHEDULER,
    features_of,
    titles_of_pages_listing,
)
from rules.profile.platforms.programs import KUBE_SCHEDULER_IMAGE
from rules.profile.platforms.records import Component, Feature, MinimumVersion
from rules.profile.platforms.support import (
    Support,
    card_support,
    minimum_of,
    os_support,
    region_support,
    runtime_support,
    version_support,
)
from rules.profile.profile import Profile
from terminal import DOCS_URL

_REQUIREMENTS = "requirements"
_JOB_TYPES = "job types"
# The name of a feature, what is required, what is there, whether that is enough, and why not.
_Answer: TypeAlias = tuple[str, str, str, Support, str]


def check_requirements(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each requirement of a feature and each version that nodes or the cluster have."""
    schedulers = [
        image_tag(i) for i in sorted(facts.pods.images) if image_name(i) == KUBE_SCHEDULER_IMAGE
    ]
    # ACK's pages name no object of the cluster that shows the version of cGPU.
    components: dict[Component, list[str]] = {
        "kube-scheduler": schedulers,
        "ack-ai-installer": sorted(_installer_versions(facts)),
        "cgpu": [],
    }
    answers: dict[_Answer, tuple[Feature, list[str]]] = {}
    known = {*facts.policy.profile.scheduler_names, *facts.pods.schedulers}
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        info = as_object(_status(node).get("nodeInfo"))
        features = features_of(
            as_text(labels.get(MODE_LABEL)),
            as_text(info.get("osImage")),
            is_registered=REGISTERED_SCHEDULER in known,
        )
        for feature in features:
            requirements = (
                *_requirements(feature, info, labels),
                *_of_components(feature, as_text(info.get("kubeletVersion")), components),
            )
            for what, value, support, needed in requirements:
                key = feature.name, what, value, support, needed
                answers.setdefault(key, (feature, []))[1].append(name)
        for feature, key in _region(features, _first(labels, REGION_LABELS)):
            answers.setdefault(key, (feature, []))[1].append(name)
    if not schedulers:
        yield from _of_age(facts, answers.values())
    for (_, what, value, support, needed), (feature, found) in sorted(
        answers.items(), key=lambda item: (*item[0][:3], item[0][4])
    ):
        subject = f"{first_few(found)} ({what})"
        thing = f"{feature.title}: {what} {value}".rstrip()
        remedy = f'see "{feature.source.title}" of {feature.source.publisher}'
        match support:
            case Support.SUPPORTED:
                yield ok(_REQUIREMENTS, subject, f"{thing} is supported", names=found)
            case Support.UNSUPPORTED:
                because = f": {needed}" if needed else ""
                message = f"{thing} is not supported{because}"
                yield wrong(_REQUIREMENTS, subject, message, remedy, names=found)
            case Support.UNKNOWN:
                nowhere = "shows in no pod" if what in components else "is not stated by the node"
                why = "is on no list" if value else nowhere
                yield not_known(_REQUIREMENTS, subject, f"{thing} {why}", remedy, names=found)


def _of_age(facts: DoctorFacts, nodes: Iterable[tuple[Feature, Sequence[str]]]) -> Iterator[Row]:
    """A row for each feature whose scheduler an old cluster got by hand, if at all.

    Kubernetes makes the namespace together with the cluster.
    """
    system = dict(by_name(facts.objects(NAMESPACES))).get("kube-system", {})
    created = as_text(as_object(system.get("metadata")).get("creationTimestamp")).partition("T")[0]
    if not created:
        return
    by_feature: dict[str, tuple[Feature, set[str]]] = {}
    for feature, found in nodes:
        by_feature.setdefault(feature.name, (feature, set()))[1].update(found)
    for feature, names in by_feature.values():
        if created < feature.clusters_since:
            found = sorted(names)
            message = (
                f"{feature.title}: the cluster is of {created}, and the scheduler of those from "
                f"before {feature.clusters_since} had to be updated by hand; it shows in no pod"
            )
            remedy = f'see "{feature.source.title}" of {feature.source.publisher}'
            subject = f"{first_few(found)} (age of the cluster)"
            yield not_known(_REQUIREMENTS, subject, message, remedy, names=found)


def _requirements(
    feature: Feature, info: Mapping[str, object], labels: Mapping[str, object]
) -> Iterator[tuple[str, str, Support, str]]:
    kubelet = as_text(info.get("kubeletVersion"))
    if needed := minimum_of(feature, "kubernetes", kubelet):
        support = version_support(feature, "kubernetes", kubelet)
        yield "Kubernetes", kubelet, support, _minimum_in_words(needed)
    runtime = as_text(info.get("containerRuntimeVersion"))
    if needed := minimum_of(feature, "docker" if runtime.startswith("docker:") else "containerd"):
        yield "runtime", runtime, runtime_support(feature, runtime), _minimum_in_words(needed)
    if needed := minimum_of(feature, "driver"):
        driver = _first(labels, DRIVER_LABELS)
        yield (
            "driver",
            driver,
            version_support(feature, "driver", driver),
            _minimum_in_words(needed),
        )
    if feature.operating_systems:
        system = as_text(info.get("osImage"))
        yield "operating system", system, os_support(feature, system), ""
    if feature.card_families:
        card = _first(labels, CARD_LABELS)
        yield "card", card, card_support(feature, card), ""


def _region(features: Iterable[Feature], region: str) -> Iterator[tuple[Feature, _Answer]]:
    """Yield the pages' answer about the region of a node: one, also where they disagree."""
    by_answer: dict[Support, list[Feature]] = defaultdict(list)
    for feature in features:
        if feature.regions:
            by_answer[region_support(feature, region)].append(feature)
    for support in (Support.UNSUPPORTED, Support.UNKNOWN, Support.SUPPORTED):
        if support in by_answer:
            feature = by_answer[support][0]
            others = titles_of_pages_listing(region, by_answer[Support.SUPPORTED])
            says = support is Support.UNSUPPORTED and others
            reason = f"the page leaves it out, although {others} lists it" if says else ""
            yield feature, (feature.name, "region", region, support, reason)
            return


def _of_components(
    feature: Feature, cluster: str, versions: Mapping[Component, list[str]]
) -> Iterator[tuple[str, str, Support, str]]:
    """Programs that are the same for all nodes, on a cluster of this version."""
    for component, stated in versions.items():
        if needed := minimum_of(feature, component, cluster):
            for version in stated or [""]:
                support = version_support(feature, component, version, cluster)
                yield component, version, support, _minimum_in_words(needed)


def _minimum_in_words(minimum: MinimumVersion) -> str:
    if minimum.is_exclusive:
        return f"it needs a version after {minimum.version}"
    return f"it needs {minimum.version} or newer"


def _installer_versions(facts: DoctorFacts) -> Iterator[str]:
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


def check_pods_per_card(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each card with more pods than cGPU allows, or one for all."""
    most = MEMORY_ISOLATION.max_pods_per_card
    nodes = nodes_with_shared_cards(facts)
    if not nodes:
        return  # no cards are shared so
    if row := why_missing(facts, "pods per card", PODS):
        yield row
        return
    pods: dict[tuple[str, str], list[str]] = defaultdict(list)
    for consumer in facts.usage.consumers if facts.usage else ():
        for place in {(consumer.node, s.card) for s in consumer.shares if s.resource == GPU_MEM}:
            pods[place].append(f"{consumer.namespace}/{consumer.name}")
    crowded = [(place, found) for place, found in sorted(pods.items()) if len(found) > most]
    for (node, card), found in crowded:
        message = f"{len(found)} pods share the card; cGPU allows {most}"
        subject, remedy = f"card {card} of {node}", "move some of them away"
        yield wrong("pods per card", subject, message, remedy, names=found)
    if not crowded:
        yield ok("pods per card", nodes, f"no card has more than {most}")


def check_job_types(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each node with pods that ask for computing power of cards, and pods that do not.

    Or one row for all nodes with shared cards.
    """
    nodes = nodes_with_shared_cards(facts)
    if not nodes:
        return
    if row := why_missing(facts, _JOB_TYPES, PODS):
        yield row
        return
    by_node: dict[str, dict[bool, list[str]]] = {}
    for consumer in facts.usage.consumers if facts.usage else ():
        if GPU_MEM in consumer.amounts and consumer.node:
            pods = by_node.setdefault(consumer.node, {})
            pod = f"{consumer.namespace}/{consumer.name}"
            pods.setdefault(GPU_CORE in consumer.amounts, []).append(pod)
    mixed = [(node, pods) for node, pods in sorted(by_node.items()) if len(pods) > 1]
    for node, pods in mixed:
        message = (
            f"pods with computing power ({first_few(pods[True])}) and with memory alone "
            f"({first_few(pods[False])}) run beside each other, which ACK does not support"
        )
        remedy = "give each kind a node pool of its own"
        yield wrong(_JOB_TYPES, node, message, remedy, names=[*pods[True], *pods[False]])
    if not mixed:
        yield ok(_JOB_TYPES, nodes, "no node runs both kinds of pods")


# Nodes that are labelled as GPU nodes.

_GPU_NODES = "GPU nodes"
_SEE_DEVICE_PLUGIN = (
    "see whether the device plugin runs there and what it logs: "
    "kubectl get pods -A --field-selector spec.nodeName=NODE"
)

_DECLARE = f"if it is a GPU, declare it under resources in a policy: {DOCS_URL}/profiles.md"
_VENDORS = frozenset({"nvidia.com", "amd.com"})
_DRIVER_REMEDY = (
    "if it stays so, see what the DRA driver logs: it replaces the slices of a pool one by one"
)


def check_gpu_nodes(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the nodes that offer GPUs, and one for those that should and do not.

    Also one for each pool of devices that is not known as a whole.
    """
    if row := why_missing(facts, _GPU_NODES, NODES):
        yield row
        return
    if facts.usage is None and (row := why_missing(facts, _GPU_NODES, PODS)):
        yield row  # what nodes offer is counted together with what pods hold
        return
    profile = facts.policy.profile
    for text in facts.usage.unknown if facts.usage else ():
        yield not_known(_GPU_NODES, "ResourceSlices", text, _DRIVER_REMEDY)
    usages = facts.usage.nodes if facts.usage else ()
    offering = [
        node.name
        for node in usages
        if any(used.total and not is_passthrough(used.resource) for used in node.resources)
    ]
    known = set(offering)
    idle = [(name, node) for name, node in by_name(facts.objects(NODES)) if name not in known]
    zero = [(name, node) for name, node in idle if _is_zero(node, profile)]
    yield from _without_cards(facts, [name for name, _ in zero])
    labelled = [
        (name, node, label)
        for name, node in idle
        if not _is_zero(node, profile) and (label := _gpu_label(node, profile))
    ]
    named = {name for name, *_ in labelled}
    others = [
        (name, node)
        for name, node in idle
        if name in named or any(map(is_passthrough, _other_devices(node)))
    ]
    yield from _with_other_devices(others)
    empty = [each for each in labelled if not _other_devices(each[1])]
    if empty and (row := why_missing(facts, _GPU_NODES, SLICES)):
        yield row  # their GPUs may be devices of drivers, in ResourceSlices
    elif empty:
        message = "labelled as GPU nodes, and offer no GPU"
        subjects = [f"{name} ({label})" for name, _, label in empty]
        empty_nodes = [name for name, *_ in empty]
        yield wrong(_GPU_NODES, subjects, message, _SEE_DEVICE_PLUGIN, names=empty_nodes)
    yield from _kept_away(facts, [*zero, *((name, node) for name, node, _ in empty)])
    if offering:
        yield ok(_GPU_NODES, offering, f"nodes that offer GPUs: {len(offering):,}")
    elif not others and not zero:
        remedy = f"name your platform's profile in a policy: {DOCS_URL}/profiles.md"
        yield not_known(_GPU_NODES, "all", "no node offers a GPU that gpuward knows", remedy)


def _with_other_devices(nodes: Iterable[tuple[str, Object]]) -> Iterator[Row]:
    """A row for the nodes that offer the same devices that gpuward does not know as GPUs."""
    by_devices: dict[str, list[str]] = defaultdict(list)
    for name, node in nodes:
        if found := _other_devices(node):
            by_devices[", ".join(found)].append(name)
    for devices, names in sorted(by_devices.items()):
        message = f"offer {devices}, which gpuward does not know as a GPU"
        yield not_known(_GPU_NODES, names, message, _DECLARE)


def _without_cards(facts: DoctorFacts, nodes: list[str]) -> Iterator[Row]:
    """A row for nodes on which a device plugin was registered, and that offer nothing now.

    A kubelet keeps the resource, with 0, after its plugin has gone.
    """
    if nodes and (row := why_missing(facts, _GPU_NODES, SLICES)):
        yield row  # the devices of a driver may be in place of those of the plugin
    elif nodes:
        message = "have 0 of each GPU resource: the device plugin has stopped, or finds no card"
        yield wrong(_GPU_NODES, nodes, message, _SEE_DEVICE_PLUGIN)


def _is_zero(node: Object, profile: Profile) -> bool:
    """Return whether the status of a node has resources of GPUs, and 0 of each."""
    capacity = as_object(_status(node).get("capacity"))
    known = [amount_of(capacity[name]) for name in capacity if profile.resource(name) is not None]
    return bool(known) and not any(known) and not _other_devices(node)


def _other_devices(node: Object) -> list[str]:
    """The devices of a vendor of GPUs that the status of a node has, and that are no known GPUs.

    Such as cards for virtual machines, which are called by their model.
    """
    capacity = as_object(_status(node).get("capacity"))
    return [
        name
        for name, amount in sorted(capacity.items())
        if name.partition("/")[0] in _VENDORS and amount_of(amount)
    ]


def _kept_away(facts: DoctorFacts, nodes: list[tuple[str, Object]]) -> Iterator[Row]:
    """A row for each taint of GPU nodes that keeps a device plugin from them."""
    for daemon_set in daemon_sets(facts):
        spec = daemon_set.pod_spec
        if not is_device_plugin(spec):
            continue
        tolerations = [toleration for _, toleration in as_objects(spec.get("tolerations"))]
        kept: dict[str, list[str]] = defaultdict(list)
        for name, node in nodes:
            labels = as_object(as_object(node.get("metadata")).get("labels"))
            for taint in taints_of(node) if may_be_on(daemon_set, labels) else ():
                # Kubernetes itself gives the pods of DaemonSets tolerations for these.
                is_own = taint.key.startswith("node.kubernetes.io/")
                if not is_own and not any(tolerates(each, taint) for each in tolerations):
                    kept[display_taint(taint._replace(value=taint.value or None))].append(name)
        for taint_text, found in sorted(kept.items()):
            message = (
                f"does not tolerate the taint {taint_text} of {first_few(found)}, so it offers no "
                "GPU there"
            )
            remedy = f"add a toleration for {taint_text} to the DaemonSet"
            yield wrong(_GPU_NODES, daemon_set.subject, message, remedy, names=found)


def _gpu_label(node: Object, profile: Profile) -> str:
    """The first label of a node that means that it has GPUs; empty if none does."""
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    for key, value in labels.items():
        values = profile.label_values(key)
        if values is not None and (not values or matches_any(values, as_text(value))):
            return f"{key}={value}"
    return ""


# The CPU policy of kubelets whose cards are shared. The policy `static` does not work with cGPU.

_CPU_POLICY = "CPU policy"
_OPT_IN = "--ask-kubelets reads it, with the right get on nodes/proxy: a strong right"
_RIGHT = "grant `get` on nodes/proxy, for as long as it is needed: it is a strong right"
_BY_HAND = "see whether this works: kubectl get --raw {path}"
_LOOK = "look for cpuManagerPolicy in the configuration of the kubelet"
_SET_CPU_POLICY = "set cpuManagerPolicy: none for the node pool"


def check_cpu_policy(facts: DoctorFacts, *, ask: bool) -> Iterator[Row]:
    """One row for each policy that nodes with shared cards have; asks kubelets only if it may."""
    nodes = nodes_with_shared_cards(facts)
    if not nodes:
        return  # no cards are shared so
    if not ask or facts.request is None:
        yield not_known(_CPU_POLICY, nodes, "no kubelet was asked", _OPT_IN)
        return
    by_policy: dict[str, list[str]] = {}
    for name in nodes:
        path = f"/api/v1/nodes/{quote(name, safe='')}/proxy/configz"
        try:
            config = as_object(as_object(json.loads(facts.request(path))).get("kubeletconfig"))
        except ForbiddenError as error:
            yield not_known(_CPU_POLICY, name, f"its kubelet was not asked: {error}", _RIGHT)
            continue
        except (ClusterError, ValueError, RecursionError) as error:
            remedy = _BY_HAND.format(path=path)
            yield not_known(_CPU_POLICY, name, f"its kubelet does not say: {error}", remedy)
            continue
        by_policy.setdefault(as_text(config.get("cpuManagerPolicy")), []).append(name)
    for policy, found in sorted(by_policy.items()):
        if policy == "static":
            message = "the policy is static, which cGPU does not support"
            yield wrong(_CPU_POLICY, found, message, _SET_CPU_POLICY)
        elif policy:
            yield ok(_CPU_POLICY, found, f"the policy is {policy}")
        else:
            yield not_known(_CPU_POLICY, found, "its kubelet names no policy", _LOOK)


# Nodes and webhook configurations, evaluated by the catalog's rules about these kinds.

# `check_requirements` has rows for what this rule finds, and also for what is not known.
_LEFT_OUT = "node-below-requirements"
_RULES = {
    rule.name: rule
    for rule in ALL_RULES
    if rule.subject is KubernetesObject and rule.name != _LEFT_OUT
}
_KINDS = {NODES: NODE, MUTATING: WEBHOOK_CONFIGURATION, VALIDATING: WEBHOOK_CONFIGURATION}


def check_by_catalog(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each fault, with the objects that have it; and one for each kind without any.

    What the policy only notes is no fault. Other checks say that a kind could not be listed.
    """
    active = facts.policy.rule_set()
    evaluated = {each.rule.name for each in active.rules}.intersection(_RULES)
    context = Context(datetime.datetime.now(datetime.UTC).date())
    for resource, trait in _KINDS.items():
        rules = [name for name in evaluated if satisfies(trait, _RULES[name].needs)]
        items = facts.objects(resource)
        if not (rules and items):
            continue
        faults: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for item in items:
            messages: dict[tuple[str, str], list[str]] = defaultdict(list)
            for finding in check(item, active, context).findings:
                if finding.rule in _RULES and finding.action > Action.AUDIT:
                    messages[finding.rule, finding.help].append(finding.message)
            for (rule_name, remedy), found in messages.items():
                faults[rule_name, remedy, tuple(found)].append(name_of(item))
        for (rule_name, remedy, (message, *others)), objects in sorted(faults.items()):
            advice = remedy or f"gpuward explain {rule_name}"
            more = f" (and {len(others)} more)" if others else ""
            yield wrong(rule_name, objects, f"{message}{more}", advice)
        if not faults:
            message = f"{len(rules)} rules find no fault in {len(items):,}"
            yield ok(resource.name, "all", message)
