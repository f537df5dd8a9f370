"""Sources of Kubernetes objects for the commands: resources, errors, and label selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rules.base.json_values import as_object, as_objects, as_text

Object = dict[str, Any]
"""A Kubernetes object as JSON, with its `apiVersion` and `kind`."""


def name_of(raw: Mapping[str, Any]) -> str:
    """The name of an object."""
    return as_text(as_object(raw.get("metadata")).get("name"))


def group_name(pod: Mapping[str, Any]) -> str:
    """The PodGroup of Kubernetes that a pod is in, in the pod's namespace; empty if in none."""
    group = as_object(pod.get("spec")).get("schedulingGroup")
    return as_text(as_object(group).get("podGroupName")) if group else ""


def namespace_in(raw: Mapping[str, Any]) -> str:
    """The namespace that an object names; empty if it names none."""
    return as_text(as_object(raw.get("metadata")).get("namespace"))


def without_managed_fields(metadata: Mapping[str, Any]) -> Object:
    """`metadata` without what API servers write about its fields: up to half of an object."""
    return {key: value for key, value in metadata.items() if key != "managedFields"}


def without_images(node: Mapping[str, Any]) -> Object:
    """A node without its images and who manages its fields, which together are most of it."""
    status = as_object(node.get("status"))
    return {
        **node,
        "metadata": without_managed_fields(as_object(node.get("metadata"))),
        "status": {key: value for key, value in status.items() if key != "images"},
    }


class Resource(NamedTuple):
    """A resource of the Kubernetes API.

    `name` is what requests and rights call it, such as `pods`; `kind` is what its objects say.
    `versions` are tried in this order: the first that the API server serves is used.
    """

    name: str
    kind: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    is_namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


ResourceNames = Mapping[str, Sequence[str]]
"""Names of resources by their API group, such as `pods` by the empty text."""


class SourceError(Exception):
    """Objects could not be read; the message says which, why, and what to do about it."""


class DiscoveryError(SourceError):
    """It is not known which resources an API group has; without a group, which groups there are."""

    def __init__(self, what: str, why: object, group: str | None = None) -> None:
        super().__init__(f"cannot list the {what}: {why}")
        self.group = group


class ListError(SourceError):
    """A resource could not be listed, or not to its end."""

    def __init__(self, resource: Resource, where: str, why: str) -> None:
        super().__init__(f"cannot list {resource}{where}: {why}")
        self.resource = resource


class MissingRightError(ListError):
    """The account may not list a resource."""

    def __init__(self, resource: Resource, namespace: str | None) -> None:
        where = f" in namespace {namespace}" if namespace else ""
        needed = f"it needs the right to list {resource}{where or ' in all namespaces'}"
        if not resource.is_namespaced:
            needed = f"it needs the right to list {resource}"
        super().__init__(resource, where, f"the account may not; {needed}")


class GetError(SourceError):
    """One object could not be read; without `right`, for another reason than a right."""

    def __init__(self, what: str, why: str, right: str = "") -> None:
        super().__init__(f"cannot get {what}: {why}")
        self.right = right


class NotServedError(ListError):
    """The API server does not know a resource, as when its definition is not installed."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource, "", "the API server does not serve this resource")


class ObjectSource(Protocol):
    """A cluster, or files with what is in one."""

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        """The objects of a resource, of one namespace or of all, each once.

        They come as they are read, so that no more than a part of them is in memory. Raises
        SourceError: MissingRightError and NotServedError, before the first object, say that
        nothing is known about this resource, while others may well be readable.
        """

    def list_all(
        self,
        names: ResourceNames,
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        """The objects of all resources of `names` that there are, in its order.

        What cannot be read is given to `on_error`, and the rest is still read. Files are read once,
        in their order, and give all that they have: they do not say what an object's resource is.
        """


class ObjectReader(ObjectSource, Protocol):
    """A source that also reads single objects.

    `is_complete`: what it does not list does not exist. Files need not have all of a cluster.
    """

    is_complete: bool

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object; None if it does not exist, or is not in the files.

        Of a Secret it is only the metadata. Raises SourceError.
        """

    def server_version(self) -> str:
        """The version of the API server, such as `v1.37.2`; empty if it is not known."""

    def again(self) -> ObjectReader:
        """Return the source as it is now: what was read once is read again."""


