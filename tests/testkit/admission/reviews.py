"""Calls of an API server about an object, as tests need them."""

from __future__ import annotations

import base64
import json
from typing import Any

from policies.loading import load_policy
from rules.finding import Action
from tests.testkit.cases import TODAY
from webhook.admission.decider import Decider
from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionReview, decode, encode

PLURALS = {
    ("", "Pod"): "pods",
    ("", "PodTemplate"): "podtemplates",
    ("", "ReplicationController"): "replicationcontrollers",
    ("", "ResourceQuota"): "resourcequotas",
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "CronJob"): "cronjobs",
    ("batch", "Job"): "jobs",
}


def call(
    new: Any,
    old: Any = None,
    *,
    operation: str = "",
    subresource: str = "",
    user: str = "alice",
    namespace: str = "team-vision",
) -> dict[str, Any]:
    """The AdmissionReview of the creation of `new`, or of its update from `old`."""
    group, _, version = new.get("apiVersion", "v1").rpartition("/")
    kind = {"group": group, "version": version, "kind": new["kind"]}
    plural = PLURALS.get((group, new["kind"]), new["kind"].lower() + "s")
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": group, "version": version, "resource": plural},
        "subResource": subresource,
        "name": new.get("metadata", {}).get("name", ""),
        "namespace": namespace,
        "operation": operation or ("UPDATE" if old else "CREATE"),
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def review(new: Any, old: Any = None, **circumstances: Any) -> AdmissionReview:
    """The same as the server decodes it."""
    return decode(json.dumps(call(new, old, **circumstances)).encode())


def response(asked: AdmissionReview, answer: Decision) -> dict[str, Any]:
    """What the API server is told, its patch decoded."""
    told: dict[str, Any] = json.loads(encode(asked, answer))["response"]
    if "patch" in told:
        told["patch"] = json.loads(base64.b64decode(told["patch"]))
    return told


class Door:
    """The admission of one policy, given as the keys of a policy file."""

    def __init__(self, policy: str = "", mode: Action = Action.DENY) -> None:
        text = f"apiVersion: gpuward.io/v1\nkind: Policy\n{policy}"
        self.judge = Decider(load_policy(text, "policy"))
        self.mode = mode

    def mutate(self, new: Any, old: Any = None, **circumstances: Any) -> Decision:
        """The answer of the mutating path."""
        return self.judge.mutate(review(new, old, **circumstances), self.mode, TODAY)

    def validate(self, new: Any, old: Any = None, **circumstances: Any) -> Decision:
        """The answer of the validating path."""
        return self.judge.validate(review(new, old, **circumstances), self.mode, TODAY)


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container."""
    return {"name": name, "image": "registry.example.com/app:1", **fields}


def gpus(**amounts: Any) -> dict[str, Any]:
    """`resources` with amounts of nvidia.com/gpu, such as limits=1."""
    return {"resources": {field: {"nvidia.com/gpu": n} for field, n in amounts.items()}}


def variable(value: str, name: str = "NVIDIA_VISIBLE_DEVICES") -> dict[str, Any]:
    """`env` of one variable."""
    return {"env": [{"name": name, "value": value}]}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Pod of these containers."""
    metadata = {"name": "trainer", "namespace": "team-vision"}
    whole = {"containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Deployment of such pods."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod(*containers, **spec)["spec"]}
    whole = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    metadata = {"name": "trainer", "namespace": "team-vision"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": whole}
