"""Workloads with GPUs, one of each controller, as its own documentation writes them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE = "gpus"
RESOURCE = "nvidia.com/gpu"
_IMAGE = "registry.example/train:1"
_CUDA_IMAGE = "nvcr.io/nvidia/pytorch:25.01-py3"
_BYPASS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def pod_spec(gpus: int = 1, **fields: Any) -> dict[str, Any]:
    """The specification of a pod whose container has GPUs, or sees all without requesting one."""
    container: dict[str, Any] = {"name": "main", "image": _IMAGE, "command": ["sleep", "60"]}
    amounts = {"cpu": "1", "memory": "1Gi"}
    if gpus:
        amounts[RESOURCE] = str(gpus)
    else:
        container["env"] = [_BYPASS]
    container["resources"] = {"requests": dict(amounts), "limits": dict(amounts)}
    return {"containers": [container], **fields}


def _without_gpus(**fields: Any) -> dict[str, Any]:
    """The specification of a pod that asks for no GPU."""
    spec = pod_spec(1, **fields)
    for amounts in spec["containers"][0]["resources"].values():
        del amounts[RESOURCE]
    return spec


@dataclass(frozen=True)
class Example:
    """A workload: its manifest, and how many pods it gets, of which `gpu_pods` have GPUs."""

    name: str
    manifest: dict[str, Any]
    pods: int
    gpu_pods: int

    def queued(self, queue: str = QUEUE) -> Example:
        """The same workload in a queue of Kueue."""
        manifest = copy.deepcopy(self.manifest)
        manifest["metadata"].setdefault("labels", {})[QUEUE_LABEL] = queue
        return Example(self.name, manifest, self.pods, self.gpu_pods)

    @property
    def resource(self) -> str:
        """The kind and the name, as kubectl takes them."""
        group = self.manifest["apiVersion"].rpartition("/")[0]
        kind = self.manifest["kind"].lower()
        return f"{kind}{'.' * bool(group)}{group}/{self.manifest['metadata']['name']}"


def _workload(api_version: str, kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": kind.lower(), **metadata},
        "spec": spec,
    }


def _job_spec(gpus: int, pods: int) -> dict[str, Any]:
    template = {"spec": pod_spec(gpus, restartPolicy="Never")}
    return {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}


def pod(gpus: int = 1) -> Example:
    """A Pod."""
    return Example("pod", _workload("v1", "Pod", pod_spec(gpus)), pods=1, gpu_pods=1)


def pod_without_gpus(**labels: str) -> Example:
    """A Pod that asks for no GPU."""
    manifest = _workload("v1", "Pod", _without_gpus(), labels=labels)
    return Example("pod_without_gpus", manifest, pods=1, gpu_pods=0)


def job_without_gpus(**labels: str) -> Example:
    """A Job whose pod asks for no GPU; the pod has the labels."""
    spec = _job_spec(1, 1)
    spec["template"] = {
        "metadata": {"labels": labels},
        "spec": _without_gpus(restartPolicy="Never"),
    }
    return Example("job_without_gpus", _workload("batch/v1", "Job", spec), pods=1, gpu_pods=0)


def job(gpus: int = 1, pods: int = 2) -> Example:
    """A Job."""
    manifest = _workload("batch/v1", "Job", _job_spec(gpus, pods))
    return Example("job", manifest, pods=pods, gpu_pods=pods)


def job_set(gpus: int = 1) -> Example:
    """A JobSet with a driver and two workers, of which the workers have GPUs."""
    driver = _job_spec(1, 1)
    driver["template"] = {"spec": _without_gpus(restartPolicy="Never")}
    replicated = [
        {"name": "driver", "replicas": 1, "template": {"spec": driver}},
        {"name": "workers", "replicas": 2, "template": {"spec": _job_spec(gpus, 1)}},
    ]
    manifest = _workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": replicated})
    return Example("job_set", manifest, pods=3, gpu_pods=2)


def leader_worker_set(gpus: int = 1) -> Example:
    """A LeaderWorkerSet of one group: a leader and a worker, each with GPUs."""
    template = {"size": 2, "workerTemplate": {"spec": pod_spec(gpus)}}
    spec = {"replicas": 1, "leaderWorkerTemplate": template}
    manifest = _workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    return Example("leader_worker_set", manifest, pods=2, gpu_pods=2)


def _ray_cluster_spec(gpus: int) -> dict[str, Any]:
    head, worker_pod = _without_gpus(), pod_spec(gpus)
    for spec in (head, worker_pod):
        spec["containers"][0] |= {"name": "ray", "image": "rayproject/ray:2.46.0-gpu"}
        del spec["containers"][0]["command"]
    worker = {
        "groupName": "gpus",
        "replicas": 1,
        "minReplicas": 1,
        "maxReplicas": 1,
        "rayStartParams": {},
        "template": {"spec": worker_pod},
    }
    return {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": head}},
        "workerGroupSpecs": [worker],
    }


def ray_cluster(gpus: int = 1) -> Example:
    """A RayCluster with a head and a worker with GPUs."""
    manifest = _workload("ray.io/v1", "RayCluster", _ray_cluster_spec(gpus))
    return Example("ray_cluster", manifest, pods=2, gpu_pods=1)


def ray_job(gpus: int = 1) -> Example:
    """A RayJob, of which there is no more than its cluster: nothing in it answers."""
    spec = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _ray_cluster_spec(gpus),
    }
    return Example("ray_job", _workload("ray.io/v1", "RayJob", spec), pods=2, gpu_pods=1)


def ray_service(gpus: int = 1) -> Example:
    """A RayService, of which there is no more than its cluster either."""
    spec = {"rayClusterConfig": _ray_cluster_spec(gpus)}
    return Example("ray_service", _workload("ray.io/v1", "RayService", spec), pods=2, gpu_pods=1)


def inference_service(gpus: int = 1) -> Example:
    """An InferenceService of KServe without Knative, with a container of its own."""
    spec = pod_spec(gpus)
    spec["containers"][0] |= {"name": "kserve-container", "image": "registry.example/serve:1"}
    manifest = _workload(
        "serving.kserve.io/v1beta1",
        "InferenceService",
        {"predictor": {"minReplicas": 1, **spec}},
        annotations={"serving.kserve.io/deploymentMode": "RawDeployment"},
    )
    return Example("inference_service", manifest, pods=1, gpu_pods=1)


def served_model(gpus: int = 1) -> Example:
    """One of a model, whose container is in a ClusterServingRuntime."""
    example = inference_service(gpus)
    spec = example.manifest["spec"]["predictor"]
    [container] = spec.pop("containers")
    model = {"modelFormat": {"name": "huggingface"}, "args": ["--model_name=llama3"]}
    spec["model"] = {**model, **{k: container[k] for k in ("resources", "env") if k in container}}
    return example


def train_job(gpus: int = 1) -> Example:
    """A TrainJob of two nodes; its runtime is `training_runtime`."""
    amounts = pod_spec(gpus)["containers"][0]["resources"]
    trainer: dict[str, Any] = {"numNodes": 2, "resourcesPerNode": amounts, "image": _CUDA_IMAGE}
    if not gpus:
        trainer["env"] = [_BYPASS]
    spec = {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}, "trainer": trainer}
    manifest = _workload("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)
    return Example("train_job", manifest, pods=2, gpu_pods=2)


def training_runtime() -> dict[str, Any]:
    """The TrainingRuntime of `train_job`."""
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    container = {"name": "node", "image": _CUDA_IMAGE}
    job_template = {
        "metadata": {"labels": label},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job_template}]}},
    }
    manifest = _workload("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", spec)
    manifest["metadata"] = {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    return manifest


EXAMPLES = {
    make.__name__: make
    for make in (job, job_set, leader_worker_set, ray_cluster, ray_job, ray_service, train_job)
}


def cluster_queue(
    gpus: int, flavor: dict[str, Any], *others: dict[str, Any]
) -> list[dict[str, Any]]:
    """ResourceFlavors, and a ClusterQueue named as the first, of which it has so many GPUs."""
    amounts = {"cpu": "100", "memory": "500Gi", RESOURCE: str(gpus)}
    flavors = []
    for each in (flavor, *others):
        resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        flavors.append({"name": each["metadata"]["name"], "resources": resources})
        amounts[RESOURCE] = "0"
    group = {"coveredResources": list(amounts), "flavors": flavors}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    queue = _workload("kueue.x-k8s.io/v1beta2", "ClusterQueue", spec)
    return [flavor, *others, {**queue, "metadata": {"name": flavor["metadata"]["name"]}}]


def resource_flavor(name: str, **fields: Any) -> dict[str, Any]:
    """A ResourceFlavor; `fields` are those of its specification."""
    flavor = _workload("kueue.x-k8s.io/v1beta2", "ResourceFlavor", fields)
    return {**flavor, "metadata": {"name": name}}


def local_queue(cluster_queue: str, name: str = QUEUE) -> dict[str, Any]:
    """A LocalQueue."""
    made = _workload("kueue.x-k8s.io/v1beta2", "LocalQueue", {"clusterQueue": cluster_queue})
    return {**made, "metadata": {"name": name}}
