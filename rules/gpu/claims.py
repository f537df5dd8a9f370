"""The device classes that have GPUs, and the claims that a pod declares and uses."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rules.base.json_values import as_objects, as_text
from rules.base.text_matching import matches_any
from rules.gpu.devices import (
    DEVICE_CLASS_PREFIX,
    is_device_class,
    request_of,
    requested_resources,
    unknown_devices,
)
from rules.inventory.inventory import DeviceClass, Inventory, ResourceClaim, ResourceClaimTemplate
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.profile import Profile, Resource

# The vendor of classes that a profile names by a pattern only: they may have any devices.
OTHER_VENDOR = "other"


def is_gpu_class(name: str, profile: Profile, inventory: Inventory) -> bool:
    """Return whether `profile` knows the class, or what its DeviceClass names."""
    return any(_is_gpu(resource) for resource in _resources_of_class(name, profile, inventory))


def is_partition_class(name: str, profile: Profile, inventory: Inventory) -> bool:
    """Return whether the devices of the class are parts of cards, of which a node has many."""
    resources = _resources_of_class(name, profile, inventory)
    return any(resource is not None and resource.sharing == "partition" for resource in resources)


def is_gpu_resource(name: str, profile: Profile) -> bool:
    """Return whether `profile` knows the resource, and not merely that it is some device class."""
    return _is_gpu(profile.resource(name))


def _resources_of_class(
    name: str, profile: Profile, inventory: Inventory
) -> Iterator[Resource | None]:
    """Yield the profile's resources for the class `name`, and for what its DeviceClass names.

    That is a resource, or the classes of vendors that have the same devices.
    """
    yield profile.resource(f"{DEVICE_CLASS_PREFIX}{name}")
    known = inventory.find(DeviceClass, name)
    if known is not None:
        yield profile.resource(known.extended_resource)
        for vendor_class in sorted(known.vendor_classes):
            yield profile.resource(f"{DEVICE_CLASS_PREFIX}{vendor_class}")


def profile_with_classes(inventory: Inventory, profile: Profile) -> Profile:
    """`profile`, and the resources by which pods ask for the GPUs of known DeviceClasses."""
    more: dict[str, Resource] = {}
    for name, known in sorted(inventory.all_in(DeviceClass, None).items()):
        asked = known.extended_resource
        if asked and asked not in more and profile.resource(asked) is None:
            for resource in _resources_of_class(name, profile, inventory):
                if resource is not None and _is_gpu(resource):
                    more[asked] = resource._replace(name=asked)
    return profile.with_resources(more) if more else profile


def _is_gpu(resource: Resource | None) -> bool:
    return resource is not None and resource.vendor != OTHER_VENDOR


def vendors_of_claims(pod: Pod, inventory: Inventory) -> frozenset[str]:
    """The vendors of the device classes of all claims of `pod` that are known."""
    entries = (entry for _, entry in declared_claims(pod))
    classes = {
        name for entry in entries for name in device_classes(entry, inventory, pod.object.namespace)
    }
    return frozenset(
        resource.vendor
        for name in classes
        for resource in _resources_of_class(name, pod.profile, inventory)
        if resource is not None
    )


CLAIMS_FIELD = "resourceClaims"
CLAIM_NAME_FIELD, TEMPLATE_NAME_FIELD = "resourceClaimName", "resourceClaimTemplateName"
"""The fields by which an entry refers to a claim, or to the template of one."""


def declared_claims(pod: Pod) -> list[tuple[int, Mapping[str, Any]]]:
    """The entries of `resourceClaims` with their indices."""
    return as_objects(pod.spec.get(CLAIMS_FIELD))


def used_claims(pod: Pod) -> frozenset[str]:
    """The names of the claims that containers use."""
    return frozenset(as_text(claim.get("name")) for c in pod.containers for _, claim in c.claims)


def device_classes(
    entry: Mapping[str, Any], inventory: Inventory, namespace: str
) -> frozenset[str]:
    """The device classes of the claim, or of the template, that an entry of a pod refers to.

    None at all if the claim or the template is not known.
    """
    return _known_classes(entry, inventory, namespace) or frozenset()


def _known_classes(
    entry: Mapping[str, Any], inventory: Inventory, namespace: str
) -> frozenset[str] | None:
    claim = inventory.find(ResourceClaim, as_text(entry.get(CLAIM_NAME_FIELD)), namespace)
    if claim is not None:
        return claim.classes
    template = as_text(entry.get(TEMPLATE_NAME_FIELD))
    found = inventory.find(ResourceClaimTemplate, template, namespace)
    return found.classes if found else None


def may_get_gpus(container: Container, pod: Pod, inventory: Inventory) -> bool:
    """Return whether the container asks for a GPU, or uses a claim that may be for one."""
    names = {as_text(claim.get("name")) for _, claim in container.claims}
    return asks_for_gpu(container) or any(
        as_text(entry.get("name")) in names and may_be_for_gpus(entry, pod, inventory)
        for _, entry in declared_claims(pod)
    )


def asks_for_gpu(container: Container) -> bool:
    """Return whether the container asks for a GPU, or a part of one, without a claim."""
    return container.is_fraction_target or asks_for_known_gpu(container)


def asks_for_known_gpu(container: Container) -> bool:
    """Return whether the container asks for a resource that a profile knows as a GPU."""
    return bool(request_of(container).vendors - {OTHER_VENDOR})


def may_be_for_gpus(entry: Mapping[str, Any], pod: Pod, inventory: Inventory) -> bool:
    """Return whether the claim that an entry of `pod` refers to may be for GPUs.

    It may if it is not known, or if one of its classes has GPUs.
    """
    classes = _known_classes(entry, inventory, pod.object.namespace or "")
    return classes is None or any(is_gpu_class(c, pod.profile, inventory) for c in classes)


ANY_CLASS = f"{DEVICE_CLASS_PREFIX}*"
"""The pattern of resources by which pods ask for any device class."""


def may_need_gpu_nodes(pod: Pod, inventory: Inventory, other_devices: Collection[str] = ()) -> bool:
    """Return whether the pod has a claim, or asks for a class as a resource, that may be for GPUs.

    It may if the claim or the class is not known, unless a pattern of `other_devices` matches the
    class, or every class. A claim counts also if no container uses it: the scheduler looks for its
    devices.
    """
    namespace = pod.object.namespace or ""
    claims = [_known_classes(entry, inventory, namespace) for _, entry in declared_claims(pod)]
    asked = {
        name.removeprefix(DEVICE_CLASS_PREFIX)
        for name in requested_resources(pod)
        if is_device_class(name)
    }
    classes = asked.union(*(known for known in claims if known is not None))
    if None in claims and ANY_CLASS not in other_devices:
        return True
    return any(
        is_gpu_class(name, pod.profile, inventory)
        or not (
            inventory.find(DeviceClass, name)
            or matches_any(other_devices, f"{DEVICE_CLASS_PREFIX}{name}")
        )
        for name in classes
    )


def asks_for_any_gpu(
    pod: Pod,
    inventory: Inventory,
    other_devices: Collection[str] = (),
    *,
    has_placeholders: bool = False,
) -> bool:
    """Return whether the pod asks for a GPU, for what may be one, or has a claim that may be.

    A resource that no profile knows may be a GPU by its name, unless one of the patterns
    `other_devices` matches it; one that a profile knows is, also in a wrong place. A part of a GPU
    counts where the pod names a scheduler that gives it, of any profile: without that scheduler
    nothing places the pod; with `has_placeholders`, also if a placeholder stands for its amount, as
    in a file. For claims see `may_need_gpu_nodes`.
    """
    return (
        pod.profile.gives_share(
            pod.annotations, pod.labels, pod.scheduler, has_placeholders=has_placeholders
        )
        or any(
            asks_for_gpu(container)
            or any(
                container.profile.resource(name) is not None or not matches_any(other_devices, name)
                for name in unknown_devices(container)
            )
            for container in pod.containers
        )
        or may_need_gpu_nodes(pod, inventory, other_devices)
    )
