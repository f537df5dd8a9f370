"""The kinds that rules are about as a whole, and where those that make nodes say how."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_text, values_at
from rules.base.text_matching import matches_any
from rules.base.traits import (
    CLAIM_OBJECT,
    CLUSTER_QUEUE,
    DEVICE_CLASS,
    DEVICE_PLUGIN_CONFIG,
    DEVICE_TAINT_RULE,
    GPU_OPERATOR,
    KUBELET_CONFIG,
    LEGACY_VARIABLES,
    LIMIT_RANGE,
    NODE,
    NODE_CHOOSING_OBJECT,
    NODE_POOL,
    QUOTA,
    WEBHOOK_CONFIGURATION,
)
from rules.objects.kubernetes_objects import CLAIM_GROUP
from rules.profile.platforms.device_variables import DEVICE_VARIABLES, SHARE_VARIABLES
from rules.profile.profile import Profile
from rules.workloads.files_in_objects import has_plugin_words


class NodeFields(NamedTuple):
    """The places where an object describes nodes.

    In `base_path`, `*` stands for every element of a list.

    All other paths begin there.

    - `labels`: the map of labels.
    - `label_list`: labels as a list of objects with `key` and `value`.
    - `arguments`: the arguments of the kubelet, a map or a list of objects with `name` and `value`.
    - `cpu_policies`: the CPU policy of the kubelet.
    - `requirements`: labels that the nodes must have, a list of objects with `key`, `operator` and
      `values`.
    - `choices`: a label that the nodes must have, and the field with its value.
    - `taints`: a list of objects with `effect`, or of texts such as `key=value:NoSchedule`; or a
      map from a key to `value:effect`. Empty where the platform may add taints of its own.
    """

    base_path: Path
    labels: Path = ()
    label_list: Path = ()
    arguments: Path = ()
    cpu_policies: tuple[Path, ...] = ()
    taints: Path = ()
    requirements: Path = ()
    choices: tuple[tuple[str, Path], ...] = ()


def field_types(described: tuple[NodeFields, ...]) -> Mapping[str, Any]:
    """The types of the fields that lead to labels and arguments, as in `workloads.field_types`."""
    types: dict[str, Any] = {}
    for fields in described:
        _add_object_types(types, (*fields.base_path, *fields.labels))
        if fields.label_list:
            _add_object_types(types, (*fields.base_path, *fields.label_list, "*"))
        if fields.requirements:
            _add_object_types(types, (*fields.base_path, *fields.requirements, "*"))
        for _, path in fields.choices:
            _add_object_types(types, (*fields.base_path, *path[:-1]))
    return types


def _add_object_types(types: dict[str, Any], path: Path) -> None:
    """Make every step of `path` an object, and a list of objects where `*` follows."""
    for step, following in zip(path, (*path[1:], None), strict=True):
        if step == "*":
            continue
        inner = types.setdefault(str(step), [{}] if following == "*" else {})
        types = inner[0] if following == "*" else inner


_CPU_POLICY_FIELD = "cpuManagerPolicy"
_KUBELET_CONFIG = (("kubeletConfig", _CPU_POLICY_FIELD),)
_ARGUMENTS_PATH = ("kubeletExtraArgs",)
_REGISTRATION_FIELD = "nodeRegistration"
_TAINTS = ("taints",)
_JOINING_NODE = NodeFields((_REGISTRATION_FIELD,), arguments=_ARGUMENTS_PATH, taints=_TAINTS)
# Without taints of its own, the first node gets that of the control plane.
_FIRST_NODE = NodeFields((_REGISTRATION_FIELD,), arguments=_ARGUMENTS_PATH)
_TEMPLATE_SPEC = ("spec", "template", "spec")


def _azure_fields(*place: str) -> NodeFields:
    labels, taints = ("nodeLabels",), ("nodeTaints",)
    return NodeFields(place, labels=labels, cpu_policies=_KUBELET_CONFIG, taints=taints)


def _kubeadm_fields(*place: str) -> tuple[NodeFields, ...]:
    """Return where a kubeadm configuration at `place` of another object describes nodes."""
    made = (("joinConfiguration", _JOINING_NODE), ("initConfiguration", _FIRST_NODE))
    return tuple(
        fields._replace(base_path=(*place, name, _REGISTRATION_FIELD)) for name, fields in made
    )


# The labels that GKE gives to nodes by these fields. Compute Engine has the same names of GPUs.
_GKE_GPU = "cloud.google.com/gke-accelerator"
_GKE_TPU = "cloud.google.com/gke-tpu-accelerator"
_GKE_DRIVER = "cloud.google.com/gke-gpu-driver-version"
_GUEST_ACCELERATORS = ((_GKE_GPU, ("guestAccelerators", "*", "type")),)


def _crossplane_fields(field: str) -> NodeFields:
    return NodeFields(
        ("spec", field),
        label_list=("labels",),
        cpu_policies=(("cpuPolicy",), ("kubeletConfiguration", "*", _CPU_POLICY_FIELD)),
    )


# Group and kind -> where objects of this kind describe the nodes that they make.
NODE_POOL_KINDS: Mapping[tuple[str, str], tuple[NodeFields, ...]] = {
    ("karpenter.sh", "NodePool"): (
        NodeFields(
            _TEMPLATE_SPEC[:2],
            labels=("metadata", "labels"),
            taints=("spec", "taints"),
            requirements=("spec", "requirements"),
        ),
    ),
    # https://docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass, and with the
    # values in kcl-lang/modules gke/v1/cloud_google_com_v1_compute_class.k. GKE itself taints nodes
    # with GPUs.
    ("cloud.google.com", "ComputeClass"): (
        NodeFields(("spec", "nodePoolConfig"), labels=("nodeLabels",)),
        NodeFields(
            ("spec", "priorities", "*"),
            choices=(
                (_GKE_GPU, ("gpu", "type")),
                (_GKE_DRIVER, ("gpu", "driverVersion")),
                (_GKE_TPU, ("tpu", "type")),
            ),
        ),
    ),
    # kubernetes/kops docs/gpu.md, docs/instance_groups.md, pkg/apis/kops/v1alpha2/instancegroup.go.
    # Whether kOps adds taints is not known.
    ("kops.k8s.io", "InstanceGroup"): (
        NodeFields(
            ("spec",),
            labels=("nodeLabels",),
            cpu_policies=(("kubelet", _CPU_POLICY_FIELD),),
            choices=((_GKE_GPU, ("guestAccelerators", "*", "acceleratorType")),),
        ),
    ),
    # gardener/gardener example/90-shoot.yaml, and the WorkerConfig of
    # gardener/gardener-extension-provider-gcp docs/usage/usage.md
    ("core.gardener.cloud", "Shoot"): (
        NodeFields(
            ("spec", "provider", "workers", "*"),
            labels=("labels",),
            cpu_policies=(("kubernetes", "kubelet", _CPU_POLICY_FIELD),),
            taints=_TAINTS,
            choices=((_GKE_GPU, ("providerConfig", "gpu", "acceleratorType")),),
        ),
    ),
    # https://docs.aws.amazon.com/eks/latest/eksctl/schema.html
    ("eksctl.io", "ClusterConfig"): (
        NodeFields(("managedNodeGroups", "*"), labels=("labels",), taints=_TAINTS),
        NodeFields(
            ("nodeGroups", "*"),
            labels=("labels",),
            cpu_policies=(("kubeletExtraConfig", _CPU_POLICY_FIELD),),
            taints=_TAINTS,
        ),
    ),
    # aws-controllers-k8s/eks-controller config/crd/bases/eks.services.k8s.aws_nodegroups.yaml
    ("eks.services.k8s.aws", "Nodegroup"): (
        NodeFields(("spec",), labels=("labels",), taints=_TAINTS),
    ),
    # GoogleCloudPlatform/k8s-config-connector crds/container_v1beta1_containernodepool.yaml
    ("container.cnrm.cloud.google.com", "ContainerNodePool"): (
        NodeFields(
            ("spec", "nodeConfig"),
            labels=("labels",),
            cpu_policies=_KUBELET_CONFIG,
            choices=((_GKE_GPU, ("guestAccelerator", "*", "type")),),
        ),
    ),
    # Azure/azure-service-operator v2/api/containerservice
    ("containerservice.azure.com", "ManagedCluster"): (
        _azure_fields("spec", "agentPoolProfiles", "*"),
    ),
    ("containerservice.azure.com", "ManagedClustersAgentPool"): (_azure_fields("spec"),),
    # crossplane-contrib/provider-upjet-alibabacloud
    # package/crds/ack.alibabacloud.crossplane.io_kubernetesnodepools.yaml
    ("ack.alibabacloud.crossplane.io", "KubernetesNodePool"): (
        _crossplane_fields("forProvider"),
        _crossplane_fields("initProvider"),
    ),
    # kubernetes/kubernetes cmd/kubeadm/app/apis/kubeadm: a map, and since v1beta4 a list
    ("kubeadm.k8s.io", "InitConfiguration"): (_FIRST_NODE,),
    ("kubeadm.k8s.io", "JoinConfiguration"): (_JOINING_NODE,),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"): _kubeadm_fields("spec"),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"): _kubeadm_fields(*_TEMPLATE_SPEC),
    # The providers of Cluster API for AWS, Azure and Google Cloud: exp/api and api, *_types.go
    ("infrastructure.cluster.x-k8s.io", "AWSManagedMachinePool"): (
        NodeFields(("spec",), labels=("labels",), taints=_TAINTS),
    ),
    ("infrastructure.cluster.x-k8s.io", "AzureManagedMachinePool"): (
        _azure_fields("spec")._replace(taints=_TAINTS),
    ),
    ("infrastructure.cluster.x-k8s.io", "AzureASOManagedMachinePool"): (
        _azure_fields("spec", "resources", "*", "spec"),
    ),
    ("infrastructure.cluster.x-k8s.io", "GCPManagedMachinePool"): (
        NodeFields(("spec",), labels=("kubernetesLabels",)),
    ),
    ("infrastructure.cluster.x-k8s.io", "GCPMachinePool"): (
        NodeFields(("spec",), choices=_GUEST_ACCELERATORS),
    ),
    ("infrastructure.cluster.x-k8s.io", "GCPMachineTemplate"): (
        NodeFields(_TEMPLATE_SPEC, choices=_GUEST_ACCELERATORS),
    ),
}


# The kinds that rules are about, apart from pods. A built-in workload is a subject beside its pod
# without being listed here.


class ObjectKind(NamedTuple):
    """The trait of a kind, and the types of the fields that rules read, as in `field_types`.

    - `name`: rules evaluate only objects whose names begin with this text.
    - `nodes`: where objects of this kind describe nodes.
    - `quota`: the path of the spec of a ResourceQuota in it, with `*` for every element of a list.
    """

    trait: int
    fields: Mapping[str, Any]
    name: str = ""
    nodes: tuple[NodeFields, ...] = ()
    quota: Path = ()


_NODE: Mapping[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"taints": [{}]},
    "status": {"capacity": {}, "allocatable": {}, "nodeInfo": {}},
}
_LIMIT_RANGE: Mapping[str, Any] = {
    "spec": {
        "limits": [
            {"default": {}, "defaultRequest": {}, "max": {}, "min": {}, "maxLimitRequestRatio": {}}
        ]
    }
}
_SELECTORS: Mapping[str, Any] = {"selectors": [{"cel": {}}], "tolerations": [{}]}
_CLAIM: Mapping[str, Any] = {
    "devices": {
        "requests": [{**_SELECTORS, "exactly": _SELECTORS, "firstAvailable": [_SELECTORS]}],
        "constraints": [{}],
        "config": [{"opaque": {"parameters": {}}}],
    }
}
_CLASS: Mapping[str, Any] = {"spec": {"selectors": [{"cel": {}}]}}
_WEBHOOKS: Mapping[str, Any] = {
    "webhooks": [
        {
            "clientConfig": {"service": {}},
            "rules": [{}],
            "namespaceSelector": {"matchLabels": {}, "matchExpressions": [{}]},
            "objectSelector": {},
            "matchConditions": [{}],
        }
    ]
}
_VARIABLES: Mapping[str, Any] = {"env": [{}]}
_OPERATOR: Mapping[str, Any] = {
    "spec": {"toolkit": _VARIABLES, "devicePlugin": _VARIABLES, "cdi": {}}
}
_KUEUE_GROUP = "kueue.x-k8s.io"
_QUEUE: Mapping[str, Any] = {"spec": {"resourceGroups": [{"flavors": [{"resources": [{}]}]}]}}
_RESOURCE_FLAVOR = NodeFields(("spec",), labels=("nodeLabels",))
# https://karpenter.sh/docs/concepts/nodeoverlays/
_NODE_OVERLAY = NodeFields(("spec",), requirements=("requirements",))
# https://www.alibabacloud.com/help/doc-detail/398680.html
_RESOURCE_POLICY_UNITS = NodeFields(("spec", "units", "*"), labels=("nodeSelector",))

# Group and kind -> where it has the spec of a ResourceQuota. Its controller makes ResourceQuotas of
# it, or counts by the same keys.
QUOTA_PATHS: Mapping[tuple[str, str], Path] = {
    ("", "ResourceQuota"): ("spec",),
    # kubeflow/dashboard components/profile-controller/api/v1/profile_types.go
    ("kubeflow.org", "Profile"): ("spec", "resourceQuotaSpec"),
    # openshift/api quota/v1/types.go
    ("quota.openshift.io", "ClusterResourceQuota"): ("spec", "quota"),
    # https://projectcapsule.dev/docs/tenants/quotas/ and resourcepools/
    ("capsule.clastix.io", "Tenant"): ("spec", "resourceQuotas", "items", "*"),
    ("capsule.clastix.io", "ResourcePool"): ("spec", "quota"),
    # loft-sh/kiosk examples/accountquota.yaml
    ("config.kiosk.sh", "AccountQuota"): ("spec", "quota"),
    # kubernetes-sigs/hierarchical-namespaces test/e2e/hrq_test.go; the other group is GKE's.
    ("hnc.x-k8s.io", "HierarchicalResourceQuota"): ("spec",),
    ("hierarchycontroller.configmanagement.gke.io", "HierarchicalResourceQuota"): ("spec",),
}


def _quota_kind(path: Path) -> ObjectKind:
    types: dict[str, Any] = {}
    _add_object_types(types, (*path, "hard"))
    return ObjectKind(QUOTA, types, quota=path)


# Group and kind -> what rules are about.
OBJECT_KINDS: Mapping[tuple[str, str], ObjectKind] = {
    ("", "Node"): ObjectKind(
        NODE,
        _NODE,
        nodes=(NodeFields((), labels=("metadata", "labels"), taints=("spec", "taints")),),
    ),
    **{
        kind: ObjectKind(NODE_POOL, field_types(fields), nodes=fields)
        for kind, fields in NODE_POOL_KINDS.items()
    },
    **{kind: _quota_kind(path) for kind, path in QUOTA_PATHS.items()},
    (CLAIM_GROUP, "ResourceClaim"): ObjectKind(CLAIM_OBJECT, {"spec": _CLAIM}),
    (CLAIM_GROUP, "ResourceClaimTemplate"): ObjectKind(CLAIM_OBJECT, {"spec": {"spec": _CLAIM}}),
    (CLAIM_GROUP, "DeviceClass"): ObjectKind(DEVICE_CLASS, _CLASS),
    (CLAIM_GROUP, "DeviceTaintRule"): ObjectKind(
        DEVICE_TAINT_RULE, {"spec": {"deviceSelector": {}, "taint": {}}}
    ),
    (_KUEUE_GROUP, "ClusterQueue"): ObjectKind(CLUSTER_QUEUE, _QUEUE),
    (_KUEUE_GROUP, "Cohort"): ObjectKind(CLUSTER_QUEUE, _QUEUE),
    (_KUEUE_GROUP, "ResourceFlavor"): ObjectKind(
        NODE_CHOOSING_OBJECT, field_types((_RESOURCE_FLAVOR,)), nodes=(_RESOURCE_FLAVOR,)
    ),
    ("karpenter.sh", "NodeOverlay"): ObjectKind(
        NODE_CHOOSING_OBJECT, field_types((_NODE_OVERLAY,)), nodes=(_NODE_OVERLAY,)
    ),
    ("scheduling.alibabacloud.com", "ResourcePolicy"): ObjectKind(
        NODE_CHOOSING_OBJECT,
        field_types((_RESOURCE_POLICY_UNITS,)),
        nodes=(_RESOURCE_POLICY_UNITS,),
    ),
    ("", "LimitRange"): ObjectKind(LIMIT_RANGE, _LIMIT_RANGE),
    ("kubelet.config.k8s.io", "KubeletConfiguration"): ObjectKind(KUBELET_CONFIG, {}),
    # kubeadm keeps the configuration of the kubelets here.
    ("", "ConfigMap"): ObjectKind(KUBELET_CONFIG, {"data": {}}, name="kubelet-config"),
    # NVIDIA/gpu-operator config/crd/bases/nvidia.com_clusterpolicies.yaml
    ("nvidia.com", "ClusterPolicy"): ObjectKind(GPU_OPERATOR, _OPERATOR),
    # NVIDIA/gpu-operator api/nvidia/v1alpha1/nvidiadriver_types.go
    ("nvidia.com", "NVIDIADriver"): ObjectKind(GPU_OPERATOR, {"spec": {"nodeSelector": {}}}),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): ObjectKind(
        WEBHOOK_CONFIGURATION, _WEBHOOKS
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): ObjectKind(
        WEBHOOK_CONFIGURATION, _WEBHOOKS
    ),
}
_PLUGIN_CONFIG = ObjectKind(DEVICE_PLUGIN_CONFIG, {"data": {}})


def object_kind_of(group: str, kind: str, raw: Mapping[str, Any]) -> ObjectKind | None:
    """The entry for the object `raw`; None if no rule is about objects like it as a whole."""
    found = OBJECT_KINDS.get((group, kind))
    if found is None or not found.name:
        return found
    if as_text(as_object(raw.get("metadata")).get("name")).startswith(found.name):
        return found
    texts = map(as_text, as_object(raw.get("data")).values())
    return _PLUGIN_CONFIG if any(map(has_plugin_words, texts)) else None


# ConfigMaps and Secrets are such objects by their keys: a container that takes all its variables
# from one (`envFrom`) gets a variable by each key.

# API group and kind -> the fields that have keys. Of a key in several fields the first counts: the
# API server lays `stringData` over `data`, and stores nothing else; of the other two kinds
# controllers make Secrets, with the keys of their templates above the others
# (bitnami-labs/sealed-secrets pkg/apis/sealedsecrets/v1alpha1/sealedsecret_expansion.go,
# external-secrets/external-secrets pkg/controllers/externalsecret).
KEY_FIELDS: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("", "ConfigMap"): (("data",), ("binaryData",)),
    ("", "Secret"): (("stringData",), ("data",)),
    ("bitnami.com", "SealedSecret"): (("spec", "template", "data"), ("spec", "encryptedData")),
    ("external-secrets.io", "ExternalSecret"): (("spec", "target", "template", "data"),),
}


def granting_variables(profile: Profile) -> tuple[str, ...]:
    """Return the variables by which a container can get GPUs or more of one: names and patterns."""
    old, _ = LEGACY_VARIABLES
    visible = (*profile.visible_devices, *profile.alternative_variables, old)
    return (*visible, *DEVICE_VARIABLES, *SHARE_VARIABLES)


def granting_keys(
    raw: Mapping[str, Any], group: str, kind: str, profile: Profile
) -> Iterator[tuple[Path, str]]:
    """Yield each key of the object `raw` that is such a variable: its path, and the key."""
    patterns = granting_variables(profile)
    found: set[str] = set()
    for field in KEY_FIELDS.get((group, kind), ()):
        for path, keys in values_at(raw, field):
            for key in as_object(keys):
                if key not in found and matches_any(patterns, key):
                    found.add(key)
                    yield (*path, key), key
