"""Traits: what a pod has that a rule may have something to say about.

Most pods of a cluster have nothing to do with GPUs, and one that has concerns a dozen of fifty
rules. A trait is a bit. A rule names in `needs` the traits without which it never finds anything,
and the engine does not run it for other pods. Traits are coarser than rules on purpose: they
compare for equality, prefixes and words. The tests hold every rule to its `needs`.

`rules.relevance` finds them in a pod, and has the same as a test in CEL: API servers send a pod
only if it has some of these traits (`webhook/match_conditions.py`).
"""

from collections.abc import Iterable, Mapping

GPU_RESOURCE = 1 << 0  # a container asks for a GPU resource
UNUSUAL_AMOUNT = 1 << 1  # an amount of one that is no count of devices, or differs from its limit
SHARE = 1 << 2  # a resource by which cards are divided
UNKNOWN_RESOURCE = 1 << 3  # a resource that is neither Kubernetes' own nor known
CLAIM_IN_CONTAINER = 1 << 4  # a container uses a resource claim
GPU_ANNOTATION = 1 << 5  # an annotation by which a pod asks for a GPU or for its scheduler
GPU_VARIABLE = 1 << 6  # a variable named after GPUs, or an envFrom prefix that may form one
LD_VARIABLE = 1 << 7  # a variable of the dynamic loader
CUDA_IMAGE = 1 << 8  # or another that sets NVIDIA_VISIBLE_DEVICES=all
PRIVILEGED = 1 << 9  # a privileged or HostProcess container, or an added capability
EPHEMERAL_CONTAINER = 1 << 10
HOST_PATH = 1 << 11
GPU_METADATA_KEY = 1 << 12  # an annotation or a label named after GPUs, or of a scheduler of GPUs
NODE_CONSTRAINT = 1 << 13  # nodeSelector, affinity or a spread
TOLERATION = 1 << 14  # one that is not written as Kubernetes itself writes it
RUNTIME_CLASS = 1 << 15
NODE_NAME = 1 << 16
CUSTOM_SCHEDULER = 1 << 17
HOST_NAMESPACE = 1 << 18
POD_RESOURCES = 1 << 19  # resources or overhead of the pod itself, or odd ones of a container
QUOTA = 1 << 20  # not a pod at all
CLAIM_OBJECT = 1 << 21  # no pod either, but a ResourceClaim or a template of one
ENV_FROM = 1 << 22  # an envFrom without a prefix
GPU_PROGRAM = 1 << 23  # a sample image, or a privileged container with programs or options for GPUs
RESOURCE_CLAIMS_OF_POD = 1 << 24  # resourceClaims of the pod, which its containers may use
NODE_SELECTION = 1 << 25  # nodeSelector or required node affinity
OTHER_GPU_RESOURCE = 1 << 26  # a GPU resource by another name than that of NVIDIA's cards
SEVERAL_GPUS = 1 << 27  # a container with more than one of a GPU resource, or several of them
INIT_CONTAINER = 1 << 28
# Not of the pod: objects of a kind are known, whatever their namespace.
KNOWN_CONFIG_MAPS = 1 << 29  # or Secrets, or what charts make of their values
KNOWN_QUOTAS = 1 << 30
KNOWN_LIMIT_RANGES = 1 << 31
KNOWN_QUEUES = 1 << 32
KNOWN_CLAIMS = 1 << 33  # ResourceClaims, or templates of them
KNOWN_NODES = 1 << 34  # each that was seen, by its group
KNOWN_SHARE_POOLS = 1 << 35
# Nor these: what the profile says of the nodes with GPUs.
PROFILE_SCHEDULERS = 1 << 36  # who places pods on them
PROFILE_ENFORCED_LABELS = 1 << 37  # labels that pods must demand
OLD_GPU_KEY = 1 << 38  # nor this: the pod had a GPU_METADATA_KEY before an update
DEVICE_LIST_MOUNT = 1 << 39  # of the pod again: a mount at a path of NVIDIA's lists of devices
# Of objects as a whole (`workloads.object_kinds`). Traits of pods are below, these from here on.
NODE = 1 << 40
LIMIT_RANGE = 1 << 41
KUBELET_CONFIG = 1 << 42  # a KubeletConfiguration, or the ConfigMap with one
WEBHOOK_CONFIGURATION = 1 << 43
GPU_WORKLOAD = 1 << 44  # a built-in workload whose pods ask for a GPU and are no components
NODE_AGENT = 1 << 45  # a DaemonSet whose pods mount a path of the node
NODE_POOL = 1 << 46  # what gives labels to nodes that it makes or registers
CLUSTER_QUEUE = 1 << 47  # Kueue's quotas: a ClusterQueue, or a Cohort of them
NODE_CHOOSING_OBJECT = 1 << 48  # Kueue's ResourceFlavor, ACK's ResourcePolicy and the like
DEVICE_CLASS = 1 << 49
DEVICE_TAINT_RULE = 1 << 50
DEVICE_PLUGIN_CONFIG = 1 << 51  # a ConfigMap with configurations of NVIDIA's device plugin
GPU_OPERATOR = 1 << 52  # the settings of NVIDIA's operator: a ClusterPolicy, an NVIDIADriver
# Of the pod again.
OTHER_GPU_VARIABLE = 1 << 53  # a GPU_VARIABLE that is none of ORDINARY_VARIABLES
RESERVING_POD = 1 << 54  # the RESERVATION_LABEL
PRIORITY_CLASS = 1 << 55
KNOWN_GPU_NODES = 1 << 56  # not of the pod: nodes with GPUs are known by their names
OTHER_MAKER_IMAGE = 1 << 57  # an image of another maker than NVIDIA, or of NVIDIA's platform
RAY_GPUS = 1 << 58  # not of a Pod: what KubeRay makes a pod of says with how many GPUs Ray starts
KAI_QUEUE = 1 << 59  # the KAI_QUEUE_LABEL, of the pod or of what makes it
EVERY_POD = 1 << 60  # nothing: what every pod has
VARIABLE_KEY = 1 << 61  # of a ConfigMap or Secret: a key that is a variable of runtimes
QUEUED_TEMPLATE = 1 << 62  # not of a Pod: what makes it has the label of a queue of Kueue

