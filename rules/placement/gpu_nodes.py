"""Pods for GPU nodes, and the profile's facts about the nodes with their GPUs."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.text_matching import is_found, matches_any
from rules.gpu.claims import OTHER_VENDOR, vendors_of_claims
from rules.gpu.commands.own_programs import runs_program_of_agent
from rules.gpu.components import image_grants_gpus, is_made_by_daemon_set
from rules.gpu.devices import (
    pod_requests_gpu,
    pod_uses_only_claims,
    request_of,
    requested_resources,
    uses_gpu_runtime,
)
from rules.gpu.images import is_agent_of_other_maker, is_platform_image, maker_of_image
from rules.gpu.visibility import (
    NVIDIA_VISIBLE_DEVICES,
    Visibility,
    display_variable,
    visibility,
    visible_variables,
)
from rules.inventory.inventory import Inventory
from rules.objects.container import POD_SPEC, Container
from rules.objects.pod import DEFAULT_SCHEDULER, Pod
from rules.objects.view import once_per_view
from rules.placement.named_nodes import named_gpu_node
from rules.placement.node_affinity import (
    REQUIRED_AFFINITY,
    expressions,
    preferred_terms,
    required_terms,
)
from rules.placement.tolerations import tolerates
from rules.profile.context import Context
from rules.profile.platforms.makers import NVIDIA, Maker
from rules.profile.profile import NodeAffinity, Profile, Scheduler, Taint, union_in_order

SCHEDULE_ANYWAY = "ScheduleAnyway"
AT_MOST_ONE = r"-[0-9]+|\+?0*[01]"
# All nodes of some platform have these labels; only their values distinguish GPU nodes.
LABELS_OF_EVERY_NODE = frozenset(
    {
        *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
        *("karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"),
        *("eks.amazonaws.com/instance-family", "eks.amazonaws.com/instance-category"),
        *("cloud.google.com/machine-family", "karpenter.azure.com/sku-family"),
        *("cloud.google.com/compute-class", "karpenter.k8s.oracle/instance-gpu"),
    }
)

# A Volcano job names its scheduler once for all tasks. Knative refuses placement fields unless an
# administrator allows them.
GROUPS_WITH_OWN_PLACEMENT = frozenset({"batch.volcano.sh", "serving.knative.dev"})


def matching_resource(pod: Pod, fact: Taint | NodeAffinity | Scheduler) -> str | None:
    """The first resource that `pod` requests and `fact` of the profile applies to.

    If there is none, the first such annotation: of a scheduler, or for a part of a GPU that nodes
    with such a resource have. None if there is none either.
    """
    for name in requested_resources(pod):
        if matches_any(fact.resources, name):
            return name
    if isinstance(fact, Scheduler):
        annotations = fact.annotations
    else:
        annotations = union_in_order(
            fraction.annotations
            for fraction in pod.profile.fractions
            if matches_any(fact.resources, fraction.resource_for(pod.annotations))
            and pod.profile.grants_fraction(fraction, pod.annotations, pod.scheduler)
        )
    return next((key for key in annotations if key in pod.annotations), None)


def gpu_node_expressions(pod: Pod) -> list[dict[str, Any]]:
    """Node selector expressions that every node with the GPUs requested by `pod` meets.

    They come from the affinities of the profile. An affinity may prefer some GPU nodes to others,
    so each expression accepts all values of the label that GPU nodes have.
    """
    demands = []
    for fact in pod.profile.affinities:
        if matching_resource(pod, fact) is not None:
            values = pod.profile.node_labels.get(fact.key, ())
            if values and not any("*" in value for value in values):
                accepted = [*values, *fact.values]
                demands.append({"key": fact.key, "operator": "In", "values": accepted})
            else:
                demands.append({"key": fact.key, "operator": "Exists"})
    return demands


def targets_gpu_nodes(pod: Pod) -> bool:
    """Return whether the pod selects GPU nodes by their labels."""
    return bool(gpu_node_label(pod))


@once_per_view
def gpu_node_label(pod: Pod) -> str:
    """The label by which the pod selects GPU nodes, as `key: value`; empty if it does not.

    Without a value if it allows several. `nodeSelector`, the required node affinity, and the
    topology keys of required spreads and pod affinities count. A toleration does not: node agents
    tolerate every taint.
    """
    return next(filter(None, _gpu_node_labels(pod)), "")


def _gpu_node_labels(pod: Pod) -> Iterator[str]:
    for key, value in pod.node_selector.items():
        if pod.profile.is_gpu_label(key, as_text(value)):
            yield _label_text(key, as_text(value))
    yield from (selected_gpu_label(pod.profile, term) for _, term in required_terms(pod))
    yield from (key for key in topology_keys(pod) if _has_only_gpu_nodes(pod.profile, key))


def selected_gpu_label(profile: Profile, term: Mapping[str, Any]) -> str:
    """The label by which `term` of a node affinity selects GPU nodes; empty if it does not."""
    for _, demand in expressions(term):
        if _selects_gpu(profile, demand):
            key, values = as_text(demand.get("key")), demand.get("values")
            one = values[0] if isinstance(values, list) and len(values) == 1 else ""
            return _label_text(key, as_text(one) if demand["operator"] == "In" else "")
    return ""


def _label_text(key: str, value: str) -> str:
    return f"{key}: {value}" if value else key


def topology_keys(pod: Pod) -> Iterator[str]:
    """The keys of the labels that a node must have because of required spreads and pod affinities.

    Preferred spreads and pod affinities do not count, nor does pod anti-affinity: they also allow
    nodes without the label.
    """
    for _, spread in as_objects(pod.spec.get("topologySpreadConstraints")):
        if spread.get("whenUnsatisfiable") != SCHEDULE_ANYWAY:
            yield as_text(spread.get("topologyKey"))
    pods = as_object(as_object(pod.spec.get("affinity")).get("podAffinity"))
    for _, term in as_objects(pods.get(REQUIRED_AFFINITY)):
        yield as_text(term.get("topologyKey"))


def is_for_gpus(pod: Pod) -> bool:
    """Return whether the pod requests a GPU or selects GPU nodes."""
    return pod_requests_gpu(pod) or targets_gpu_nodes(pod)


def hinted_gpu_key(pod: Pod) -> str:
    """The key of a preferred label or of a tolerated taint of GPU nodes; empty if there is none.

    The pod may also run elsewhere. A toleration of every taint is no hint: node agents have it.
    """
    for term in preferred_terms(pod):
        if key := selected_gpu_label(pod.profile, term):
            return key
    for _, toleration in pod.tolerations:
        key = as_text(toleration.get("key"))
        if key and (
            _has_only_gpu_nodes(pod.profile, key)
            or ("gpu" in key and pod.profile.resource(key) is not None)
            or any(tolerates(toleration, taint) for taint in pod.profile.taints)
        ):
            return key
    return ""


def _selects_gpu(profile: Profile, expression: Mapping[str, Any]) -> bool:
    key, values = as_text(expression.get("key")), expression.get("values")
    operator = as_text(expression.get("operator"))
    if operator == "In" and isinstance(values, list):
        return any(profile.is_gpu_label(key, as_text(value)) for value in values)
    if operator == "Lt" and _is_below_one_card(values):
        return False
    return operator in {"Exists", "Gt", "Lt"} and _has_only_gpu_nodes(profile, key)


def _has_only_gpu_nodes(profile: Profile, key: str) -> bool:
    return key not in LABELS_OF_EVERY_NODE and profile.is_gpu_label(key)


def _is_below_one_card(values: Any) -> bool:
    """Return whether a number below the bound in `values` cannot be 1 or more."""
    (bound,) = values if isinstance(values, list) and len(values) == 1 else ("",)
    return isinstance(bound, str) and re.fullmatch(AT_MOST_ONE, bound) is not None


def placement_skip_reason(pod: Pod) -> str | None:
    """Return why gpuward must not add tolerations or affinities to the pod; None if it may.

    Only the rules that add scheduling defaults use this.
    """
    if reason := scheduler_skip_reason(pod):
        return reason
    if pod.is_daemon or _is_pinned_by_daemon_set(pod):
        return "a DaemonSet chooses its node"
    if pod.spec.get("schedulingGates"):
        return "a scheduling gate holds it"
    if pod.scheduler != DEFAULT_SCHEDULER and pod.scheduler not in pod.profile.scheduler_names:
        return f"the scheduler {pod.scheduler} decides"
    return None


def scheduler_skip_reason(pod: Pod) -> str | None:
    """Return why gpuward must not name the pod's scheduler; None if it may.

    A scheduler places the pods of DaemonSets too. A pod that a scheduling gate holds must name its
    scheduler now: the name cannot change later.
    """
    if may_be_placed_elsewhere(pod):
        return "its placement may be elsewhere"
    if pod.spec.get("nodeName"):
        return "it names its node"
    return None


def may_be_placed_elsewhere(pod: Pod) -> bool:
    """Return whether another object, or another part of it, may say where the pod runs."""
    is_custom = pod.layout is not POD_SPEC or pod.object.group in GROUPS_WITH_OWN_PLACEMENT
    return is_custom or pod.is_partial


def _is_pinned_by_daemon_set(pod: Pod) -> bool:
    return any(
        field.get("key") == "metadata.name"
        for _, term in required_terms(pod)
        for _, field in as_objects(term.get("matchFields"))
    )


GPU_WORD, ACCELERATOR_WORD = "GPU", "accelerator"
GPU_MAKERS = ("nvidia", "amd")
# Words in labels of nodes that have Google's TPUs, AWS's Neuron devices, Gaudi or an NPU, and in
# names of their runtime classes. No machine has these beside cards of NVIDIA.
OTHER_ACCELERATORS = frozenset(
    {"tpu", "hightpu", "neuron", "inferentia", "trainium", "gaudi", "habana", "npu", "ascend"}
)
# The same in types and families of machines: AWS's inf2.xlarge, trn1 and dl1.24xlarge, those of
# SageMaker, and Google's ct6e-standard-4t. Not in names of products, as HPE's DL380 has cards of
# NVIDIA.
OTHER_MACHINE_PATTERN = (
    "instance-(type|family): (ml[.])?(inf|trn|dl)[0-9][a-z]*([.]|$)"
    "|(instance-type|machine-family): (ct[0-9][a-z]*|tpu[0-9]+x)(-|$)"
)
# The same for GPUs of other makers, which a machine may have beside cards of NVIDIA.
OTHER_GPU_MAKERS = frozenset({"amd", "intel"})
# Variables that drivers and runtimes read: NVIDIA's, then those of others (ray-project/ray
# python/ray/_private/accelerators; ROCm, "GPU isolation techniques" and "Environment variables").
DRIVER_VARIABLE_PREFIXES = (
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_MIG_"),
    *("NVIDIA_IMEX_CHANNELS", "CUDA_DEVICE_", "CUDA_MPS_"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_CACHE_"),
    *("HSA_OVERRIDE_GFX_VERSION", "ZE_AFFINITY_MASK", "HABANA_VISIBLE_MODULES"),
    *("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "TPU_VISIBLE_CHIPS", "RBLN_DEVICES"),
)
# NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, and those of every other maker.
DRIVER_VARIABLE_SUFFIX = "_VISIBLE_DEVICES"
OTHER_VARIABLE_PREFIXES = ("NVIDIA_", "CUDA_")
# Variables of GPUs; those of others are of accelerators.
GPU_VARIABLE_PREFIXES = (
    *("NVIDIA_", "CUDA_", "AMD_", "HIP_", "HSA_", "ROCR_", "ZE_", "MUSA_", "MTHREADS_"),
    *("DCU_", "HCU_", "IX_", "GPU_"),
)
# The values of CUDA_VISIBLE_DEVICES, and of its like, by which programs hide all GPUs.
VALUES_HIDING_GPUS = ("", "-1", "NoDevFiles")


class Evidence(NamedTuple):
    """The evidence that a pod is for GPUs, for a message.

    - `pod`: completes "in …".
    - `devices`: what its node has: GPUs or other accelerators.
    - `is_certain`: false if the pod may also run on a node that has none.
    """

    pod: str
    devices: str = GPU_WORD
    is_certain: bool = True


# What `Evidence.pod` says, in most cases before a name.
ASKING_FOR = "a pod that asks for"
ASKING_FOR_A_PART = "a pod that asks for a part of a GPU"
WITH_CLAIM = "a pod with a resource claim, which may be for a GPU"
FOR_LABEL = "a pod for nodes with the label"
WITH_RUNTIME_CLASS = "a pod with the runtime class"
PREFERRING_OR_TOLERATING = "a pod that prefers or tolerates nodes with"
WITH_VARIABLE = "a pod with the variable"


def words_about_image(image: object, platform: object) -> str:
    """Return what `Evidence.pod` says about an image that uses `platform`."""
    return f"a pod with the image {image}, which uses {platform}"


def gpu_evidence(pod: Pod, context: Context) -> Iterator[Evidence]:
    """Yield what the pod has to do with GPUs, the strongest first."""
    if pod_requests_gpu(pod):
        yield _request_evidence(pod)
    if label := gpu_node_label(pod):
        yield Evidence(f"{FOR_LABEL} {display(label)}", _device_word(label))
    if node := named_gpu_node(pod, context):
        where = f"a pod for the node {display(node.name)}, which has {display(node.shown_by)}"
        yield Evidence(where, _device_word(node.shown_by))
    yield from (
        _signs_of_agents(pod, context)
        if is_made_by_daemon_set(pod, context)
        else _signs_of_gpus(pod)
    )


def _request_evidence(pod: Pod) -> Evidence:
    if pod_uses_only_claims(pod):
        return Evidence(WITH_CLAIM)
    name = next(
        filter(None, (request_of(container).first_name for container in pod.containers)), ""
    )
    if not name:
        return Evidence(ASKING_FOR_A_PART)
    resource = pod.profile.resource(name)
    is_gpu = "gpu" in name or (resource is not None and resource.vendor in GPU_MAKERS)
    return Evidence(f"{ASKING_FOR} {display(name)}", GPU_WORD if is_gpu else ACCELERATOR_WORD)


def _signs_of_gpus(pod: Pod) -> Iterator[Evidence]:
    if uses_gpu_runtime(pod):
        name = pod.spec["runtimeClassName"]
        yield Evidence(f"{WITH_RUNTIME_CLASS} {display(name)}", _device_word(name))
    for container in pod.containers:
        if maker := maker_of_image(container.image):
            yield _image_evidence(container, maker)
    for container in pod.containers:
        if is_platform_image(container.image):
            image = display(container.image)
            yield Evidence(words_about_image(image, NVIDIA.devices))
    if variable := _visible_variable(pod, DRIVER_VARIABLE_PREFIXES, DRIVER_VARIABLE_SUFFIX):
        yield _variable_evidence(variable)
    if key := hinted_gpu_key(pod):
        where = f"{PREFERRING_OR_TOLERATING} {display(key)}"
        yield Evidence(where, _device_word(key), is_certain=False)
    if variable := _visible_variable(pod, OTHER_VARIABLE_PREFIXES):
        yield _variable_evidence(variable)._replace(is_certain=False)


def _signs_of_agents(pod: Pod, context: Context) -> Iterator[Evidence]:
    """Yield further evidence in the pod of a DaemonSet, which may be an agent of its node."""
    for container in pod.containers:
        maker = maker_of_image(container.image)
        if maker is NVIDIA:
            is_sign = image_grants_gpus(container, pod, context)
        else:
            is_agent = is_agent_of_other_maker(container.image)
            is_sign = not (is_agent and runs_program_of_agent(container))
        if maker and is_sign:
            yield _image_evidence(container, maker)._replace(is_certain=False)


def _image_evidence(container: Container, maker: Maker) -> Evidence:
    return Evidence(
        words_about_image(display(container.image), maker.platform),
        GPU_WORD if maker.is_gpu else ACCELERATOR_WORD,
    )


def _device_word(name: str) -> str:
    """Return the word for the devices of nodes with the label, taint or runtime class `name`."""
    from rules.profile.platforms.cards import find_card  # noqa: PLC0415  # rarely needed

    if any(word in name.lower() for word in ("gpu", *GPU_MAKERS)) or find_card(name):
        return GPU_WORD
    return ACCELERATOR_WORD


def excludes_nvidia(pod: Pod) -> bool:
    """Return whether no node for `pod` has cards of NVIDIA, as with TPUs, Neuron and Gaudi.

    NVIDIA's variables mean nothing there. A new pod that names its node may be on any: kubelets
    ignore devices that their node does not have, and topologies.
    """
    if pod.spec.get("nodeName") and not pod.exists:
        return False
    known = (pod.profile.resource(name) for name in requested_resources(pod))
    if any(resource is not None and resource.exclusive for resource in known):
        return True
    return _selects_only(pod, OTHER_ACCELERATORS)


def _selects_only(pod: Pod, words: Collection[str]) -> bool:
    """Return whether every node that `pod` selects has one of the accelerators that `words` name.

    Of the terms of the required node affinity a node needs to match only one.
    """
    if not gpu_node_label(pod):
        return False
    chosen = (
        _label_text(key, as_text(value))
        for key, value in pod.node_selector.items()
        if pod.profile.is_gpu_label(key, as_text(value))
    )
    topology = (key for key in topology_keys(pod) if _has_only_gpu_nodes(pod.profile, key))
    if any(names_other_accelerator(label, words) for label in (*chosen, *topology)):
        return True
    terms = [selected_gpu_label(pod.profile, term) for _, term in required_terms(pod)]
    return bool(terms) and all(names_other_accelerator(label, words) for label in terms)


def names_other_accelerator(name: str, words: Collection[str] = OTHER_ACCELERATORS) -> bool:
    """Return whether a node label or runtime class is one of the accelerators that `words` name."""
    name = name.lower()
    if not set(words).isdisjoint(re.findall("[a-z]+", name)):
        return True
    return is_found(OTHER_MACHINE_PATTERN, name)


def is_for_other_makers(pod: Pod, inventory: Inventory) -> bool:
    """Return whether all GPUs that `pod` requests or selects are those of other makers than NVIDIA.

    NVIDIA's variables mean nothing to them. Their machines may have cards of NVIDIA as well, in
    contrast to those of `excludes_nvidia`. A claim counts if its device classes are known. A new
    pod that names its node may be on any.
    """
    if pod.spec.get("nodeName") and not pod.exists:
        return False
    vendors = {vendor for c in pod.containers for vendor in request_of(c).vendors}
    vendors |= vendors_of_claims(pod, inventory)
    vendors.discard(OTHER_VENDOR)
    if any(container.is_fraction_target for container in pod.containers):
        return False
    if vendors:
        nvidia = pod.profile.visible_variable(NVIDIA_VISIBLE_DEVICES)
        return nvidia is None or vendors.isdisjoint(nvidia.vendors)
    others = OTHER_ACCELERATORS | OTHER_GPU_MAKERS
    runtime = as_text(pod.spec.get("runtimeClassName")) if uses_gpu_runtime(pod) else ""
    return names_other_accelerator(runtime, others) or _selects_only(pod, others)


def _variable_evidence(variable: str) -> Evidence:
    is_gpu = variable.startswith(GPU_VARIABLE_PREFIXES)
    word = GPU_WORD if is_gpu else ACCELERATOR_WORD
    return Evidence(f"{WITH_VARIABLE} {display_variable(variable)}", word)


def _visible_variable(pod: Pod, prefixes: tuple[str, ...], suffix: str = "") -> str:
    """The first variable that begins or ends so and does not hide the GPUs; empty if none does."""
    for container in pod.containers:
        for name in container.env:
            is_sign = name.startswith(prefixes) or (suffix and name.endswith(suffix))
            if is_sign and not _hides_gpus(container, name):
                return name
    return ""


def _hides_gpus(container: Container, variable: str) -> bool:
    if variable in visible_variables(container):
        return visibility(container, variable) in (Visibility.HIDDEN, Visibility.DRIVER_ONLY)
    is_list = variable.endswith(DRIVER_VARIABLE_SUFFIX)
    return is_list and container.env_value(variable) in VALUES_HIDING_GPUS
