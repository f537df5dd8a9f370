"""The parts of the GPU platform itself: its pods, device plugins, exporters and webhooks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects, as_text, display
from rules.base.text_matching import matches_any
from rules.finding import Finding
from rules.gpu.commands.own_programs import runs_own_program
from rules.gpu.devices import is_of_other_device
from rules.gpu.images import (
    AGENT_PROGRAMS,
    full_repository,
    image_name,
    is_agent_image,
    is_cuda_image,
)
from rules.gpu.volumes import host_mounts
from rules.objects.container import Container
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import MIRROR_ANNOTATION, Pod
from rules.profile.context import Context
from rules.profile.profile import Component

# The user that all controllers of Kubernetes are where they have no service accounts of their own.
CONTROLLER_MANAGER = "system:kube-controller-manager"
# The users that create the pods of DaemonSets.
DAEMON_SET_CONTROLLERS = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    CONTROLLER_MANAGER,
)
# The user that creates the pods of Deployments.
REPLICA_SET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
# The prefix of all users that Kubernetes itself makes: its components, nodes, service accounts.
SYSTEM_USER_PREFIX = "system:"
# The prefix of the users that kubelets are. The API server allows them to create mirror pods only.
_KUBELETS = "system:node:"


def component_of(pod: Pod, context: Context) -> Component | None:
    """The component of the GPU platform that `pod` is: all rules or some are not run for it.

    The profile lists components by namespace and service account, and some by their images and
    programs. At admission the user must also be one of the component's `creators`, by default the
    DaemonSet controller. In a file there is no user who creates the pod, so it must be in a
    DaemonSet or, as a running pod, come from one, unless the component has `creators` who may make
    such an object. A pod in a custom resource is never a component, because it may be created in
    another namespace than the resource.
    """
    if pod.object.group not in BUILT_IN_GROUPS:
        return None
    known = (
        c for c in pod.profile.components_in(pod.object.namespace) if _is_component(c, pod, context)
    )
    return min(known, key=lambda component: len(component.rules), default=None)


def _is_component(component: Component, pod: Pod, context: Context) -> bool:
    if not matches_any(component.service_accounts, pod.service_account):
        return False
    images = component.images
    if images and not all(matches_any(images, container.image) for container in pod.containers):
        return False
    if component.programs and not all(
        runs_own_program(container, component.programs) for container in pod.containers
    ):
        return False
    return _may_have_created(component, pod, context.user)


def _may_have_created(component: Component, pod: Pod, user: str | None) -> bool:
    creators = component.creators or DAEMON_SET_CONTROLLERS
    if user is not None:
        return user in creators
    if pod.object.kind in {"Deployment", "ReplicaSet"}:
        return REPLICA_SET_CONTROLLER in creators
    is_daemon = pod.is_daemon and (pod.exists or pod.object.kind == "DaemonSet")
    if is_daemon or not component.creators:
        return is_daemon and not {*DAEMON_SET_CONTROLLERS}.isdisjoint(creators)
    return any(c not in (*DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER) for c in creators)


def is_controller(user: str, namespace: str | None) -> bool:
    """Return whether `user` may be a controller of the pods in `namespace`, not one of its users.

    Controllers are of Kubernetes itself, or programs with service accounts of other namespaces.
    A user who may use a namespace may act as its service accounts.
    """
    own = f"{SYSTEM_USER_PREFIX}serviceaccount:{namespace}:"
    return user.startswith(SYSTEM_USER_PREFIX) and not user.startswith(own)


def is_made_by_daemon_set(pod: Pod, context: Context) -> bool:
    """Return whether a DaemonSet creates `pod`, which may then be an agent of its node.

    Any user may write a DaemonSet as the owner of a pod. At admission the user who creates the pod
    is known, and must be the DaemonSet controller.
    """
    return pod.is_daemon and (context.user is None or context.user in DAEMON_SET_CONTROLLERS)


def is_made_by_owner(pod: Pod, context: Context) -> bool:
    """Return whether another object makes `pod`, or the object that it is in.

    Any user may write an owner. At admission the owner must be a controller, and the user one too.
    A workload that such a user makes is not evaluated, so that only Pods can have an owner there;
    a Pod without a user is the one that a workload will have.
    """
    if context.operation is None:
        return bool(pod.owners)
    is_owned = any(owner.get("controller") is True for owner in pod.owners)
    if pod.object.kind != "Pod" or not is_owned:
        return False
    return context.user is None or is_controller(context.user, pod.object.namespace)


FOR_AGENTS = (
    "; for an agent of the platform, list its service account under components in a profile of the "
    "policy"
)
_WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
# A longer one says too little in an advice.
_MAX_NAMED_IMAGES = 2
_MAX_IMAGE_CHARACTERS = 120


def advice_for_agents(finding: Finding, rule: str, pod: Pod, context: Context) -> str:
    """Return what else to do if a DaemonSet makes `pod`, which may be an agent; otherwise empty.

    A pod in a file may match a component of the profile in all but the namespace. Helm and kubectl
    set the namespace of objects that name none. Then the advice is to name that namespace.
    """
    if not is_made_by_daemon_set(pod, context):
        return ""
    if not pod.object.namespace and any(
        _is_component(c, pod, context) for c in pod.profile.components
    ):
        return "; for an agent of the platform, name its namespace by -n NAMESPACE"
    exception = _exception_for(finding, rule, pod)
    return f"{FOR_AGENTS}, or write the exception {exception}" if exception else FOR_AGENTS


def _exception_for(finding: Finding, rule: str, pod: Pod) -> str:
    """The exception of a policy that accepts `finding` for this agent alone; empty without one."""
    named = finding.containers or ((finding.container,) if finding.container else pod.containers)
    images = list(dict.fromkeys(every_version(container.image) for container in named))
    account, namespace = pod.service_account, pod.object.namespace or ""
    is_plain = all(re.fullmatch(r"[a-z0-9.-]+", name) for name in (account, namespace))
    if not is_plain or len(images) > _MAX_NAMED_IMAGES or "" in images:
        return ""
    pattern = ", ".join(display(image, 2 * _MAX_IMAGE_CHARACTERS) for image in images)
    pattern = f"[{pattern}]" if len(images) > 1 else pattern
    return (
        f"{{rules: [{rule}], match: {{namespace: {_yaml_text(namespace)}, "
        f"serviceAccount: {_yaml_text(account)}, image: {pattern}}}}}"
    )


def _yaml_text(name: str) -> str:
    """A name as YAML reads it as text: `123` and `null` would be none."""
    is_text = name[:1].isalpha() and name not in _WORDS_OF_YAML
    return name if is_text else str(display(name))


def every_version(image: str) -> str:
    """Return a pattern of `image` with any tag or digest; empty if none can name it well.

    Of a name without a folder, `agent:*` would also be `agent:5000/other`.
    """
    folder, slash, last = image.partition("@")[0].rpartition("/")
    name, colon, _ = last.partition(":")
    version = ":*" if colon else "@*" if "@" in image else ""
    pattern = f"{folder}{slash}{name}{version}"
    is_plain = re.fullmatch(r"[\w./:@*-]+", pattern) and "*" not in f"{folder}{name}"
    is_named = bool(folder) and is_plain and len(pattern) < _MAX_IMAGE_CHARACTERS
    return pattern if is_named else ""


def image_grants_gpus(container: Container, pod: Pod, context: Context) -> bool:
    """Return whether the image of `container` is known to make GPUs visible without a request.

    The images of NVIDIA's agents do so too. They are excused in the pods of a DaemonSet that run
    the agent and nothing else: any user can write the name of an agent's image into a pod of their
    own, and a command beside it.
    """
    if not is_cuda_image(container.image):
        return False
    is_agent = is_agent_image(container.image) and is_made_by_daemon_set(pod, context)
    return not (is_agent and runs_own_program(container, AGENT_PROGRAMS))


def is_mirror(pod: Pod, context: Context) -> bool:
    """Return whether `pod` is a kubelet's mirror of a static pod, which runs even if it is refused.

    Any user can write the annotation of mirror pods, so the user who creates the pod decides.
    """
    is_annotated = pod.object.kind == "Pod" and MIRROR_ANNOTATION in pod.annotations
    return is_annotated and (context.user or "").startswith(_KUBELETS)


# Where the sockets of device plugins are (k8s.io/kubelet pkg/apis/deviceplugin/v1beta1).
DEVICE_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
# The first part of a maker's domain in names of resources -> the words that name its accelerators.
# DCGM is NVIDIA's Data Center GPU Manager; copies of its images have names without NVIDIA's. The
# words `aws` and `intel` name no accelerator: the former has NVIDIA's too, and most of the latter's
# plugins are for other devices.
_ACCELERATOR_WORDS_BY_MAKER = {
    "nvidia": frozenset({"nvidia", "cuda", "dcgm"}),
    "amd": frozenset({"amd", "amdgpu", "rocm"}),
    "habana": frozenset({"habana", "gaudi"}),
    "huawei": frozenset({"huawei", "ascend"}),
    "aws": frozenset({"neuron"}),
}
_ACCELERATOR_WORDS = frozenset({"hami", "npu", "mlu", "dcu", "metax"}).union(
    *_ACCELERATOR_WORDS_BY_MAKER.values()
)
_NO_WORDS: frozenset[str] = frozenset()


def device_plugin_words(workload: KubernetesObject) -> frozenset[str]:
    """The words in the name and the images of a device plugin of GPUs; empty for others.

    Such a DaemonSet mounts the folder of the kubelet in which plugins register, and its name or an
    image names a maker of accelerators. Plugins of other devices mount the same folder, also those
    of the same makers.
    """
    for pod in workload.pods:
        images = [m.container.image for m in host_mounts(pod) if m.path == DEVICE_PLUGIN_FOLDER]
        names = [workload.object.name, *map(image_name, images)]
        words = _words_in(workload.object.name).union(*map(_image_words, images))
        if images and _names_accelerator(words) and not _names_other_devices(names, words):
            return words
    return _NO_WORDS


def exporter_words(workload: KubernetesObject) -> frozenset[str]:
    """The words in the name or an image that show an exporter of GPU metrics; empty if none do.

    Such a DaemonSet mounts a path of the node. Its name, or one image, has the word `exporter` and
    also names a maker of accelerators, as `dcgm-exporter` and `amd-device-metrics-exporter` do.
    """
    for pod in workload.pods if workload.object.kind == "DaemonSet" else ():
        mounts = host_mounts(pod)
        if not mounts or any(m.path == DEVICE_PLUGIN_FOLDER for m in mounts):
            continue
        images = (_image_words(container.image) for container in pod.containers)
        for words in (_words_in(workload.object.name), *images):
            if any("exporter" in word for word in words) and _names_accelerator(words):
                return words
    return _NO_WORDS


def words_of_maker(resource: str) -> frozenset[str]:
    """The words that name the maker of `resource`, such as `nvidia.com/gpu`."""
    maker = resource.partition("/")[0].partition(".")[0]
    return _ACCELERATOR_WORDS_BY_MAKER.get(maker, frozenset({maker}))


def _image_words(image: str) -> frozenset[str]:
    """Those of the owner and the name: the registry and the folders of a mirror mean nothing."""
    return _words_in(" ".join(full_repository(image).split("/")[1:][-2:]))


def _words_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def _names_accelerator(words: frozenset[str]) -> bool:
    return _names_gpus(words) or not words.isdisjoint(_ACCELERATOR_WORDS)


def _names_other_devices(names: Iterable[str], words: frozenset[str]) -> bool:
    """Return whether `names`, of which `words` are, are those of a plugin of no accelerators."""
    return not _names_gpus(words) and any(is_of_other_device(name.lower()) for name in names)


def _names_gpus(words: frozenset[str]) -> bool:
    return any("gpu" in word or "xpu" in word for word in words)


GPUWARD_WEBHOOKS = ("*.gpuward.io",)
# What rules of webhooks call pods. "pods/*" is not among them: it means the subresources of pods.
POD_RESOURCE_NAMES = frozenset({"pods", "*", "*/*"})
# Read in Project-HAMi/HAMi charts/hami/templates/scheduler/webhook.yaml at 2659bf678012,
# kai-scheduler/KAI-Scheduler pkg/operator/operands/admission/resources.go at 20e273b67cef
# (SERVICE.NAMESPACE.svc, here with the defaults), volcano-sh/volcano
# installer/helm/chart/volcano/templates/webhooks.yaml at 0b05bb71f19c (mutatepod.volcano.sh), and
# koordinator-sh/koordinator config/webhook/manifests.yaml at 21bf5ea9f7d6
# (mpod-create.koordinator.sh).
SHARING_WEBHOOKS = (
    "vgpu.hami.io",
    "admission.kai-scheduler.svc",
    "*.volcano.sh",
    "*.koordinator.sh",
)
# Also of programs that place GPU pods or test their nodes: SlinkyProject/slurm-operator issue 189,
# and NVIDIA/NVSentinel's preflight.
OTHER_WEBHOOKS = ("podsbinding-v1.kb.io", "preflight.nvsentinel.nvidia.com")
# Kueue's names are those that kubebuilder gives; its Service tells (kubernetes-sigs/kueue
# charts/kueue/templates/webhook).
_KUEUE_WEBHOOKS = ("mpod.kb.io", "vpod.kb.io")
_KUEUE_SERVICE = "kueue"


def webhook_entries(
    subject: KubernetesObject, context: Context, names: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a webhook configuration with one of `names`, with their indices.

    Yields none if the manifest is a patch, because the rest of the entry is in another manifest.
    """
    if context.is_patch:
        return
    for index, entry in as_objects(subject.raw.get("webhooks")):
        if matches_any(names, as_text(entry.get("name"))):
            yield index, entry


