"""Tests of `kubectl get -o yaml | gpuward lint -`: each fault once for each owner, by its name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.testkit.lint_command import LintCommand

BAD = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
SPEC = {"containers": [{"name": "main", "image": "example.com/app:1", "env": [BAD]}]}
HASH = "5d4f8c7b9"


def controlled_by(kind: str, name: str) -> dict[str, Any]:
    version = "v1" if kind == "Node" else "batch/v1" if "Job" in kind else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "1", "controller": True}
    return {"ownerReferences": [owner]}


def pod(name: str, owner: tuple[str, str] | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "labels": labels}
    metadata |= controlled_by(*owner) if owner else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(SPEC)}


def workload(kind: str, name: str, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", **(controlled_by(*owner) if owner else {})}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    spec = {"template": {"spec": copy.deepcopy(SPEC)}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def listed(*objects: dict[str, Any]) -> str:
    """As `kubectl get -o json` prints them."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=4)


def errors(lint: LintCommand, *objects: dict[str, Any]) -> list[dict[str, Any]]:
    report = lint.json("-", stdin=listed(*objects)).report
    found = [finding for finding in report["findings"] if finding["level"] == "error"]
    assert report["summary"]["errors"] == len(found)
    assert report["summary"]["pods"] == len(objects)
    return found


PODS = [pod(f"app-{HASH}-{n}", ("ReplicaSet", f"app-{HASH}")) for n in "abc"]
LABELLED = [
    pod(f"app-{HASH}-{n}", ("ReplicaSet", f"app-{HASH}"), **{"pod-template-hash": HASH})
    for n in "abc"
]
REPLICA_SET = workload("ReplicaSet", f"app-{HASH}", ("Deployment", "app"))
DEPLOYMENT = workload("Deployment", "app")
DEPLOYMENT_REF = {"kind": "Deployment", "name": "app"}
MERGED = {
    "pods alone": (PODS, {"kind": "ReplicaSet", "name": f"app-{HASH}"}, "Pod", 3),
    "pods with the label of their Deployment": (LABELLED, DEPLOYMENT_REF, "Pod", 3),
    "with the ReplicaSet": ([*PODS, REPLICA_SET], DEPLOYMENT_REF, "ReplicaSet", 4),
    "with all": ([*PODS, REPLICA_SET, DEPLOYMENT], DEPLOYMENT_REF, "Deployment", 5),
    "with all, the owner first": (
        [DEPLOYMENT, REPLICA_SET, *PODS],
        DEPLOYMENT_REF,
        "Deployment",
        5,
    ),
    "a Job of a CronJob": (
        [pod("j-1-x", ("Job", "j-1")), workload("Job", "j-1", ("CronJob", "j"))],
        {"kind": "CronJob", "name": "j"},
        "Job",
        2,
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_a_fault_is_reported_once_for_its_owner(command: LintCommand, case: str) -> None:
    objects, owner, kind, number = MERGED[case]
    (finding,) = errors(command, *objects)
    assert finding["owner"] == owner
    assert finding["kind"] == kind
    assert finding["objects"] == number


APART = {
    "pods without owner": [pod("a"), pod("b")],
    "static pods of a node": [pod("a", ("Node", "n")), pod("b", ("Node", "n"))],
    "pods of different owners": [pod("a", ("Job", "a")), pod("b", ("Job", "b"))],
    "owners of the same name": [DEPLOYMENT, DEPLOYMENT],
    "owners that own each other": [pod("a", ("Pod", "b")), pod("b", ("Pod", "a"))],
}


@pytest.mark.parametrize("case", APART)
def test_faults_of_different_owners_stay_apart(command: LintCommand, case: str) -> None:
    assert len(errors(command, *APART[case])) == len(APART[case])


@pytest.mark.parametrize("name", ["app", ""])
def test_documents_with_the_same_name_stay_apart(command: LintCommand, name: str) -> None:
    documents = [json.dumps(pod(name)), json.dumps(workload("Job", name))] * 2
    report = command.json("-", stdin="\n---\n".join(documents)).report
    assert report["summary"]["errors"] == 4


def test_other_faults_of_the_same_owner_stay(command: LintCommand) -> None:
    odd = copy.deepcopy(PODS[2])
    odd["spec"]["containers"][0]["name"] = "other"
    found = errors(command, *PODS[:2], odd)
    assert [(f["container"], f["objects"]) for f in found] == [("main", 2), ("other", 1)]


def test_two_places_in_one_owner_stay_apart(command: LintCommand) -> None:
    """Both groups of a RayCluster have a container of the same name."""
    head = {"template": {"spec": copy.deepcopy(SPEC)}}
    groups = [{"groupName": name, **copy.deepcopy(head)} for name in ("a", "b")]
    ray = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "ml"},
        "spec": {"headGroupSpec": head, "workerGroupSpecs": groups},
    }
    report = command.json("-", stdin=listed(ray)).report
    assert report["summary"]["errors"] == 3


def test_standard_input_is_reported_by_object(command: LintCommand) -> None:
    text = listed(*PODS, REPLICA_SET, DEPLOYMENT, pod("lone"))
    lines = command("--output", "concise", "-", stdin=text).out.splitlines()
    where = "/spec/template/spec/containers/0/env/0/value: error visible-devices-env: "
    assert lines[0].startswith(f"Deployment ml/app and 4 that it owns: {where}")
    where = "/spec/containers/0/env/0/value: error visible-devices-env: "
    assert lines[1].startswith(f"Pod ml/lone: {where}")
    full = command("-", stdin=text).out
    assert '--> Deployment ml/app and 4 that it owns, container "main": /spec/template/' in full
    assert "<stdin>" not in full


def test_an_editor_gets_lines_for_the_file_on_standard_input(command: LintCommand) -> None:
    arguments = ("--output", "concise", "--stdin-filename", "deploy/pod.json", "-")
    out = command(*arguments, stdin=json.dumps(pod("a"), indent=1)).out
    assert out.startswith("deploy/pod.json:17:16: error visible-devices-env")


def test_the_summary_is_by_namespace_owner_and_rule(command: LintCommand) -> None:
    other = pod("lone")
    other["metadata"]["namespace"] = "audio"
    other["spec"]["hostPID"] = True
    outcome = command("--output", "summary", "-", stdin=listed(*LABELLED, DEPLOYMENT, other))
    by_owner, by_rule, last = outcome.out.split("\n\n")
    assert [line.split() for line in by_owner.splitlines()] == [
        ["NAMESPACE", "OWNER", "LEVEL", "RULE", "OBJECTS"],
        ["audio", "Pod/lone", "error", "visible-devices-env", "1"],
        ["ml", "Deployment/app", "error", "visible-devices-env", "4"],
    ]
    assert [line.split() for line in by_rule.splitlines()] == [
        ["LEVEL", "RULE", "NAMESPACES", "OWNERS"],
        ["error", "visible-devices-env", "2", "2"],
    ]
    assert last.startswith("1 file, 5 objects, 5 pods, 2 errors")
    assert outcome.status == 1


def test_a_summary_of_nothing_is_one_line(command: LintCommand) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    outcome = command("--output", "summary", "-", stdin=listed(service))
    assert outcome.out.count("\n") == 1
    assert outcome.status == 0


def test_the_summary_names_what_was_not_evaluated(command: LintCommand) -> None:
    command.write("torn.yaml", "kind: [")
    outcome = command("--output", "summary", "torn.yaml")
    assert outcome.out.startswith("not evaluated: torn.yaml:1:")
    assert outcome.status == 3
