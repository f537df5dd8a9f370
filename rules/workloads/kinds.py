"""Tables: the kinds that contain pods, and the paths of these pods in their manifests."""

from collections.abc import Mapping
from typing import TypeAlias

from rules.base.json_values import Path
from rules.objects.container import PodLayout

# Built-in kind -> the path of its pod template in the manifest.
POD_TEMPLATE_PATHS: Mapping[str, Path] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}

# Common kinds of the core group that contain no pods: a look-up is faster than a search.
KINDS_WITHOUT_PODS = frozenset(
    {"ConfigMap", "Secret", "Service", "ServiceAccount", "Namespace", "Endpoints", "Event"}
    | {"PersistentVolume", "PersistentVolumeClaim"}
)

# Kinds that hold whole objects, from which a controller or `oc process` creates these: group and
# kind, and the path of the objects, with `*` for every element of a list.
# openshift/api template/v1/types.go; older manifests have the core group
# open-cluster-management.io/api work/v1/types.go, work/v1alpha1/types_manifestworkreplicaset.go
# crossplane-contrib/provider-kubernetes: Object, of clusters and, with `.m.`, of namespaces
_WORK = ("workload", "manifests", "*")
_OBJECT_OF_CROSSPLANE: Path = ("spec", "forProvider", "manifest")
HOLDERS_OF_OBJECTS: Mapping[tuple[str, str], Path] = {
    ("", "Template"): ("objects", "*"),
    ("template.openshift.io", "Template"): ("objects", "*"),
    ("work.open-cluster-management.io", "ManifestWork"): ("spec", *_WORK),
    ("work.open-cluster-management.io", "ManifestWorkReplicaSet"): (
        *("spec", "manifestWorkTemplate"),
        *_WORK,
    ),
    ("kubernetes.crossplane.io", "Object"): _OBJECT_OF_CROSSPLANE,
    ("kubernetes.m.crossplane.io", "Object"): _OBJECT_OF_CROSSPLANE,
}

# API groups whose objects contain patterns of pods or schemas, never pods.
PATTERN_GROUPS = (
    "kyverno.io",
    "*.kyverno.io",
    "*.gatekeeper.sh",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "policies.kubewarden.io",
    "policy.open-cluster-management.io",
    "gpuward.io",
)