GPU = GPU_RESOURCE | CLAIM_IN_CONTAINER | RESOURCE_CLAIMS_OF_POD | GPU_ANNOTATION
GPU_OR_NODE_CONSTRAINT = GPU | NODE_CONSTRAINT
# What `placement.gpu_nodes.gpu_evidence` looks at.
GPU_EVIDENCE = GPU_OR_NODE_CONSTRAINT | RUNTIME_CLASS | CUDA_IMAGE | OTHER_MAKER_IMAGE
GPU_EVIDENCE |= GPU_VARIABLE | TOLERATION | KNOWN_GPU_NODES
# What API servers send whole, if at all: a match condition tests the fields of pods only.
WHOLE_OBJECTS = NODE | NODE_POOL | LIMIT_RANGE | KUBELET_CONFIG | WEBHOOK_CONFIGURATION
WHOLE_OBJECTS |= GPU_WORKLOAD | NODE_AGENT | CLUSTER_QUEUE | NODE_CHOOSING_OBJECT
WHOLE_OBJECTS |= DEVICE_CLASS | DEVICE_TAINT_RULE | DEVICE_PLUGIN_CONFIG | GPU_OPERATOR
WHOLE_OBJECTS |= RAY_GPUS | VARIABLE_KEY | QUEUED_TEMPLATE

