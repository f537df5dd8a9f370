"""Applies exports to an API server, and compares what it says of pods with what the rules say."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from policies.policy import Policy
from reports.findings import RULE_BY_NAME
from rules.engine.evaluation import introduced_findings
from rules.engine.fixing import check
from rules.engine.rule_set import RuleSet
from rules.finding import Action, Finding
from rules.profile.context import Context
from tests.testkit.cases import TODAY
from tests.testkit.complete_manifests import complete_manifest
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.flags import TYPE_CHECKER
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import (
    RESOURCES,
    RUNTIME_CLASSES,
    THREADS,
    _impersonation_headers,
    minor_version,
)
from webhook.admission.messages import message_with_help
from webhook.in_process.objects import ExportOptions, group_of_rule, policy_objects, with_digests
from webhook.in_process.statements import exported_rules

_DEFAULTS = ExportOptions()
ADMIN = "admin"
REFUSED = 403
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_RESOURCES = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
_POLICY = r"ValidatingAdmissionPolicy 'in-process-\d+-(?P<name>[\w-]+)' with binding '[^']*'"
_DENIED = re.compile(rf"(?s){_POLICY} denied request: (?P<text>.*)$")
_WARNED = re.compile(rf"(?s)Validation failed for {_POLICY}: (?P<text>.*)$")
_NUMBER = re.compile(r"^gpuward (found \d+ faults: )?")
# Policies name no exception for one agent.
_ADVISED_EXCEPTION = re.compile(r", or write the exception \{rules: .*\}$")
# What CEL cannot write: the numbers of characters.
_ESCAPES = re.compile(r"\\u[0-9a-f]{4}|\\[nrtbf]")


# The service account about which the policies of `_probe_objects` say something.
_PROBE = "probe"


def _probe_objects(kind: str, name: str, number: int) -> Iterator[dict[str, Any]]:
    """A policy of this kind, and its binding, for the namespaces of `number` in mode deny.

    The policy warns of a service account, or adds the label `name` to it.
    """
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    created = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["serviceaccounts"],
    }
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [created]},
        "matchConditions": [{"name": "probe", "expression": f"object.metadata.name == '{_PROBE}'"}],
    }
    binding: dict[str, Any] = {
        "policyName": name,
        "matchResources": {
            "namespaceSelector": {
                "matchLabels": {"gpuward.io/mode": "deny", "in-process-test": str(number)}
            }
        },
    }
    if kind == "ValidatingAdmissionPolicy":
        spec["validations"] = [{"expression": "false", "message": "it acts"}]
        binding["validationActions"] = ["Warn"]
    else:
        label = f"Object{{metadata: Object.metadata{{labels: {{'{name}': ''}}}}}}"
        applied = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
        spec |= {"mutations": [applied], "reinvocationPolicy": "Never"}
    yield {**api, "kind": kind, "metadata": {"name": name}, "spec": spec}
    yield {**api, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": binding}


class Said(NamedTuple):
    """The answers about a pod: why it is refused, by the first policy, and the warnings."""

    denied: frozenset[str]
    warned: frozenset[str]


# Before, policies that change objects are off by default, and an API server may crash while it
# compiles policies, as all write into one map of variables: kubernetes#135757.
FIRST_MINOR = 36


@contextmanager
def own_exports(
    programs: Programs, folder: Path, *, checks_types: bool = False
) -> Iterator[Exports]:
    """On a control plane of their own, as what other tests install answers as well."""
    without = () if checks_types else (TYPE_CHECKER,)
    with ControlPlane(programs, folder=folder, without_controllers=without) as plane:
        if minor_version(plane) < FIRST_MINOR:
            pytest.skip("an older API server may crash, and does not change objects by policies")
        yield Exports(plane)


class Exports:
    """Exports of several policies, each for a namespace of its own in mode deny."""

    def __init__(self, plane: Cluster) -> None:
        self.plane = plane
        self._numbers = count(1)
        for name in RUNTIME_CLASSES:
            made = {"metadata": {"name": name}, "handler": name}
            plane.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)
        self._paths: dict[str, list[str]] = {}
        self._kinds: dict[str, set[str]] = {}
        self._namespace_without_policies = plane.namespace({})

    def add(
        self,
        policy: Policy,
        options: ExportOptions = _DEFAULTS,
        *exports: Callable[[Policy, ExportOptions], Iterable[dict[str, Any]]],
    ) -> str:
        """The namespace in which API servers evaluate pods by `policy`, alone.

        `exports` make its objects: by default those that refuse and warn. All of them act when
        this returns.
        """
        number = next(self._numbers)
        namespace = self.plane.namespace(
            {"gpuward.io/mode": "deny", "in-process-test": str(number)}
        )
        written = chain.from_iterable(e(policy, options) for e in exports or [policy_objects])
        for made in with_digests(_renamed(each, number) for each in written):
            path = self._create(made)
            self._paths.setdefault(namespace, []).append(path)
            self._kinds.setdefault(str(number), set()).add(made["kind"].removesuffix("Binding"))
        self.wait(namespace)
        return namespace

    def _create(self, made: dict[str, Any]) -> str:
        """Create an object, and return its path."""
        path = f"{_GROUP}/{_RESOURCES[made['kind']]}"
        self.plane.create(path, made)
        return f"{path}/{made['metadata']['name']}"

    def stored(self, namespace: str) -> list[dict[str, Any]]:
        """The objects of the policies of `namespace`, as the API server has them."""
        return [self.plane.request("GET", path).body for path in self._paths[namespace]]

    def namespace_like(self, namespace: str, **labels: str) -> str:
        """Another namespace in which the same policies act, with these labels in addition."""
        return self.plane.namespace({**self.labels_of(namespace), **labels})

    def labels_of(self, namespace: str) -> dict[str, str]:
        """The labels of a namespace."""
        answer = self.plane.request("GET", f"/api/v1/namespaces/{namespace}")
        labels: dict[str, str] = answer.body["metadata"]["labels"]
        return labels

    def type_warnings(self, namespace: str) -> dict[str, Any]:
        """The warnings of the API server's type checks of the policies of `namespace`.

        Waits for all checks: the controller needs seconds of a processor for each policy.
        """

        def checked(path: str) -> Any:
            item = self.plane.request("GET", path).body
            return item if "typeChecking" in item.get("status", {}) else None

        return {
            path: warnings
            for path in self._paths[namespace]
            if "policies/" in path
            for item in [eventually(lambda: checked(path), seconds=600, what=path)]  # noqa: B023
            if (warnings := item["status"]["typeChecking"].get("expressionWarnings"))
        }

    def submit(self, manifests: Iterable[tuple[str, Any]]) -> dict[str, Response]:
        """The answers to dry runs of `manifests`, by the names under which they are given."""
        with ThreadPoolExecutor(THREADS) as pool:
            given = dict(manifests)
            return dict(zip(given, pool.map(self.submit_one, given.values()), strict=True))

    def compare(
        self, manifests: Mapping[str, Any], users: Mapping[str, str]
    ) -> dict[str, tuple[Response, Any]]:
        """Of each manifest the answer, and what policies saw; by these users, if it has one."""

        def one(name: str) -> tuple[Response, Any]:
            manifest, user = manifests[name], users.get(name, "")
            return self.submit_one(manifest, user), self.completed(manifest, user)

        with ThreadPoolExecutor(THREADS) as pool:
            return dict(zip(manifests, pool.map(one, manifests), strict=True))

    def submit_one(self, manifest: Any, user: str = "") -> Response:
        """The answer to a dry run of a new pod or workload.

        By default the user is the one whom its owner implies.
        """
        group, namespace = manifest["apiVersion"], manifest["metadata"]["namespace"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        path = f"{root}/namespaces/{namespace}/{RESOURCES[group, manifest['kind']]}"
        headers = _impersonating(user) if user else _impersonation_headers(manifest)
        return self.plane.request("POST", f"{path}?dryRun=All", manifest, headers)

    def update_one(self, pod: Any, user: str) -> Response:
        """The answer to a dry run of an update of `pod` by `user`."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        return self.plane.request("PUT", f"{path}?dryRun=All", pod, _impersonating(user))

    def completed(self, manifest: Any, user: str) -> Any:
        """`manifest` as policies see it: with the defaults and amounts of the API server.

        None if the API server refuses it.
        """
        metadata = manifest["metadata"]
        moved = {**metadata, "namespace": self._namespace_without_policies}
        answer = self.submit_one({**manifest, "metadata": moved}, user)
        if answer.status >= 300:
            return None
        made = answer.body
        made["metadata"]["namespace"] = metadata["namespace"]
        return made

    def wait(self, namespace: str) -> None:
        """Wait until API servers evaluate objects in `namespace`, by all policies.

        They read all bindings from time to time, and then the policy of each. A policy that is
        created last may be read although an earlier one was not; one that is created when that one
        acts is read later than all.
        """
        number = self.labels_of(namespace)["in-process-test"]
        for kind in sorted(self._kinds[number]):
            paths: list[str] = []
            for name in (f"in-process-{number}-first", f"in-process-{number}-second"):
                paths += map(self._create, _probe_objects(kind, name, int(number)))
                eventually(lambda: self._acts(name, namespace), what=f"each {kind}")  # noqa: B023
            for path in paths:
                self.plane.request("DELETE", path)

    def _acts(self, probe: str, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts?dryRun=All"
        answer = self.plane.request("POST", path, {"metadata": {"name": _PROBE}})
        return probe in f"{answer.warnings}{answer.body['metadata'].get('labels')}"

    def remove(self, namespace: str) -> None:
        """Delete the policies of `namespace`; what checks their types has less to do, too."""
        for path in self._paths.pop(namespace):
            self.plane.request("DELETE", path)


def _impersonating(user: str) -> dict[str, str]:
    return {"Impersonate-User": user, "Impersonate-Group": "system:masters"}


def new_pod(namespace: str, name: str = "subject", **fields: Any) -> Any:
    """A pod with these fields of its spec; `metadata` goes there."""
    metadata = {"namespace": namespace, "name": name, **fields.pop("metadata", {})}
    fields.setdefault("containers", [{"name": "main", "image": "registry.example.com/app:1"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": fields}


def _renamed(made: dict[str, Any], number: int) -> dict[str, Any]:
    renamed = copy.deepcopy(made)
    name = renamed["metadata"]["name"].removeprefix("gpuward-")
    renamed["metadata"]["name"] = f"in-process-{number}-{name}"
    if made["kind"].endswith("Binding"):
        policy = made["spec"]["policyName"].removeprefix("gpuward-")
        renamed["spec"]["policyName"] = f"in-process-{number}-{policy}"
        selector = renamed["spec"]["matchResources"]["namespaceSelector"]
        own = {"key": "in-process-test", "operator": "In", "values": [str(number)]}
        selector["matchExpressions"].append(own)
    return renamed


def expected(manifest: Any, rules: RuleSet, context: Context, old: Any = None) -> Said:
    """Return the engine's answers to `manifest`, or to an update of `old`, by exported `rules`."""
    own = rules.restricted_to(rule.name for rule in exported_rules(rules))
    found = check(manifest, own, context).findings
    if old is not None:
        before = check(old, own, context._replace(old_metadata=None)).findings
        found = introduced_findings(found, before)
    if manifest["kind"] != "Pod":
        # Workloads are never refused.
        shown = (finding for finding in found if finding.action >= Action.WARN)
        return Said(frozenset(), frozenset(map(_text, shown)))
    return Said(
        frozenset(_text(f) for f in found if f.action is Action.DENY),
        frozenset(_text(f) for f in found if f.action is Action.WARN),
    )


def _text(finding: Finding) -> str:
    text = _ADVISED_EXCEPTION.sub("", message_with_help(finding))
    return _comparable(f"[{finding.rule}] {text}")


def _comparable(text: str) -> str:
    return _ESCAPES.sub("?", text)


def observed(answer: Response) -> Said | None:
    """Return the policies' answers; None if the API server refused the pod for another reason."""
    warned: set[str] = set()
    for line in answer.warnings:
        if found := _WARNED.match(line):
            warned |= _texts(found["text"])
    if answer.status < 300:
        return Said(frozenset(), frozenset(warned))
    found = _DENIED.search(answer.body["message"]) if isinstance(answer.body, dict) else None
    if found is None:
        return None
    return Said(frozenset(_texts(found["text"])), frozenset(warned))


def agree(engine: Said, said: Said) -> bool:
    """Return whether both say the same, but for what did not fit into a message.

    Of the policies that refuse a pod, the API server names one.
    """
    groups = {*map(_group, said.denied)}
    denied = frozenset(text for text in engine.denied if not groups or _group(text) in groups)
    return all(
        found == wanted or (whole != found and whole < wanted)
        for found, wanted in zip(said, engine._replace(denied=denied), strict=True)
        for whole in [frozenset(text for text in found if not text.endswith("…"))]
    )


def _group(text: str) -> str:
    """Return the policies that have the rule of a text, which begins as `[privileged-gpu] …`."""
    rule = RULE_BY_NAME.get(text[1:].partition("]")[0])
    return group_of_rule(rule) if rule else ""


def _texts(text: str) -> set[str]:
    return set(_comparable(_NUMBER.sub("", text)).split(" | "))


def context_for(manifest: Any) -> Context:
    """The context in which the API server evaluates a new `manifest`."""
    if manifest["kind"] != "Pod":
        return Context(TODAY, manifest["metadata"]["namespace"], None, "CREATE")
    user = _impersonation_headers(manifest).get("Impersonate-User", ADMIN)
    return Context(TODAY, manifest["metadata"]["namespace"], user, "CREATE")


def prepared(manifest: Any, namespace: str, name: str) -> Any:
    """`manifest` as a pod that the API server accepts in `namespace`."""
    return json.loads(json.dumps(complete_manifest(manifest, namespace, name)))