def kueue_webhook_entries(
    subject: KubernetesObject, context: Context
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries for pods of Kueue's webhook, with their indices; none if it is a patch."""
    for index, entry in webhook_entries(subject, context, _KUEUE_WEBHOOKS):
        service = as_object(as_object(entry.get("clientConfig")).get("service"))
        if as_text(service.get("name")).startswith(_KUEUE_SERVICE):
            yield index, entry


def core_resources_of_entry(entry: Mapping[str, Any], operation: str) -> set[str]:
    """The resources of the core API group for which the entry is called at `operation`."""
    found: set[str] = set()
    for _, rule in as_objects(entry.get("rules")):
        if _field_has(rule, "apiGroups", "") and _field_has(rule, "operations", operation):
            found |= _strings_of(rule, "resources")
    return found


def webhook_entry_finding(
    subject: KubernetesObject,
    index: int,
    field: str,
    fault: str,
    advice: str,
    *,
    api_refuses: bool = False,
) -> Finding:
    """Return a finding about `field` of the entry at `index`; `fault` follows its name."""
    name = as_text(subject.raw["webhooks"][index].get("name"))
    return Finding(
        path=(*subject.path, "webhooks", index, field),
        key=f"{field}.{name}",
        message=f"the webhook {display(name)} {fault}",
        help=advice,
        api_refuses=api_refuses,
    )


def _field_has(rule: Mapping[str, Any], field: str, value: str) -> bool:
    return not {value, "*"}.isdisjoint(_strings_of(rule, field))


def _strings_of(rule: Mapping[str, Any], field: str) -> set[str]:
    values = rule.get(field)
    return {v for v in values if isinstance(v, str)} if isinstance(values, list) else set()
