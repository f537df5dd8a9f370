"""Devices: what device plugins and DRA drivers offer, and which claims and pods get none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.accounting.claims import is_gpu_driver
from cluster.accounting.usage import NodeUsage, by_offer
from cluster.doctor.facts import (
    DaemonSet,
    DoctorFacts,
    autoscaler_of,
    by_name,
    daemon_sets,
    may_be_on,
    name_of,
    why_missing,
)
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import (
    CLAIMS,
    CLUSTER_POLICIES,
    DEVICE_CLASSES,
    GPU_CLUSTERS,
    NODES,
    is_device_plugin,
)
from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.gpu.images import full_repository, image_name

# Cards that a device plugin and a DRA driver offer.

_OFFERED_TWICE = "cards offered twice"
_ONE_WAY = (
    "offer them by one of the two: switch the device plugin off on these nodes, or the GPUs of the "
    "DRA driver (resources.gpus.enabled of its chart)"
)


def check_cards_offered_twice(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each way in which nodes offer cards twice, or one for all nodes of drivers."""
    usage = facts.usage
    if usage is None:
        return  # other rows say that pods are not known
    for twice, nodes in by_offer(usage.nodes).items():
        message = (
            f"offer the same cards as {', '.join(twice.resources)} and by the driver "
            f"{twice.driver}: the scheduler can give one card to two pods"
        )
        yield wrong(_OFFERED_TWICE, nodes, message, _ONE_WAY)
    good = [n.name for n in usage.nodes if _drivers(facts, n) and not n.offered_twice]
    if good:
        message = f"nodes whose cards a DRA driver alone offers: {len(good):,}"
        yield ok(_OFFERED_TWICE, good, message)


def _drivers(facts: DoctorFacts, node: NodeUsage) -> list[str]:
    """The drivers that offer GPUs of a node."""
    return [
        used.resource
        for used in node.resources
        if used.total and is_gpu_driver(used.resource, facts.policy.profile)
    ]


# Two device plugins for one resource.

_DEVICE_PLUGINS = "device plugins"
_ONE_PLUGIN = "remove one of them, or give them nodes of their own by nodeSelector"
# The last part of an image's repository -> the resource that the plugin offers by default.
# NVIDIA/k8s-device-plugin, Google's plugin for GKE, Project-HAMi/HAMi charts/hami/values.yaml
_NVIDIA_CARD = "nvidia.com/gpu"
_RESOURCES = dict.fromkeys(("k8s-device-plugin", "nvidia-gpu-device-plugin", "hami"), _NVIDIA_CARD)
_AMD = ("rocm/k8s-device-plugin", "amd.com/gpu")