# The taints that Kubernetes makes pods tolerate, NVIDIA's cards, and the resources of one sharing
# system.
NATIVE_TAINT_PREFIX = "node.kubernetes.io/"
NVIDIA_CARD = "nvidia.com/gpu"
ALIYUN_PREFIX = "aliyun.com/"
# The part of an affinity that a node must meet.
REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
# Looked for in keys in either case.
KEY_WORDS = ("gpu", "cdi", "device")
# Looked for in mount paths.
DEVICE_LIST_FOLDER = "nvidia-container-devices"
# gpuward's own keys, which no rule is about: the webhook marks the pods that it fixes.
GPUWARD_PREFIX = "gpuward.io/"
# Looked for in annotations: parts of the keys that schedulers of GPUs write
# (`gpu.allocation_keys`), and of those by which containerd's injector mounts files.
ANNOTATION_WORDS = (
    *("bind-", "predicate-", "allocate", "assigned", "dsmlu", "mounts.n"),
    *("received-resource", "huawei.com/", "gas-", "tensor-fusion.ai/"),
)
# The same of labels.
LABEL_WORDS = ("tensor-fusion.ai/",)
# By this label KAI's scheduler knows the pods of its own that keep a shared card from others, and
# does not count their GPUs (kai-scheduler/KAI-Scheduler pkg/scheduler/api/node_info/node_info.go,
# pkg/scheduler/conf/global_config.go).
RESERVATION_LABEL = ("app", "kai-resource-reservation")
# By this label it knows the queue of a pod, or of a claim that several pods may use.
KAI_QUEUE_LABEL = "kai.scheduler/queue"
# Looked for in names of variables, in upper case only, and at their beginning.
VARIABLE_WORDS = ("VISIBLE_", "NVIDIA", "CUDA", "GPU")
VARIABLE_PREFIXES = ("HSA_OVERRIDE_", "ZE_AFFINITY_", "NEURON_RT_", "RBLN_DEVICES")
# What most GPU pods with such a variable have.
ORDINARY_VARIABLES = frozenset(
    {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"}
)
# By these NVIDIA's toolkit decides whether an image is older than NVIDIA_VISIBLE_DEVICES.
LEGACY_VARIABLES = ("CUDA_VERSION", "NVIDIA_REQUIRE_CUDA")
LD_PREFIX = "LD_"
# Looked for in the commands of privileged containers, and in their images: the samples of ACK.
PROGRAM_WORDS = ("nvidia-smi", "torchrun", "torch.distributed")
# Parts of these, and of the options by which docker and its like give GPUs to containers. They are
# few and short, because API servers look for them in every command of a privileged container: a
# third one would cost the largest pods too much.
COMMAND_WORDS = ("nvidia", "torch")
SAMPLE_IMAGES = ("ai-samples/", "acs/tensorflow-")
POD_FIELD_TRAITS: Mapping[str, int] = {
    "nodeSelector": NODE_CONSTRAINT | NODE_SELECTION,
    "affinity": NODE_CONSTRAINT,
    "topologySpreadConstraints": NODE_CONSTRAINT,
    "runtimeClassName": RUNTIME_CLASS,
    "nodeName": NODE_NAME,
    "priorityClassName": PRIORITY_CLASS,
    "hostPID": HOST_NAMESPACE,
    "hostIPC": HOST_NAMESPACE,
    "resourceClaims": RESOURCE_CLAIMS_OF_POD,
    "resources": POD_RESOURCES,
    "overhead": POD_RESOURCES,
}


def satisfies(traits: int, needs: Iterable[int]) -> bool:
    """Return whether `traits` hold at least one trait of every entry in `needs`."""
    for entry in needs:  # noqa: SIM110  # a generator costs more than the loop
        if not traits & entry:
            return False
    return True


def is_named_after_gpus(variable: str) -> bool:
    """Return whether the name of a variable shows that it is about GPUs or other accelerators."""
    return variable.startswith(VARIABLE_PREFIXES) or any(w in variable for w in VARIABLE_WORDS)


def names_of(traits: int) -> list[str]:
    """The names of the constants for the single bits in `traits`, for messages."""
    single = {value: name for name, value in globals().items() if name.isupper() and _is_bit(value)}
    return [name for value, name in sorted(single.items()) if value & traits]


def _is_bit(value: object) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0
