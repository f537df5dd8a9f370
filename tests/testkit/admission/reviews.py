"""Builds the AdmissionReviews that an API server sends, and the objects in them."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from policies.loading import load_policy
from rules.finding import Action
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from tests.testkit.cases import TODAY, Case
from tests.testkit.settled_rules import acting
from webhook.admission.answer import encode
from webhook.admission.decider import Decider
from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionReview, decode

PLURALS = {
    ("", "Pod"): "pods",
    ("", "PodTemplate"): "podtemplates",
    ("", "ReplicationController"): "replicationcontrollers",
    ("", "LimitRange"): "limitranges",
    ("", "ResourceQuota"): "resourcequotas",
    ("resource.k8s.io", "ResourceClaim"): "resourceclaims",
    ("resource.k8s.io", "ResourceClaimTemplate"): "resourceclaimtemplates",
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "CronJob"): "cronjobs",
    ("batch", "Job"): "jobs",
}


def review_body(
    new: Any,
    old: Any = None,
    *,
    operation: str = "",
    subresource: str = "",
    user: str = "alice",
    namespace: str = "team-vision",
) -> dict[str, Any]:
    """The AdmissionReview about the creation of `new`, or about its update from `old`."""
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
    """Return the AdmissionReview of `review_body` as the server decodes it."""
    return decode(json.dumps(review_body(new, old, **circumstances)).encode())


def response(request: AdmissionReview, answer: Decision) -> dict[str, Any]:
    """The `response` that the API server receives, with its patch decoded."""
    sent: dict[str, Any] = json.loads(encode(request, answer))["response"]
    if "patch" in sent:
        sent["patch"] = json.loads(base64.b64decode(sent["patch"]))
    return sent


class Admission:
    """Decides by one policy, given as the keys of a policy file; `inventory` is what it knows."""

    def __init__(
        self,
        policy: str = "",
        mode: Action = Action.DENY,
        inventory: Inventory = EMPTY_INVENTORY,
    ) -> None:
        text = f"apiVersion: gpuward.io/v1\nkind: Policy\n{policy}"
        self.decider = Decider(load_policy(text, "policy"), inventory)
        self.mode = mode

    def mutate(self, new: Any, old: Any = None, **circumstances: Any) -> Decision:
        """The decision of the mutating path."""
        return self.decider.mutate(review(new, old, **circumstances), self.mode, TODAY)

    def validate(self, new: Any, old: Any = None, **circumstances: Any) -> Decision:
        """The decision of the validating path."""
        return self.decider.validate(review(new, old, **circumstances), self.mode, TODAY)


def decider_of(case: Case) -> Decider:
    """The decider by the policy of a case; cases with the same policy share one."""
    return _decider(case.policy_text, acting())


@cache
def _decider(policy_text: str, _acting: tuple[str, ...]) -> Decider:
    return Decider(load_policy(policy_text, "the policy of cases"))


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container."""
    return {"name": name, "image": "registry.example.com/app:1", **fields}


def gpus(**amounts: Any) -> dict[str, Any]:
    """`resources` with amounts of nvidia.com/gpu, such as limits=1."""
    return {"resources": {field: {"nvidia.com/gpu": n} for field, n in amounts.items()}}


def variable(value: str, name: str = "NVIDIA_VISIBLE_DEVICES") -> dict[str, Any]:
    """`env` with one variable."""
    return {"env": [{"name": name, "value": value}]}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Pod with these containers."""
    metadata = {"name": "trainer", "namespace": "team-vision"}
    full_spec = {"containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full_spec}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Deployment of pods with these containers."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod(*containers, **spec)["spec"]}
    full_spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    metadata = {"name": "trainer", "namespace": "team-vision"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": full_spec}
