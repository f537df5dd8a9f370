"""What a pod has that a rule may have something to say about, told at a glance.

Most pods of a cluster have nothing to do with GPUs, and a pod that has concerns a dozen
rules of fifty. A trait is a bit; a rule names those without which it never speaks, and is
asked about no other pods. Traits are coarser than rules on purpose: equality, prefixes
and words. The tests hold every rule to the traits that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
PLACED = 1 << 13  # nodeSelector, affinity or a spread
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
VARIABLE_WORDS = ("VISIBLE_DEVICES", "NVIDIA", "CUDA", "GPU")
LOADER_PREFIX = "LD_"
FIELDS: Mapping[str, int] = {
    "nodeSelector": PLACED,
    "affinity": PLACED,
    "topologySpreadConstraints": PLACED,
    "runtimeClassName": RUNTIME_CLASS,
    "nodeName": NODE_NAME,
    "hostPID": HOST_NAMESPACE,
    "hostIPC": HOST_NAMESPACE,
    "resources": POD_RESOURCES,
    "overhead": POD_RESOURCES,
}


def suffice(traits: int, needs: Iterable[int]) -> bool:
    """Whether `traits` hold one of each set in `needs`."""
    for need in needs:  # noqa: SIM110  # a generator costs more than the question
        if not traits & need:
            return False
    return True
