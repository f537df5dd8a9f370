"""Extract the traits of a subject: of a pod from its plain data if well-formed, else its view."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object
from rules.base.traits import (
    CLAIM_OBJECT,
    DEVICE_CLASS,
    EPHEMERAL_CONTAINER,
    GPU,
    GPU_METADATA_KEY,
    GPU_WORKLOAD,
    HOST_PATH,
    INIT_CONTAINER,
    KAI_QUEUE,
    KAI_QUEUE_LABEL,
    KNOWN_CLAIMS,
    KNOWN_CONFIG_MAPS,
    KNOWN_GPU_NODES,
    KNOWN_LIMIT_RANGES,
    KNOWN_NODES,
    KNOWN_QUEUES,
    KNOWN_QUOTAS,
    KNOWN_SHARE_POOLS,
    NODE_AGENT,
    POD_RESOURCES,
    PROFILE_ENFORCED_LABELS,
    PROFILE_SCHEDULERS,
    QUEUED_TEMPLATE,
    QUOTA,
    RAY_GPUS,
)
from rules.gpu.devices import Device, devices
from rules.gpu.quotas import is_queued_by_template
from rules.inventory.inventory import (
    ConfigMap,
    GpuNodes,
    Inventory,
    KaiQueue,
    LimitRange,
    LocalQueue,
    MigConfiguration,
    NodeSurvey,
    Queue,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    Secret,
    SharePool,
)
from rules.objects.container import POD_SPEC, Container
from rules.objects.kubernetes_objects import DeviceClaim, KubernetesObject, Quota
from rules.objects.pod import Pod, PodMetadata
from rules.objects.view import once_per_view
from rules.profile.profile import Profile
from rules.relevance.containers import container_traits
from rules.relevance.pods import key_traits, metadata_traits, spec_traits
from rules.workloads.pod_search import Subject

RAY_OPTIONS_FIELD, RAY_GPUS_OPTION = "rayStartParams", "num-gpus"
"""The options of `ray start` beside the template of a group of KubeRay, and that of its GPUs."""
_ROLE_TRAITS = {"init": INIT_CONTAINER, "app": 0, "ephemeral": EPHEMERAL_CONTAINER}
_TRAITS_BY_CONTAINER_LIST = tuple(
    (field, _ROLE_TRAITS[role]) for (field,), role in POD_SPEC.container_lists
)


class PodTraits(NamedTuple):
    """The traits of a pod; of each container its own, and its GPU resources, parsed for them."""

    all: int
    containers: list[tuple[int, dict[str, Device]]]


def traits_of(subject: Subject) -> int:
    """Return the traits of `subject`."""
    if isinstance(subject, KubernetesObject):
        return subject.kind_trait or _workload_traits(subject)
    if not isinstance(subject, Pod):
        if isinstance(subject, Quota):
            return QUOTA
        return CLAIM_OBJECT if isinstance(subject, DeviceClaim) else DEVICE_CLASS
    return _traits_of_pod(subject)


@once_per_view
def _traits_of_pod(pod: Pod) -> int:
    traits = spec_traits(pod.spec) | _traits_of_metadata(pod.metadata_view)
    if RAY_GPUS_OPTION in as_object(pod.holder.get(RAY_OPTIONS_FIELD)):
        traits |= RAY_GPUS
    if is_queued_by_template(pod):
        traits |= QUEUED_TEMPLATE
    if KAI_QUEUE_LABEL in pod.owner_labels:
        traits |= KAI_QUEUE
    owner = pod.owner_metadata if pod.is_final else None
    if owner and any(map(key_traits, owner.annotations)):
        traits |= GPU_METADATA_KEY
    if pod.layout.is_service:
        traits |= POD_RESOURCES
    for container in pod.containers:
        traits |= traits_of_container(container)
    return traits


@once_per_view
def _traits_of_metadata(metadata: PodMetadata) -> int:
    return metadata_traits(metadata.raw, metadata.profile)


@once_per_view
def traits_of_container(container: Container) -> int:
    """Return the traits of a container."""
    traits, known = container_traits(container.raw, container.resources, container.profile)
    container.facts[devices] = known
    return traits | _ROLE_TRAITS[container.role]


def _workload_traits(workload: KubernetesObject) -> int:
    traits = 0
    for pod in workload.pods:
        of_pod = traits_of(pod)
        if of_pod & GPU and not pod.is_component:
            traits |= GPU_WORKLOAD
        if of_pod & HOST_PATH and workload.object.kind == "DaemonSet":
            traits |= NODE_AGENT
    return traits


def traits_of_raw_pod(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], profile: Profile
) -> PodTraits:
    """Return the traits of a well-formed pod, without making a view.

    `spec` and `metadata` must have passed `evaluation.well_formed_pod`.
    """
    traits = spec_traits(spec) | metadata_traits(metadata, profile)
    containers = []
    for field, role_traits in _TRAITS_BY_CONTAINER_LIST:
        for raw in spec.get(field) or ():
            own, known = container_traits(raw, raw.get("resources"), profile)
            traits |= own | role_traits
            containers.append((own | role_traits, known))
    return PodTraits(traits, containers)


def store_traits(pod: Pod, traits: PodTraits) -> None:
    """Store the results of `traits_of_raw_pod` in the view of the same pod."""
    pod.facts[_traits_of_pod] = traits.all
    for container, (own, known) in zip(pod.containers, traits.containers, strict=True):
        container.facts[traits_of_container], container.facts[devices] = own, known


_TRAITS_OF_RECORDS: Mapping[type, int] = {
    ConfigMap: KNOWN_CONFIG_MAPS,
    GpuNodes: KNOWN_GPU_NODES,
    KaiQueue: KNOWN_QUEUES,
    LimitRange: KNOWN_LIMIT_RANGES,
    LocalQueue: KNOWN_QUEUES,
    MigConfiguration: KNOWN_CONFIG_MAPS,
    NodeSurvey: KNOWN_NODES,
    Queue: KNOWN_QUEUES,
    ResourceClaim: KNOWN_CLAIMS,
    ResourceClaimTemplate: KNOWN_CLAIMS,
    ResourceQuota: KNOWN_QUOTAS,
    Secret: KNOWN_CONFIG_MAPS,
    SharePool: KNOWN_SHARE_POOLS,
}


def inventory_traits(inventory: Inventory) -> int:
    """Return the traits of every subject that is evaluated with `inventory`."""
    return inventory.compute_once(_inventory_traits, None) if inventory else 0


def _inventory_traits(inventory: Inventory, _argument: None) -> int:
    traits = 0
    for kind in inventory.records:
        traits |= _TRAITS_OF_RECORDS.get(kind, 0)
    return traits


def profile_traits(profile: Profile) -> int:
    """Return the traits of every subject that is evaluated with `profile`."""
    traits = PROFILE_SCHEDULERS if profile.schedulers else 0
    if any(affinity.enforce for affinity in profile.affinities):
        traits |= PROFILE_ENFORCED_LABELS
    return traits
