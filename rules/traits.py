"""What a pod has that a rule may have something to say about, told at a glance.

Most pods of a cluster have nothing to do with GPUs, and a pod that has concerns a dozen
rules of fifty. A trait is a bit; a rule names those without which it never speaks, and is
asked about no other pods. Traits are coarser than rules on purpose: equality, prefixes
and words. The tests hold every rule to the traits that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from rules.container import Container
from rules.devices import NATIVE, Device, devices
from rules.images import is_cuda_image
from rules.lazy import remembered
from rules.patterns import matches_any
from rules.pod import DEFAULT_SCHEDULER, Pod
from rules.profile import Profile
from rules.quota import Quota
from rules.reading import items, mapping, text

DEVICE = 1 << 0  # a container asks for a GPU resource
ODD_AMOUNT = 1 << 1  # an amount of one that is no count of devices, or not the same in both places
SHARE = 1 << 2  # a resource by which cards are divided
STRANGE = 1 << 3  # a resource that is neither Kubernetes' own nor known
CLAIM = 1 << 4  # a container uses a resource claim
FRACTION = 1 << 5  # an annotation by which a pod asks for a GPU or for its scheduler
VARIABLE = 1 << 6  # a variable that sounds of GPUs, or a prefix that may form one
LOADER = 1 << 7  # a variable of the dynamic loader
CUDA_IMAGE = 1 << 8
ADMINISTRATOR = 1 << 9  # a privileged container, or an added capability
EPHEMERAL = 1 << 10  # an ephemeral container
HOST_PATH = 1 << 11
KEY = 1 << 12  # an annotation or a label that sounds of GPUs
PLACED = 1 << 13  # nodeSelector or affinity
TOLERATION = 1 << 14  # one that is not Kubernetes' own
RUNTIME_CLASS = 1 << 15
NODE_NAME = 1 << 16
SCHEDULER = 1 << 17  # one that is not the default
HOST_NAMESPACE = 1 << 18
POD_RESOURCES = 1 << 19  # resources or overhead of the pod itself
QUOTA = 1 << 20  # not a pod at all

GPU = DEVICE | CLAIM | FRACTION
FOR_GPUS = GPU | PLACED

# The taints that Kubernetes makes pods tolerate, and the resources of one sharing system.
NATIVE_TAINT = "node.kubernetes.io/"
SHARED_CARDS = "aliyun.com/"
# In keys in either case, in names of variables in upper case.
KEY_WORDS = ("gpu", "cdi", "device")
VARIABLE_WORDS = ("VISIBLE_DEVICES", "NVIDIA", "CUDA", "GPU", "MIG")
LOADER_PREFIX = "LD_"
FIELDS: Mapping[str, int] = {
    "nodeSelector": PLACED,
    "affinity": PLACED,
    "runtimeClassName": RUNTIME_CLASS,
    "nodeName": NODE_NAME,
    "hostPID": HOST_NAMESPACE,
    "hostIPC": HOST_NAMESPACE,
    "resources": POD_RESOURCES,
    "overhead": POD_RESOURCES,
}
_FIELDS = frozenset(FIELDS)
# Names of variables come from tenants: what is remembered of them must stay bounded.
_REMEMBERED, _LONGEST = 4096, 64


def traits_of(subject: Pod | Quota) -> int:
    """The traits of `subject`, which keeps them."""
    if isinstance(subject, Quota):
        return QUOTA
    if subject.traits is None:
        traits = _of_the_spec(subject) | _of_the_metadata(subject)
        for container in subject.containers:
            traits |= _of_a_container(container)
        subject.traits = traits
    return subject.traits


def suffice(traits: int, needs: Iterable[int]) -> bool:
    """Whether `traits` hold one of each set in `needs`."""
    for need in needs:  # noqa: SIM110  # a generator costs more than the question
        if not traits & need:
            return False
    return True


def _of_the_spec(pod: Pod) -> int:
    traits, spec = 0, pod.spec
    for field in _FIELDS.intersection(spec):
        if spec[field]:
            traits |= FIELDS[field]
    if pod.scheduler != DEFAULT_SCHEDULER:
        traits |= SCHEDULER
    for _, toleration in pod.tolerations:
        if not text(toleration.get("key")).startswith(NATIVE_TAINT):
            traits |= TOLERATION
    for _, volume in pod.volumes:
        if "hostPath" in volume:
            traits |= HOST_PATH
    return traits


def _of_the_metadata(pod: Pod) -> int:
    if pod.key_traits is None:
        annotations, profile = pod.annotations, pod.profile
        traits = 0 if profile.asking_annotations.isdisjoint(annotations) else FRACTION
        for key in chain(annotations, pod.labels):
            traits |= _of_a_key(key)
        pod.key_traits = traits
    return pod.key_traits


@remembered
def _of_a_key(key: str) -> int:
    small = key.lower()
    return KEY if any(word in small for word in KEY_WORDS) else 0


def _of_a_container(container: Container) -> int:
    if container.traits is None:
        traits = _of_resources(container) | _of_variables(container)
        sources = container.raw.get("envFrom")
        if sources and any(source.get("prefix") for _, source in items(sources)):
            traits |= VARIABLE
        if is_cuda_image(container.image):
            traits |= CUDA_IMAGE
        if container.role == "ephemeral":
            traits |= EPHEMERAL
        security = container.security_context
        if security.get("privileged") is True or mapping(security.get("capabilities")).get("add"):
            traits |= ADMINISTRATOR
        container.traits = traits
    return container.traits


def _of_resources(container: Container) -> int:
    if container.resource_traits is None:
        limits, requests = container.limits, container.requests
        traits = CLAIM if container.claims else 0
        if not (limits.keys() <= NATIVE and requests.keys() <= NATIVE):
            for name in {*limits, *requests} - NATIVE:
                traits |= _of_a_resource(name, devices(container).get(name))
        container.resource_traits = traits
    return container.resource_traits


def _of_a_resource(name: str, device: Device | None) -> int:
    traits = SHARE if name.startswith(SHARED_CARDS) else 0
    if device is None:
        return traits | STRANGE
    if device.resource.sharing == "share":
        traits |= SHARE
    return traits | DEVICE if device.is_ordinary else traits | DEVICE | ODD_AMOUNT


def _of_variables(container: Container) -> int:
    if container.variable_traits is None:
        traits, remembered = 0, container.pod.profile.variable_traits
        for name in container.variables:
            own = remembered.get(name)
            if own is None:
                own = _of_a_variable(text(name), container.pod.profile)
                if len(remembered) < _REMEMBERED and len(text(name)) <= _LONGEST:
                    remembered[name] = own
            traits |= own
        container.variable_traits = traits
    return container.variable_traits


def _of_a_variable(name: str, profile: Profile) -> int:
    traits = LOADER if name.startswith(LOADER_PREFIX) else 0
    telling = any(word in name for word in VARIABLE_WORDS)
    telling = telling or matches_any(profile.alternative_variables, name)
    return traits | VARIABLE if telling else traits
