"""AdmissionReviews as an API server sends them, with default values and managed fields.

They have marks where replicas, releases and templates differ: `benchmarks.admission.load`.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.admission.load import RELEASE, TEMPLATE, TIME, UID, VOLUME_SUFFIX

GPU = "nvidia.com/gpu"
MOUNT = {
    "name": f"kube-api-access-{VOLUME_SUFFIX}",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
}


def review(pod: dict[str, Any], operation: str = "CREATE") -> dict[str, Any]:
    """Return the AdmissionReview of a request about `pod`."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": UID,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": "team-vision",
        "operation": operation,
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "8d8bf1a4-64a5-4a5d-a3a3-0a3b1f1d5e2e",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def encoded(pod: dict[str, Any]) -> bytes:
    """Return the review of `pod` as the bytes of an HTTP body."""
    return json.dumps(review(pod), separators=(",", ":")).encode()


def gpu_pod(containers: int = 1, variables: int = 8) -> dict[str, Any]:
    """Return a pod to fix: GPU requests without limits, no toleration, and `all` devices."""
    return _pod([_container(f"worker-{n}", variables, broken=True) for n in range(containers)])


def large_gpu_pod() -> dict[str, Any]:
    """Return a pod of about 30 KB that needs ten fixes: four of its eight containers are valid."""
    pod = gpu_pod(8, 21)
    for container in pod["spec"]["containers"][4:]:
        container["env"].pop()
        container["resources"]["limits"][GPU] = container["resources"]["requests"][GPU]
    return pod


def unrelated_pod(variables: int = 8) -> dict[str, Any]:
    """Return a pod that has nothing to do with GPUs."""
    return _pod([_container("web", variables, broken=False)])


def _container(name: str, variables: int, *, broken: bool) -> dict[str, Any]:
    env = [{"name": f"SETTING_{n}", "value": f"value-{n}-of-{name}"} for n in range(variables)]
    requests = {"cpu": "4", "memory": "16Gi"}
    limits = {"cpu": "8", "memory": "32Gi"}
    if broken:
        env.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
        requests[GPU] = "1"
    return {
        "name": f"{name}-{TEMPLATE}",
        "image": f"registry.example.com/vision/{name}:v1.8.{RELEASE}",
        "command": ["python", "-m", "vision.train"],
        "args": ["--config", "/etc/vision/config.yaml", "--resume", "auto"],
        "env": env,
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/vision"},
            {**MOUNT, "readOnly": True},
        ],
        "ports": [{"containerPort": 8080, "protocol": "TCP", "name": "metrics"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }


def _pod(containers: list[dict[str, Any]]) -> dict[str, Any]:
    fields = {f"k:{json.dumps({'name': c['name']})}": _managed(c) for c in containers}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-6d4cf56db6"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "train-6d4cf56db6-",
            "creationTimestamp": None,
            "labels": {"app": "train", "pod-template-hash": "6d4cf56db6", "team": "vision"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [
                {**owner, "uid": "a7d7a1f5", "controller": True, "blockOwnerDeletion": True}
            ],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": f"2026-01-05T{TIME}",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:containers": fields}},
                }
            ],
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": "vision", "defaultMode": 420}},
                {
                    "name": MOUNT["name"],
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                },
            ],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "train",
            "serviceAccount": "train",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{state}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for state in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
    }


def _managed(container: dict[str, Any]) -> dict[str, Any]:
    """Return the managed fields of a container, which are a third of a pod's size."""
    env: dict[str, Any] = {
        f"k:{json.dumps({'name': e['name']})}": {".": {}, "f:value": {}} for e in container["env"]
    }
    return {".": {}, **{f"f:{key}": {} for key in container}, "f:env": {".": {}, **env}}