# API groups whose objects say how many GPUs there are or may be used, and ask for none.
CAPACITY_GROUPS = (
    *("karpenter.sh", "karpenter.*", "cluster.x-k8s.io", "*.cluster.x-k8s.io", "nfd.k8s-sigs.io"),
    *("autoscaling.x-k8s.io", "metrics.k8s.io", "resource.k8s.io", "topology.node.k8s.io"),
    *("scheduling.volcano.sh", "nodeinfo.volcano.sh", "kueue.x-k8s.io", "scheduling.run.ai"),
    *("scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "*.koordinator.sh", "*.yunikorn.apache.org"),
    "*.upbound.io",  # what Crossplane makes in clouds, such as groups of nodes
)

_TRAIN_JOB = ("trainer.kubeflow.org", "TrainJob")


def is_train_job(kind: str, group: str) -> bool:
    """Return whether the kind is a TrainJob, most of whose pods is in another object."""
    return (group, kind) == _TRAIN_JOB


# Paths of pods, with `*` for every element of a list, and the layout of each.
PodLayouts: TypeAlias = tuple[tuple[Path, PodLayout], ...]

_ARGO_TEMPLATE = PodLayout(
    container_lists=(
        (("initContainers",), "init"),
        (("containerSet", "containers"), "app"),
        (("sidecars",), "app"),
    ),
    single_containers=("container", "script"),
)
_ARGO_TEMPLATES: tuple[Path, ...] = (
    ("templateDefaults",),
    ("templates", "*"),
    ("templates", "*", "steps", "*", "*", "inline"),
    ("templates", "*", "dag", "tasks", "*", "inline"),
)
# Parts of pods, which the controller adds to them.
_ARGO_PATCH = PodLayout(is_whole=False, is_part=True, is_text=True)
_ARGO_METADATA = PodLayout(container_lists=(), metadata_in_spec=True, is_whole=False, is_part=True)
_ARGO_PODS = (
    (("podMetadata",), _ARGO_METADATA),
    (("podSpecPatch",), _ARGO_PATCH),
    *((path, _ARGO_TEMPLATE) for path in _ARGO_TEMPLATES),
    *(((*path, "podSpecPatch"), _ARGO_PATCH) for path in _ARGO_TEMPLATES),
)
# A runtime and the operator's defaults complete the pod, also one with `containers` of its own
# (kserve/kserve pkg/apis/serving/v1beta1/predictor_custom.go).
_KSERVE_COMPONENT = PodLayout(
    container_lists=((("initContainers",), "init"), (("containers",), "app")),
    single_containers=(
        *("model", "huggingface", "triton", "pytorch", "tensorflow", "onnx"),
        *("sklearn", "xgboost", "lightgbm", "paddle", "pmml", "tensorrt"),
        *("art", "alibi"),
    ),
    metadata_in_spec=True,
    is_whole=False,
)
_KSERVE_PODS = (
    (("predictor",), _KSERVE_COMPONENT),
    (("transformer",), _KSERVE_COMPONENT),
    (("explainer",), _KSERVE_COMPONENT),
)
# Until 2021 the group was KFServing's, and its first version had two alternatives of each component
# (kserve/kserve v0.4.1 pkg/apis/serving/v1alpha2/inferenceservice_types.go).
_KFSERVING_CUSTOM = PodLayout(container_lists=(), single_containers=("container",), is_whole=False)
_KFSERVING_PODS = (
    *_KSERVE_PODS,
    *(
        ((alternative, component, *below), layout)
        for alternative in ("default", "canary")
        for component in ("predictor", "transformer", "explainer")
        for below, layout in (((), _KSERVE_COMPONENT), (("custom",), _KFSERVING_CUSTOM))
    ),
)
# What serves a model on several nodes has a leader and workers beside, or in place of, the runner
# (sgl-project/ome pkg/apis/ome/v1beta1/inference_service.go).
_OME_POD = PodLayout(
    container_lists=((("initContainers",), "init"), (("containers",), "app")),
    single_containers=("runner",),
    is_whole=False,
)
_OME_COMPONENT = (
    ((), _OME_POD._replace(metadata_in_spec=True)),
    (("leader",), _OME_POD),
    (("worker",), _OME_POD),
)
_OME_RUNTIME = tuple(
    (("spec", component, *path), layout)
    for component in ("engineConfig", "decoderConfig", "routerConfig")
    for path, layout in _OME_COMPONENT
)
_OME_SERVICE = tuple(
    (("spec", component, *path), layout)
    for component in ("engine", "decoder", "router")
    for path, layout in _OME_COMPONENT
)
_SPARK = PodLayout(
    container_lists=((("initContainers",), "init"), (("sidecars",), "app")),
    is_container=True,
    metadata_in_spec=True,
    is_whole=False,
    gpu_field="gpu",
    settings_field="sparkConf",
    variables_field="envVars",
)
_SPARK_PODS = ((("driver",), _SPARK), (("executor",), _SPARK))
# The controller lays `resourcesPerNode` over the resources of the runtime's container, name by name
# (kubeflow/trainer pkg/runtime/resourcerequirements.go; before pull request 3602 it replaced them).
_TRAIN_JOB_TRAINER = PodLayout(
    container_lists=(),
    is_container=True,
    resources_field="resourcesPerNode",
    resources_overlay=True,
    is_whole=False,
)
# Since v1beta1 its components have ordinary templates of pods.
_DYNAMO_SERVICE = PodLayout(
    single_containers=("mainContainer",), is_whole=False, is_part=True, is_service=True
)
# The object itself is a container, or a part of one, of which an operator makes a pod.
_CONTAINER = PodLayout(container_lists=(), is_container=True, is_whole=False)
# Among other fields, it has variables of all containers of the pod.
_TEKTON_POD = _CONTAINER._replace(is_part=True)
_TEKTON_TASK = PodLayout(
    container_lists=((("steps",), "app"), (("sidecars",), "app")),
    resources_field="computeResources",
)
_TEKTON_STEPS = _TEKTON_POD._replace(resources_field="computeResources")
_TEKTON_TASKS = ((("stepTemplate",), _TEKTON_STEPS), ((), _TEKTON_TASK))
_TEKTON_PIPELINE = tuple(
    ((tasks, "*", "taskSpec", *path), layout)
    for tasks in ("tasks", "finally")
    for path, layout in _TEKTON_TASKS
)


def _with_prefix(prefix: Path, pods: PodLayouts) -> PodLayouts:
    return tuple(((*prefix, *path), layout) for path, layout in pods)


# Group and kind -> the pods, for custom kinds whose pods do not have the layout of a PodSpec.
CUSTOM_POD_LAYOUTS: Mapping[tuple[str, str], PodLayouts] = {
    ("argoproj.io", "Workflow"): _with_prefix(("spec",), _ARGO_PODS),
    ("argoproj.io", "WorkflowTemplate"): _with_prefix(("spec",), _ARGO_PODS),
    ("argoproj.io", "ClusterWorkflowTemplate"): _with_prefix(("spec",), _ARGO_PODS),
    ("argoproj.io", "CronWorkflow"): _with_prefix(("spec", "workflowSpec"), _ARGO_PODS),
    ("serving.kserve.io", "InferenceService"): _with_prefix(("spec",), _KSERVE_PODS),
    ("serving.kubeflow.org", "InferenceService"): _with_prefix(("spec",), _KFSERVING_PODS),
    ("ome.io", "InferenceService"): _OME_SERVICE,
    ("ome.io", "ServingRuntime"): _OME_RUNTIME,
    ("ome.io", "ClusterServingRuntime"): _OME_RUNTIME,
    ("sparkoperator.k8s.io", "SparkApplication"): _with_prefix(("spec",), _SPARK_PODS),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _with_prefix(
        ("spec", "template"), _SPARK_PODS
    ),
    ("tekton.dev", "Task"): _with_prefix(("spec",), _TEKTON_TASKS),
    ("tekton.dev", "ClusterTask"): _with_prefix(("spec",), _TEKTON_TASKS),
    ("tekton.dev", "TaskRun"): (
        *_with_prefix(("spec", "taskSpec"), _TEKTON_TASKS),
        (("spec", "podTemplate"), _TEKTON_POD),
    ),
    ("tekton.dev", "Pipeline"): _with_prefix(("spec",), _TEKTON_PIPELINE),
    ("tekton.dev", "PipelineRun"): (
        *_with_prefix(("spec", "pipelineSpec"), _TEKTON_PIPELINE),
        (("spec", "taskRunTemplate", "podTemplate"), _TEKTON_POD),
        (("spec", "podTemplate"), _TEKTON_POD),  # until v1
        (("spec", "taskRunSpecs", "*", "podTemplate"), _TEKTON_POD),
        (("spec", "taskRunSpecs", "*", "taskPodTemplate"), _TEKTON_POD),  # until v1
    ),
    # What it writes into the metadata of the pods that it chooses.
    ("apps.kruise.io", "SidecarSet"): ((("spec", "patchPodMetadata", "*"), _ARGO_METADATA),),
    ("kubeflow.org", "PodDefault"): ((("spec",), _CONTAINER),),
    ("apps.nvidia.com", "NIMService"): ((("spec",), _CONTAINER),),
    # Of its job these are the variables, the runtime class and the nodes.
    ("apps.nvidia.com", "NIMCache"): ((("spec",), _CONTAINER),),
    # SlinkyProject/slurm-operator api/v1alpha1: the operator adds the containers to the template.
    ("slinky.slurm.net", "NodeSet"): (
        (
            ("spec",),
            PodLayout(container_lists=(), single_containers=("slurmd", "logfile"), is_whole=False),
        ),
    ),
    # An experiment of Determined, as `sources.embedded_manifests` makes it: the container that
    # asks for GPUs is its own.
    ("determined.ai", "Experiment"): (
        (("spec", "pod_spec", "spec"), PodLayout(is_whole=False, is_part=True)),
    ),
    # NVIDIA/k8s-nim-operator config/samples/nim/pipelines: a service has the spec of a NIMService.
    ("apps.nvidia.com", "NIMPipeline"): ((("spec", "services", "*", "spec"), _CONTAINER),),
    ("nvidia.com", "DynamoGraphDeployment"): ((("spec", "services", "*"), _DYNAMO_SERVICE),),
    ("nvidia.com", "DynamoComponentDeployment"): ((("spec",), _DYNAMO_SERVICE),),
    # volcano-sh/kthena examples/model-booster: each worker is a pod, to which its backend adds
    # variables.
    ("workload.serving.volcano.sh", "ModelBooster"): (
        (("spec", "backends", "*"), _CONTAINER),
        (("spec", "backends", "*", "workers", "*"), _CONTAINER),
    ),
    _TRAIN_JOB: (
        (("spec", "initializer", "dataset"), _CONTAINER),
        (("spec", "initializer", "model"), _CONTAINER),
        (("spec", "trainer"), _TRAIN_JOB_TRAINER),
    ),
}
