"""Kinds of objects and where they keep their pods, as data for `workloads`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from rules.document import Path
from rules.layout import Layout

# Built-in kind -> where its pod template is.
BUILT_IN: Mapping[str, Path] = {
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

# Kinds of the core group that hold no pods and are common enough to be worth a look-up.
PLAIN = frozenset(
    {"ConfigMap", "Secret", "Service", "ServiceAccount", "Namespace", "Endpoints", "Event"}
    | {"PersistentVolume", "PersistentVolumeClaim", "LimitRange", "Node"}
)

# Groups whose objects hold patterns of pods, or schemas, but never pods.
PATTERNS = (
    "kyverno.io",
    "*.kyverno.io",
    "*.gatekeeper.sh",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "policies.kubewarden.io",
    "policy.open-cluster-management.io",
    "gpuward.io",
)

# Paths of pods, with `*` for every element of a list, and what is where in them.
OddPods: TypeAlias = tuple[tuple[Path, Layout], ...]

_TEMPLATE = Layout(
    lists=(
        (("initContainers",), "init"),
        (("containerSet", "containers"), "app"),
        (("sidecars",), "app"),
    ),
    singles=("container", "script"),
)
_ARGO = (
    (("templateDefaults",), _TEMPLATE),
    (("templates", "*"), _TEMPLATE),
    (("templates", "*", "steps", "*", "*", "inline"), _TEMPLATE),
    (("templates", "*", "dag", "tasks", "*", "inline"), _TEMPLATE),
)
_MODEL = Layout(
    lists=((("initContainers",), "init"), (("containers",), "app")),
    singles=(
        *("model", "huggingface", "triton", "pytorch", "tensorflow", "onnx"),
        *("sklearn", "xgboost", "lightgbm", "paddle", "pmml"),
        *("art", "alibi"),
    ),
    bare=True,
)
_KSERVE = ((("predictor",), _MODEL), (("transformer",), _MODEL), (("explainer",), _MODEL))
_SPARK = Layout(
    lists=((("initContainers",), "init"), (("sidecars",), "app")),
    itself=True,
    bare=True,
    gpu_field="gpu",
)
_SPARK_PODS = ((("driver",), _SPARK), (("executor",), _SPARK))
_TRAINER = Layout(lists=(), itself=True, resources="resourcesPerNode")
# What is a container, or a part of one, by itself.
_ALONE = Layout(lists=(), itself=True)
_TASK = Layout(lists=((("steps",), "app"), (("sidecars",), "app")), resources="computeResources")


def _below(prefix: Path, pods: OddPods) -> OddPods:
    return tuple(((*prefix, *path), layout) for path, layout in pods)


# Group and kind of what keeps pods in a shape of its own.
ODD: Mapping[tuple[str, str], OddPods] = {
    ("argoproj.io", "Workflow"): _below(("spec",), _ARGO),
    ("argoproj.io", "WorkflowTemplate"): _below(("spec",), _ARGO),
    ("argoproj.io", "ClusterWorkflowTemplate"): _below(("spec",), _ARGO),
    ("argoproj.io", "CronWorkflow"): _below(("spec", "workflowSpec"), _ARGO),
    ("serving.kserve.io", "InferenceService"): _below(("spec",), _KSERVE),
    ("sparkoperator.k8s.io", "SparkApplication"): _below(("spec",), _SPARK_PODS),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _below(
        ("spec", "template"), _SPARK_PODS
    ),
    ("tekton.dev", "Task"): ((("spec",), _TASK),),
    ("tekton.dev", "ClusterTask"): ((("spec",), _TASK),),
    ("tekton.dev", "TaskRun"): ((("spec", "taskSpec"), _TASK),),
    ("kubeflow.org", "PodDefault"): ((("spec",), _ALONE),),
    ("apps.nvidia.com", "NIMService"): ((("spec",), _ALONE),),
    ("trainer.kubeflow.org", "TrainJob"): (
        (("spec", "initializer", "dataset"), _ALONE),
        (("spec", "initializer", "model"), _ALONE),
        (("spec", "trainer"), _TRAINER),
    ),
}