def check_device_plugins(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each pair of DaemonSets that offer the same resource on the same nodes."""
    plugins = [
        (daemon_set, resource)
        for daemon_set in daemon_sets(facts)
        if is_device_plugin(daemon_set.pod_spec)
        and _has_pods(daemon_set)
        and (resource := _offered(daemon_set.pod_spec))
    ]
    nodes = by_name(facts.objects(NODES))
    labelled = [(name, as_object(as_object(n.get("metadata")).get("labels"))) for name, n in nodes]
    shared: dict[tuple[str, str, str], list[str]] = {}
    for index, (one, resource) in enumerate(plugins):
        for other, of_other in plugins[index + 1 :]:
            if of_other != resource:
                continue
            both = [
                n for n, labels in labelled if may_be_on(one, labels) and may_be_on(other, labels)
            ]
            if both:
                shared[one.subject, other.subject, resource] = both
    for (first, second, resource), both in shared.items():
        message = (
            f"both offer {resource} on {first_few(both)}: the kubelet uses the one that registered "
            "last, and if that one goes, the node offers none"
        )
        yield wrong(_DEVICE_PLUGINS, f"{first}, {second}", message, _ONE_PLUGIN, names=both)


def _offered(pod_spec: Mapping[str, Any]) -> str:
    """The resource that a device plugin offers by default; empty if its image is not known."""
    for _, container in as_objects(pod_spec.get("containers")):
        image = as_text(container.get("image"))
        if full_repository(image).endswith(_AMD[0]):
            return _AMD[1]
        if resource := _RESOURCES.get(image_name(image)):
            return resource
    return ""


def _has_pods(daemon_set: DaemonSet) -> bool:
    """Return whether a DaemonSet has pods on nodes; also if its status does not say."""
    return daemon_set.status.get("desiredNumberScheduled") != 0


# NVIDIA's operator, which offers GPUs in two ways.

_OPERATOR = "GPU operator"
_ONE_RESOURCE = (
    "keep the one that you mean, and delete the other after its pods have ended: "
    "docs/vendors/dra.md"
)


def check_operator(facts: DoctorFacts) -> Iterator[Row]:
    """A row that is wrong if a ClusterPolicy and a GPUCluster exist.

    Since version 26.7.0 the operator does not allow both.
    Source: NVIDIA/gpu-operator pull request 2696
    """
    policies, clusters = facts.objects(CLUSTER_POLICIES), facts.objects(GPU_CLUSTERS)
    if policies and clusters:
        subjects = [f"{each['kind']} {name_of(each)}" for each in (*policies, *clusters)]
        message = (
            "both exist, which the GPU operator does not allow: one offers GPUs by the device "
            "plugin, the other by claims"
        )
        yield wrong(_OPERATOR, subjects, message, _ONE_RESOURCE)
        return
    for present, other in ((policies, GPU_CLUSTERS), (clusters, CLUSTER_POLICIES)):
        if present and (row := why_missing(facts, _OPERATOR, other)):
            yield row


# Extended resources of DeviceClasses.

_CLASSES = "device classes"


def check_device_classes(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each resource that pods wait for, which only a DeviceClass could give.

    NVIDIA's operator installs its classes without `extendedResourceName`, so pods that ask for
    `nvidia.com/gpu` wait for ever once its device plugin is gone.
    Source: NVIDIA/cloud-native-docs issue 458
    """
    usage, profile = facts.usage, facts.policy.profile
    if usage is None:
        return
    offered = {
        known.vendor: driver
        for node in usage.nodes
        for driver in _drivers(facts, node)
        if (known := profile.resource(f"{DEVICE_CLASS_PREFIX}{driver}"))
    }
    classes = facts.objects(DEVICE_CLASSES)
    given = {as_text(as_object(c.get("spec")).get("extendedResourceName")) for c in classes}
    given.update(f"{DEVICE_CLASS_PREFIX}{name_of(each)}" for each in classes)
    for used in usage.totals():
        known = profile.resource(used.resource)
        driver = offered.get(known.vendor) if known else None
        if driver is None or not used.pending or used.total or used.resource in given:
            continue
        if is_gpu_driver(used.resource, profile):
            continue  # a claim for a class
        if row := why_missing(facts, _CLASSES, DEVICE_CLASSES):
            yield row
            return
        message = (
            f"pods wait for {used.pending}, which no node offers; the driver {driver} has cards, "
            "but no DeviceClass has this extendedResourceName"
        )
        remedy = (
            f"set extendedResourceName: {used.resource} in the DeviceClass of the driver "
            "(Kubernetes 1.36 or newer, or the feature gate DRAExtendedResource), or let the pods "
            "use claims"
        )
        yield wrong(_CLASSES, used.resource, message, remedy)


# Claims: those that wait for a node that no autoscaler starts, and those that no pod uses.

_AUTOSCALER = "autoscaler"


def check_autoscaler(facts: DoctorFacts) -> Iterator[Row]:
    """A row that is not known if claims wait while an autoscaler runs that may start no node.

    Where a pool has no node, autoscalers do not know which devices a node of it would have.
    Source: aws/karpenter-provider-aws issue 9519, kubernetes/autoscaler issues 7799 and 10277
    """
    usage = facts.usage
    running = sorted(image for image in facts.pods.images if autoscaler_of(image))
    if usage is None or not running:
        return
    waiting = [
        f"{consumer.name} in {consumer.namespace}"
        for consumer in usage.consumers
        if not consumer.node
        and any(is_gpu_driver(name, facts.policy.profile) for name in consumer.amounts)
    ]
    if waiting:
        which = ", ".join(dict.fromkeys(map(autoscaler_of, running)))
        message = (
            f"claims wait for devices, and {which} may start no node for them from a pool without "
            "nodes: it does not know which devices the node would have"
        )
        remedy = (
            "keep one node in the pool, or see in the documents of the autoscaler how its template "
            "says the devices"
        )
        yield not_known(_AUTOSCALER, waiting, message, remedy)


_CLAIMS = "claims"
_UNUSED = (
    "if nobody needs the claim, delete it: kubectl delete resourceclaim NAME -n NAMESPACE; else "
    "see whether kube-controller-manager works, which takes devices back"
)


def check_claims(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the claims that have cards and no pod that uses them."""
    usage, profile = facts.usage, facts.policy.profile
    if usage is None or not any(_drivers(facts, node) for node in usage.nodes):
        return
    if row := why_missing(facts, _CLAIMS, CLAIMS):
        yield row
        return
    has_cards = [
        consumer
        for consumer in usage.consumers
        if consumer.node and any(is_gpu_driver(name, profile) for name in consumer.amounts)
    ]
    idle = [f"{each.name} in {each.namespace}" for each in has_cards if each.is_idle]
    if idle:
        message = "has cards, and no pod that could use them"
        yield wrong(_CLAIMS, idle, message, _UNUSED)
    elif has_cards:
        yield ok(_CLAIMS, "all", f"claims whose cards pods use: {len(has_cards):,}")


# The exporter of metrics, which needs a setting to count claims.

_EXPORTER = "GPU exporter"
# NVIDIA/dcgm-exporter pkg/cmd/app.go
_VARIABLE, _ARGUMENT = "KUBERNETES_ENABLE_DRA", "--kubernetes-enable-dra"
_TRUE = ("true", "1", "t")


def check_exporter(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each DCGM exporter on nodes of a DRA driver: whether it knows pods with claims.

    The kubelet names devices of claims as the driver does, and the exporter learns from
    ResourceSlices which cards they are, if it is told to.
    Source: NVIDIA/gpu-operator pull request 2706
    """
    usage = facts.usage
    if usage is None:
        return
    drivers = {node.name: _drivers(facts, node) for node in usage.nodes}
    nodes = by_name(facts.objects(NODES))
    labelled = [
        (name, as_object(as_object(node.get("metadata")).get("labels")))
        for name, node in nodes
        if any(driver.endswith("nvidia.com") for driver in drivers.get(name, ()))
    ]
    for daemon_set in daemon_sets(facts):
        container = _exporter_in(daemon_set.pod_spec)
        on = [name for name, labels in labelled if may_be_on(daemon_set, labels)]
        if container is None or not on:
            continue
        if _is_told_of_claims(container):
            yield ok(_EXPORTER, daemon_set.subject, "names the pods that have GPUs by claims")
        else:
            message = f"its metrics of {first_few(on)} do not say which pods have GPUs by claims"
            remedy = (
                f'set {_VARIABLE}: "true" for the exporter (kubernetesDRA.enabled of its chart), '
                "with the right to list and watch resourceslices"
            )
            yield wrong(_EXPORTER, daemon_set.subject, message, remedy, names=on)


def _exporter_in(pod_spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next(
        (
            container
            for _, container in as_objects(pod_spec.get("containers"))
            if image_name(as_text(container.get("image"))) == "dcgm-exporter"
        ),
        None,
    )


def _is_told_of_claims(container: Mapping[str, Any]) -> bool:
    """Return whether a variable or an argument says so; a reference may say so."""
    variables = [v for _, v in as_objects(container.get("env")) if v.get("name") == _VARIABLE]
    if any("valueFrom" in v or as_text(v.get("value")).lower() in _TRUE for v in variables):
        return True
    listed = (container.get(field) for field in ("command", "args"))
    words = [as_text(word) for each in listed if isinstance(each, list) for word in each]
    return any(f"{_ARGUMENT}={true}" in words for true in _TRUE) or _ARGUMENT in words


# Pods that lost their GPUs when their node was restarted, and that no controller replaces.

_FAILED = "failed pods"
_RUN_AGAIN = (
    "delete them and create them again, or let a Job or a Deployment make the pods: kubectl delete "
    "pod NAME -n NAMESPACE"
)


def check_failed_pods(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each reason for which pods with GPUs that have no controller have failed.

    A kubelet that starts before the device plugin does refuses its pods, which stay as they are.
    Source: kubernetes/kubernetes issue 125579
    """
    by_reason: dict[str, list[str]] = {}
    for pod in facts.pods.failed:
        if not pod.has_owner and pod.reason:  # without a reason, a container has ended so
            by_reason.setdefault(pod.reason, []).append(pod.subject)
    for reason, subjects in sorted(by_reason.items()):
        message = f"failed with {reason}, and has no controller that makes another one"
        yield wrong(_FAILED, sorted(subjects), message, _RUN_AGAIN)
