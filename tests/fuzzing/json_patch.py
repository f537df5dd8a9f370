"""The patch that the webhook sends: another implementation makes of it the object that is meant."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import jsonpatch

from kubeyaml.patch.model import are_identical
from policies.loading import load_policy
from rules.base.json_values import as_object, as_objects
from rules.engine.fixing import fix
from rules.finding import Action
from rules.inventory.inventory import EMPTY_INVENTORY
from rules.objects.container import CONTAINER_LISTS
from tests.fuzzing.mutation import mutate_json
from tests.testkit.cases import TODAY
from webhook.admission.answer import answer
from webhook.admission.decider import Decider
from webhook.admission.enforcement import FIXED_ANNOTATION
from webhook.admission.request import admission_request, fixable_containers
from webhook.admission.review import MalformedReviewError, decode, loads_deep
from webhook.registration import ROUTES

mutate = mutate_json
_HEAD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
_POLICIES = ("profiles: [nvidia, dra]\n", "workloads: fix\nprofiles: [ack, amd]\n")
_DECIDERS = [Decider(load_policy(_HEAD + policy, "policy")) for policy in _POLICIES]
_MUTATE = ROUTES["/mutate/deny"]
# What no fix may change in a container.
_UNTOUCHED_FIELDS = ("name", "image", "command", "args", "volumeMounts", "ports")


def check(data: bytes) -> None:
    """Let the webhook fix the object of the review in `data`."""
    try:
        review = decode(data)
    except MalformedReviewError:
        return
    if not isinstance(review.object, dict):
        return
    for decider in _DECIDERS:
        operations = _patch(decider, data)
        if not operations:
            continue
        meant = copy.deepcopy(review.object)
        patched = jsonpatch.apply_patch(meant, operations)
        _check_fixed_pod(decider, data, patched)
        assert _untouched(patched) == _untouched(review.object), "a fix changes another field"
        raw = loads_deep(data)
        raw["request"]["object"] = patched
        assert _patch(decider, json.dumps(raw).encode()) == [], "a second call changes the object"


def _patch(decider: Decider, body: bytes) -> list[dict[str, Any]]:
    """The operations that the webhook sends for the review in `body`."""
    found = answer(decider, _MUTATE, body, TODAY)
    assert found.bug is None, found.bug
    assert not found.failures, found.failures
    response = json.loads(found.body)["response"]
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    assert operations
    return operations


def _check_fixed_pod(decider: Decider, body: bytes, patched: Any) -> None:
    """A patched pod is the one that the rules have fixed, but for the annotation about it."""
    request = admission_request(decode(body), Action.DENY, TODAY, EMPTY_INVENTORY)
    assert request is not None
    if not request.is_pod:
        return
    result = fix(request.object, decider.rules, request.context, only=fixable_containers(request))
    assert are_identical(_without_note(patched), _without_note(result.manifest))


def _without_note(pod: Any) -> Any:
    """`pod` without the annotation of the webhook, and what would be empty without it."""
    pod = {key: value for key, value in pod.items() if key not in {"apiVersion", "kind"}}
    metadata = dict(as_object(pod.get("metadata")))
    annotations = dict(as_object(metadata.get("annotations")))
    annotations.pop(FIXED_ANNOTATION, None)
    metadata["annotations"] = annotations
    return {**pod, "metadata": metadata}


def _untouched(manifest: Any) -> list[Any]:
    """The fields of containers that no fix may change."""
    found, waiting = [], [manifest]
    for node in waiting:
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            for name in CONTAINER_LISTS:
                for _, container in as_objects(node.get(name)):
                    found.append([container.get(field) for field in _UNTOUCHED_FIELDS])
            waiting += node.values()
    return found