# The built-in resources that commands list.

_REGISTRATION = "admissionregistration.k8s.io"
_ALLOCATION = "resource.k8s.io"
# Kubernetes 1.34 has v1; releases before it have the others, if they were switched on.
_ALLOCATION_VERSIONS = ("v1", "v1beta2", "v1beta1")

NODES = Resource("nodes", "Node", is_namespaced=False)
PODS = Resource("pods", "Pod")
NAMESPACES = Resource("namespaces", "Namespace", is_namespaced=False)
DAEMON_SETS = Resource("daemonsets", "DaemonSet", "apps")
DEPLOYMENTS = Resource("deployments", "Deployment", "apps")
PRIORITY_CLASSES = Resource(
    "priorityclasses", "PriorityClass", "scheduling.k8s.io", is_namespaced=False
)
POD_GROUPS = Resource(
    "podgroups", "PodGroup", "scheduling.k8s.io", ("v1beta1", "v1alpha3", "v1alpha2")
)
ENDPOINTS = Resource("endpointslices", "EndpointSlice", "discovery.k8s.io")
SLICES = Resource(
    "resourceslices", "ResourceSlice", _ALLOCATION, _ALLOCATION_VERSIONS, is_namespaced=False
)
DEVICE_CLASSES = Resource(
    "deviceclasses", "DeviceClass", _ALLOCATION, _ALLOCATION_VERSIONS, is_namespaced=False
)
CLAIMS = Resource("resourceclaims", "ResourceClaim", _ALLOCATION, _ALLOCATION_VERSIONS)
CLAIM_TEMPLATES = Resource(
    "resourceclaimtemplates", "ResourceClaimTemplate", _ALLOCATION, _ALLOCATION_VERSIONS
)
TAINT_RULES = Resource(
    "devicetaintrules",
    "DeviceTaintRule",
    _ALLOCATION,
    ("v1", "v1beta2", "v1alpha3"),
    is_namespaced=False,
)
# The two ways in which NVIDIA's operator offers GPUs (NVIDIA/gpu-operator config/crd/bases).
CLUSTER_POLICIES = Resource(
    "clusterpolicies", "ClusterPolicy", "nvidia.com", ("v1",), is_namespaced=False
)
GPU_CLUSTERS = Resource(
    "gpuclusters", "GPUCluster", "nvidia.com", ("v1alpha1",), is_namespaced=False
)
NVIDIA_DRIVERS = Resource(
    "nvidiadrivers", "NVIDIADriver", "nvidia.com", ("v1alpha1",), is_namespaced=False
)
# Kueue 0.14 has v1beta2, and releases before it the other.
_KUEUE, _KUEUE_VERSIONS = "kueue.x-k8s.io", ("v1beta2", "v1beta1")
CLUSTER_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES = (
    Resource(name, kind, _KUEUE, _KUEUE_VERSIONS, is_namespaced=False)
    for name, kind in (
        ("clusterqueues", "ClusterQueue"),
        ("resourceflavors", "ResourceFlavor"),
        ("topologies", "Topology"),
    )
)
LOCAL_QUEUES = Resource("localqueues", "LocalQueue", _KUEUE, _KUEUE_VERSIONS)
KUEUE_WORKLOADS = Resource("workloads", "Workload", _KUEUE, _KUEUE_VERSIONS)
VOLCANO_QUEUES = Resource(
    "queues", "Queue", "scheduling.volcano.sh", ("v1beta1",), is_namespaced=False
)
_TRAINER = "trainer.kubeflow.org"
TRAINING_RUNTIMES = Resource("trainingruntimes", "TrainingRuntime", _TRAINER, ("v1alpha1",))
CLUSTER_TRAINING_RUNTIMES = Resource(
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    _TRAINER,
    ("v1alpha1",),
    is_namespaced=False,
)
KAI_QUEUES = Resource("queues", "Queue", "scheduling.run.ai", ("v2",), is_namespaced=False)
PERSISTENT_VOLUMES = Resource("persistentvolumes", "PersistentVolume", is_namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("persistentvolumeclaims", "PersistentVolumeClaim")
_STORAGE = "storage.k8s.io"
STORAGE_CLASSES = Resource("storageclasses", "StorageClass", _STORAGE, is_namespaced=False)
CSI_DRIVERS = Resource("csidrivers", "CSIDriver", _STORAGE, is_namespaced=False)
CSI_NODES = Resource("csinodes", "CSINode", _STORAGE, is_namespaced=False)
CSI_CAPACITIES = Resource("csistoragecapacities", "CSIStorageCapacity", _STORAGE)
VOLUME_ATTACHMENTS = Resource(
    "volumeattachments", "VolumeAttachment", _STORAGE, is_namespaced=False
)
RUNTIME_CLASSES = Resource("runtimeclasses", "RuntimeClass", "node.k8s.io", is_namespaced=False)
CONFIG_MAPS = Resource("configmaps", "ConfigMap")
QUOTAS = Resource("resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("limitranges", "LimitRange")
SECRETS = Resource("secrets", "Secret")
SERVICES = Resource("services", "Service")
JOBS = Resource("jobs", "Job", "batch")
CRON_JOBS = Resource("cronjobs", "CronJob", "batch")
NETWORK_POLICIES = Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io")
SERVICE_ACCOUNTS = Resource("serviceaccounts", "ServiceAccount")
_RBAC = "rbac.authorization.k8s.io"
ROLES, ROLE_BINDINGS = (
    Resource("roles", "Role", _RBAC),
    Resource("rolebindings", "RoleBinding", _RBAC),
)
CLUSTER_ROLES = Resource("clusterroles", "ClusterRole", _RBAC, is_namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "clusterrolebindings", "ClusterRoleBinding", _RBAC, is_namespaced=False
)
LEASES = Resource("leases", "Lease", "coordination.k8s.io")
GPU_EXCEPTIONS = Resource("gpuexceptions", "GpuException", "gpuward.io", ("v1alpha1",))
MUTATING = Resource(
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    _REGISTRATION,
    is_namespaced=False,
)
VALIDATING = Resource(
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    _REGISTRATION,
    is_namespaced=False,
)
VALIDATING_POLICIES = Resource(
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    _REGISTRATION,
    is_namespaced=False,
)
VALIDATING_BINDINGS = Resource(
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    _REGISTRATION,
    is_namespaced=False,
)
MUTATING_POLICIES = Resource(
    "mutatingadmissionpolicies", "MutatingAdmissionPolicy", _REGISTRATION, is_namespaced=False
)
MUTATING_BINDINGS = Resource(
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    _REGISTRATION,
    is_namespaced=False,
)


# Label selectors, matched as API servers do it.


def matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Return whether `labels` match every term of `selector`; an empty selector matches everything.

    Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`, Matches.
    """
    return all(
        labels.get(key) == value for key, value in as_object(selector.get("matchLabels")).items()
    ) and all(_fits(term, labels) for _, term in as_objects(selector.get("matchExpressions")))


def _fits(term: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = as_text(term.get("key")), term.get("values")
    values = values if isinstance(values, list) else []
    match term.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


_FOLDER = "/var/lib/kubelet/device-plugins"


def is_device_plugin(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod with this `spec` mounts the folder in which device plugins register."""
    paths = (
        as_text(as_object(volume.get("hostPath")).get("path"))
        for _, volume in as_objects(spec.get("volumes"))
    )
    return any(path.rstrip("/") == _FOLDER for path in paths)
