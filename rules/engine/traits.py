"""Extract the traits of a pod, from its plain data if well-formed and else from its view."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from rules.base.caching import cached_by_text
from rules.base.json_values import as_object, as_objects, as_text
from rules.base.quantity import Quantity
from rules.base.text_matching import matches_any
from rules.base.traits import (
    ALIYUN_PREFIX,
    ANNOTATION_WORDS,
    CLAIM_IN_CONTAINER,
    CLAIM_OBJECT,
    CUDA_IMAGE,
    CUSTOM_SCHEDULER,
    DEVICE_CLASS,
    DEVICE_LIST_FOLDER,
    DEVICE_LIST_MOUNT,
    ENV_FROM,
    EPHEMERAL_CONTAINER,
    GPU,
    GPU_ANNOTATION,
    GPU_METADATA_KEY,
    GPU_PROGRAM,
    GPU_RESOURCE,
    GPU_VARIABLE,
    GPU_WORKLOAD,
    GPUWARD_PREFIX,
    HOST_PATH,
    INIT_CONTAINER,
    KEY_WORDS,
    KNOWN_CLAIMS,
    KNOWN_CONFIG_MAPS,
    KNOWN_GPU_NODES,
    KNOWN_LIMIT_RANGES,
    KNOWN_NODES,
    KNOWN_QUEUES,
    KNOWN_QUOTAS,
    KNOWN_SHARE_POOLS,
    LD_PREFIX,
    LD_VARIABLE,
    NATIVE_TAINT_PREFIX,
    NODE_AGENT,
    NODE_SELECTION,
    NVIDIA_CARD,
    OLD_GPU_KEY,
    ORDINARY_VARIABLES,
    OTHER_GPU_RESOURCE,
    OTHER_GPU_VARIABLE,
    OTHER_MAKER_IMAGE,
    POD_FIELD_TRAITS,
    POD_RESOURCES,
    PRIVILEGED,
    PROFILE_ENFORCED_LABELS,
    PROFILE_SCHEDULERS,
    QUOTA,
    REQUIRED_AFFINITY,
    RESERVATION_LABEL,
    RESERVING_POD,
    SEVERAL_GPUS,
    SHARE,
    TOLERATION,
    UNKNOWN_RESOURCE,
    UNUSUAL_AMOUNT,
    is_named_after_gpus,
)
from rules.gpu.commands import gpu_program
from rules.gpu.devices import (
    FIELDS_OF_RESOURCES,
    MISPLACED_RESOURCE_FIELDS,
    NATIVE_RESOURCES,
    Device,
    devices,
    parse_devices,
)
from rules.gpu.images import is_gpu_sample, maker_of_image, sets_visible_devices
from rules.inventory.inventory import (
    ConfigMap,
    GpuNodes,
    Inventory,
    LimitRange,
    LocalQueue,
    MigConfiguration,
    NodeSurvey,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    Secret,
    SharePool,
)
from rules.objects.container import POD_SPEC, Container, is_host_process
from rules.objects.kubernetes_objects import DeviceClaim, KubernetesObject, Quota
from rules.objects.pod import DEFAULT_SCHEDULER, Pod, PodMetadata
from rules.objects.view import once_per_view
from rules.profile.profile import Profile
from rules.workloads.pod_search import Subject

_MISPLACED_RESOURCE_FIELDS = frozenset(MISPLACED_RESOURCE_FIELDS)
_NANO_OF_ONE = 10**9  # in the unit of `Quantity.nano`


def resource_traits(
    limits: Mapping[str, Any], requests: Mapping[str, Any], known: Mapping[str, Device], claims: Any
) -> int:
    """The traits of a container with these resources and claims; `known` are its `devices`."""
    traits = CLAIM_IN_CONTAINER if claims else 0
    if len(known) > 1:
        traits |= SEVERAL_GPUS
    for name in {*limits, *requests} - NATIVE_RESOURCES:
        traits |= _single_resource_traits(name, known.get(name))
    return traits


def _single_resource_traits(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(ALIYUN_PREFIX) else 0
    if device is None:
        return traits | UNKNOWN_RESOURCE
    traits |= GPU_RESOURCE
    if name != NVIDIA_CARD:
        traits |= OTHER_GPU_RESOURCE
    if device.resource.sharing == "share":
        traits |= SHARE
    if not device.is_plain_count:
        traits |= UNUSUAL_AMOUNT
    for amount in (device.limit, device.request):
        if isinstance(amount, Quantity) and amount.nano > _NANO_OF_ONE:
            traits |= SEVERAL_GPUS
    return traits


def _traits_of_unusual_resources(resources: Mapping[str, Any]) -> int:
    return 0 if FIELDS_OF_RESOURCES.issuperset(resources) else POD_RESOURCES


_get_name = itemgetter("name")


def variable_traits(env: Any, profile: Profile) -> int:
    """The traits of a container with the list `env`."""
    names, traits = _variable_names(env), 0
    found = set(map(profile.variable_traits.get, names))
    if None in found:  # some of the names were not met before
        found = {traits_of_variable(name, profile) for name in names}
    for traits_of_one in found:
        traits |= traits_of_one or 0
    return traits


def _variable_names(env: Any) -> set[str]:
    """The names in `env`; in the usual case at a tenth of what it costs to look at each entry."""
    try:
        return set(map(_get_name, env or ()))
    except (LookupError, TypeError):  # not all are entries with a name
        return {as_text(entry.get("name")) for _, entry in as_objects(env)}


def traits_of_variable(name: Any, profile: Profile) -> int:
    """The traits of a container that sets the variable `name`."""
    name = as_text(name)
    traits = LD_VARIABLE if name.startswith(LD_PREFIX) else 0
    is_known = profile.visible_variable(name) is not None
    is_alternative = matches_any(profile.alternative_variables, name)
    if is_named_after_gpus(name) or is_known or is_alternative:
        traits |= GPU_VARIABLE
        if is_alternative or name not in ORDINARY_VARIABLES:
            traits |= OTHER_GPU_VARIABLE
    return profile.variable_traits.store(name, traits)


_POD_FIELDS_WITH_TRAITS = frozenset(POD_FIELD_TRAITS)
_ROLE_TRAITS = {"init": INIT_CONTAINER, "app": 0, "ephemeral": EPHEMERAL_CONTAINER}
_TRAITS_BY_CONTAINER_LIST = tuple(
    (field, _ROLE_TRAITS[role]) for (field,), role in POD_SPEC.container_lists
)


class PodTraits(NamedTuple):
    """The traits of a pod; of each container its own, and its GPU resources, parsed for them."""

    all: int
    containers: list[tuple[int, dict[str, Device]]]


def traits_of(subject: Subject) -> int:
    """The traits of `subject`."""
    if isinstance(subject, KubernetesObject):
        return subject.kind_trait or _workload_traits(subject)
    if not isinstance(subject, Pod):
        if isinstance(subject, Quota):
            return QUOTA
        return CLAIM_OBJECT if isinstance(subject, DeviceClaim) else DEVICE_CLASS
    return _traits_of_pod(subject)


@once_per_view
def _traits_of_pod(pod: Pod) -> int:
    traits = _spec_traits(pod.spec) | _traits_of_metadata(pod.metadata_view)
    for container in pod.containers:
        traits |= traits_of_container(container)
    return traits


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
    """The traits of a well-formed pod.

    `spec` and `metadata` must have passed `evaluation.well_formed_pod`. No view is made.
    """
    traits = _spec_traits(spec) | _metadata_traits(metadata, profile)
    containers = []
    for field, role_traits in _TRAITS_BY_CONTAINER_LIST:
        for raw in spec.get(field) or ():
            own, known = _container_traits(raw, raw.get("resources"), profile)
            traits |= own | role_traits
            containers.append((own | role_traits, known))
    return PodTraits(traits, containers)


def store_traits(pod: Pod, traits: PodTraits) -> None:
    """Store the results of `traits_of_raw_pod` in the view of the same pod."""
    pod.facts[_traits_of_pod] = traits.all
    for container, (own, known) in zip(pod.containers, traits.containers, strict=True):
        container.facts[traits_of_container], container.facts[devices] = own, known


@once_per_view
def traits_of_container(container: Container) -> int:
    """The traits of a container."""
    traits, known = _container_traits(container.raw, container.resources, container.profile)
    container.facts[devices] = known
    return traits | _ROLE_TRAITS[container.role]


def _container_traits(
    raw: Mapping[str, Any], resources: Any, profile: Profile
) -> tuple[int, dict[str, Device]]:
    """The traits of a container, but for that of its role, and its GPU resources."""
    traits = variable_traits(raw.get("env"), profile) | _traits_of_other_fields(raw)
    if not resources:
        return traits, {}
    traits |= _traits_of_unusual_resources(resources)
    limits, requests = as_object(resources.get("limits")), as_object(resources.get("requests"))
    claims = resources.get("claims")
    if not claims and NATIVE_RESOURCES.issuperset(limits) and NATIVE_RESOURCES.issuperset(requests):
        return traits, {}
    known = parse_devices(limits, requests, profile)
    return traits | resource_traits(limits, requests, known, as_objects(claims)), known


def _spec_traits(spec: Mapping[str, Any]) -> int:
    traits = 0
    for field in _POD_FIELDS_WITH_TRAITS.intersection(spec):
        if spec[field]:
            traits |= POD_FIELD_TRAITS[field]
    affinity = spec.get("affinity")
    if (
        affinity
        and as_object(as_object(affinity).get("nodeAffinity")).get(REQUIRED_AFFINITY) is not None
    ):
        traits |= NODE_SELECTION
    scheduler = spec.get("schedulerName")
    if scheduler and scheduler != DEFAULT_SCHEDULER:
        traits |= CUSTOM_SCHEDULER
    for _, toleration in as_objects(spec.get("tolerations")):
        if not _is_native(toleration):
            traits |= TOLERATION
    traits |= PRIVILEGED if is_host_process(spec) else 0
    for _, volume in as_objects(spec.get("volumes")):
        if "hostPath" in volume:
            traits |= HOST_PATH
    return traits


def _is_native(toleration: Mapping[str, Any]) -> bool:
    """Whether it is one as the API server and the DaemonSet controller write them.

    Nearly every pod has two.
    """
    if not as_text(toleration.get("key")).startswith(NATIVE_TAINT_PREFIX):
        return False
    effect = toleration.get("effect")
    if toleration.get("operator") != "Exists" or "value" in toleration:
        return False
    return effect == "NoExecute" or (
        effect == "NoSchedule" and "tolerationSeconds" not in toleration
    )


def old_metadata_traits(metadata: Mapping[str, Any] | None) -> int:
    """The trait of a pod that had this metadata before an update; `metadata` may be None."""
    metadata = metadata or {}
    keys = (*as_object(metadata.get("annotations")), *as_object(metadata.get("labels")))
    return OLD_GPU_KEY if any(key_traits(key) for key in keys) else 0


def _metadata_traits(metadata: Mapping[str, Any], profile: Profile) -> int:
    annotations = as_object(metadata.get("annotations"))
    traits = 0 if profile.request_annotations.isdisjoint(annotations) else GPU_ANNOTATION
    labels = as_object(metadata.get("labels"))
    for keys in (annotations, labels):
        for key in keys:
            traits |= key_traits(key)
    label, value = RESERVATION_LABEL
    return traits | RESERVING_POD if labels.get(label) == value else traits


@cached_by_text
def key_traits(key: str) -> int:
    """The traits of a pod with the annotation or label `key`."""
    if key.startswith(GPUWARD_PREFIX):
        return 0
    lower = key.lower()
    return GPU_METADATA_KEY if any(word in lower for word in (*KEY_WORDS, *ANNOTATION_WORDS)) else 0


@once_per_view
def _traits_of_metadata(metadata: PodMetadata) -> int:
    return _metadata_traits(metadata.raw, metadata.profile)


def _traits_of_other_fields(raw: Mapping[str, Any]) -> int:
    traits = 0 if _MISPLACED_RESOURCE_FIELDS.isdisjoint(raw) else POD_RESOURCES
    sources = raw.get("envFrom")
    for _, source in as_objects(sources) if sources else ():
        traits |= GPU_VARIABLE | OTHER_GPU_VARIABLE if source.get("prefix") else ENV_FROM
    mounts = raw.get("volumeMounts")
    for _, mount in as_objects(mounts) if mounts else ():
        if DEVICE_LIST_FOLDER in as_text(mount.get("mountPath")):
            traits |= DEVICE_LIST_MOUNT
    image = as_text(raw.get("image"))
    if sets_visible_devices(image):
        traits |= CUDA_IMAGE
    elif maker_of_image(image):
        traits |= OTHER_MAKER_IMAGE
    if is_gpu_sample(image):
        traits |= GPU_PROGRAM
    security = raw.get("securityContext")
    if security and isinstance(security, dict):
        added = as_object(security.get("capabilities")).get("add")
        if security.get("privileged") is True or added or is_host_process(raw):
            traits |= PRIVILEGED
        if security.get("privileged") is True and gpu_program(raw):
            traits |= GPU_PROGRAM
    return traits


_TRAITS: Mapping[type, int] = {
    ConfigMap: KNOWN_CONFIG_MAPS,
    GpuNodes: KNOWN_GPU_NODES,
    LimitRange: KNOWN_LIMIT_RANGES,
    LocalQueue: KNOWN_QUEUES,
    MigConfiguration: KNOWN_CONFIG_MAPS,
    NodeSurvey: KNOWN_NODES,
    ResourceClaim: KNOWN_CLAIMS,
    ResourceClaimTemplate: KNOWN_CLAIMS,
    ResourceQuota: KNOWN_QUOTAS,
    Secret: KNOWN_CONFIG_MAPS,
    SharePool: KNOWN_SHARE_POOLS,
}


def inventory_traits(inventory: Inventory) -> int:
    """The traits of every subject that is evaluated with `inventory`."""
    return inventory.compute_once(_inventory_traits, None) if inventory else 0


def _inventory_traits(inventory: Inventory, _argument: None) -> int:
    traits = 0
    for kind in inventory.records:
        traits |= _TRAITS.get(kind, 0)
    return traits


def profile_traits(profile: Profile) -> int:
    """The traits of every subject that is evaluated with `profile`."""
    traits = PROFILE_SCHEDULERS if profile.schedulers else 0
    if any(affinity.enforce for affinity in profile.affinities):
        traits |= PROFILE_ENFORCED_LABELS
    return traits
