"""GpuExceptions in a cluster: the definition, who may do what, and what becomes of pods."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest

from policies.gpu_exceptions import APPROVAL_LABEL, acceptance, spec_hash
from policies.policy import GpuExceptionLimits
from tests.testkit.admission.enforcement import BYPASS_POD
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.permissions import may
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.paths import ROOT

pytest_plugins = ["tests.testkit.chart.fixtures"]

RULE = "visible-devices-env"
APPROVER_ANNOTATION = "gpuward.io/approved-by"
VALUES: dict[str, Any] = merge_values(
    SLOW_MACHINE,
    {
        "mode": "deny",
        "gpuExceptions": {"enabled": True},
        "policy": {"gpuExceptions": [{"rules": [RULE], "namespaces": "test-*", "longestDays": 30}]},
    },
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DOCUMENTATION = ROOT / "docs" / "exceptions.md"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    """An installation with GpuExceptions, whose controller compares every second."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(VALUES)
        path = "/spec/template/spec/containers/0/args/-"
        patch = json.dumps([{"op": "add", "path": path, "value": "--interval=1"}])
        target = ("deployment/gpuward-exceptions", "-n", installation.namespace)
        chart_plane.kubectl("patch", *target, "--type=json", f"--patch={patch}")
        chart_plane.kubectl("rollout", "status", *target, TIMEOUT)
        namespace = chart_plane.namespace()
        eventually(lambda: is_refused(chart_plane, namespace), what="gpuward enforces")
        yield installation


@pytest.fixture
def plane(installed: Installation) -> ControlPlane:
    """The control plane of the installation."""
    return installed.plane


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    return plane.namespace()


def today() -> datetime.date:
    """The day, which may be another one than when the tests began."""
    return datetime.datetime.now(tz=datetime.UTC).date()


def day(days: int) -> str:
    return str(today() + datetime.timedelta(days=days))


def gpu_exception(*, approved: bool = False, **spec: Any) -> dict[str, Any]:
    defaults = {"rules": [RULE], "reason": "bring-up", "expires": day(7)}
    made: dict[str, Any] = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GpuException",
        "metadata": {"name": "x"},
        "spec": {k: v for k, v in {**defaults, **spec}.items() if v is not None},
    }
    if approved:
        made["metadata"] |= approval_by("admin", spec_hash(made))
    return made


def approval_by(user: str, value: str) -> dict[str, Any]:
    return {"labels": {APPROVAL_LABEL: value}, "annotations": {APPROVER_ANNOTATION: user}}


def path_of(namespace: str, name: str = "") -> str:
    path = f"/apis/gpuward.io/v1alpha1/namespaces/{namespace}/gpuexceptions"
    return f"{path}/{name}" if name else path


def is_refused(plane: ControlPlane, namespace: str) -> bool:
    """Return whether a pod that takes all GPUs is refused."""
    return create(plane, namespace, BYPASS_POD, dry_run=True).status != 201


def condition(plane: ControlPlane, namespace: str) -> tuple[str, str]:
    """The status and the reason of the condition of the object x; empty while there is none."""
    status = plane.request("GET", path_of(namespace, "x")).body.get("status", {})
    (found,) = status.get("conditions") or [{"status": "", "reason": ""}]
    return found["status"], found["reason"]


def become(plane: ControlPlane, namespace: str, status: str, reason: str) -> None:
    """Wait for this condition, and until pods are admitted or refused accordingly."""
    wanted = status, reason
    eventually(lambda: condition(plane, namespace) == wanted, what=f"the condition is {wanted}")
    refused = status != "True"
    eventually(lambda: is_refused(plane, namespace) is refused, what=f"pods: {reason}")


def change(plane: ControlPlane, namespace: str, body: dict[str, Any]) -> None:
    """Change the object x as admin."""
    done = plane.request("PATCH", path_of(namespace, "x"), body, content_type=MERGE)
    assert done.status == 200


def label(plane: ControlPlane, namespace: str, value: str | None) -> None:
    """Set the label that approves the object x, or remove it, as admin."""
    labels = {"labels": {APPROVAL_LABEL: value}}
    change(plane, namespace, {"metadata": approval_by("admin", value) if value else labels})


def needed_label(plane: ControlPlane, namespace: str) -> str:
    """The value of the label that the condition of the object x asks for."""
    (found,) = plane.request("GET", path_of(namespace, "x")).body["status"]["conditions"]
    message: str = found["message"]
    return message.rpartition(f"it needs the label {APPROVAL_LABEL}=")[2].partition(",")[0]


def test_pods_are_admitted_while_an_approved_object_exists(
    plane: ControlPlane, namespace: str
) -> None:
    other = plane.namespace()
    plane.create(path_of(namespace), gpu_exception())
    become(plane, namespace, "False", "NotApproved")
    approval = needed_label(plane, namespace)
    # The owner changes the spec after an approver has read it.
    change(plane, namespace, {"spec": {"reason": "another"}})
    label(plane, namespace, approval)
    eventually(lambda: needed_label(plane, namespace) != approval, what="the new spec is read")
    become(plane, namespace, "False", "NotApproved")
    approval = needed_label(plane, namespace)
    label(plane, namespace, approval)
    become(plane, namespace, "True", "Accepted")
    assert is_refused(plane, other)
    shown = plane.kubectl("get", "gpuexceptions", "-n", namespace).stdout.splitlines()
    assert shown[0].split() == [
        *("NAME", "RULES", "EXPIRES", "ACCEPTED", "REASON", "APPROVED-BY", "AGE")
    ]
    assert shown[1].split()[:-1] == ["x", f'["{RULE}"]', day(7), "True", "Accepted", "admin"]
    label(plane, namespace, None)
    become(plane, namespace, "False", "NotApproved")
    label(plane, namespace, approval)
    become(plane, namespace, "True", "Accepted")
    # What is no longer allowed ends, and so does what is deleted.
    change(plane, namespace, {"spec": {"rules": [RULE, "absurd-count"]}})
    become(plane, namespace, "False", "NotAllowed")
    change(plane, namespace, {"spec": {"rules": [RULE]}})
    become(plane, namespace, "True", "Accepted")
    assert plane.request("DELETE", path_of(namespace, "x")).status == 200
    eventually(lambda: is_refused(plane, namespace), what="pods are refused again")


def test_whoever_edits_the_config_map_gains_nothing(installed: Installation) -> None:
    plane = installed.plane
    namespace = plane.namespace()
    plane.create(path_of(namespace), gpu_exception(approved=True, expires=day(31)))
    become(plane, namespace, "False", "TooLong")
    deployment = ("deployment/gpuward-exceptions", "-n", installed.namespace)
    plane.kubectl("scale", *deployment, "--replicas=0")
    eventually(lambda: not installed.pods("exceptions"), what="the controller is gone")
    asking = plane.namespace()
    items = [
        {**made, "metadata": {**made["metadata"], "namespace": name}}
        for name, made in (
            (namespace, gpu_exception(approved=True, expires=day(31))),
            ("*", gpu_exception(approved=True)),
            (asking, gpu_exception(approved=True)),
        )
    ]
    now = datetime.datetime.now(tz=datetime.UTC).isoformat()
    text = json.dumps({"checkedAt": now, "items": items})
    path = f"/api/v1/namespaces/{installed.namespace}/configmaps/gpuward-exceptions"
    body = {"data": {"exceptions.json": text}}
    assert plane.request("PATCH", path, body, content_type=MERGE).status == 200
    eventually(lambda: not is_refused(plane, asking), what="the file is used")
    assert is_refused(plane, namespace)
    plane.kubectl("scale", *deployment, "--replicas=1")
    eventually(lambda: is_refused(plane, asking), seconds=100, what="it is written again")


# What is changed in the object, and a part of the API server's message.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"expires": None}, "spec.expires: Required value"),
    ({"expires": "2031-02-31"}, "spec.expires in body must be of type date"),
    ({"expires": "soon"}, "spec.expires in body must be of type date"),
    ({"rules": None}, "spec.rules: Required value"),
    ({"rules": []}, "should have at least 1 items"),
    ({"rules": ["a", "a"]}, "Duplicate value"),
    ({"rules": ["Not A Rule"]}, "these should be names of rules, such as privileged-gpu"),
    ({"rules": [f"r{n}" for n in range(21)]}, "must have at most 20 items"),
    ({"reason": None}, "spec.reason: Required value"),
    ({"reason": " "}, "this should be a reason in words"),
    ({"reason": "x" * 501}, "spec.reason: Too long"),
    ({"match": {}}, "should have at least 1 properties"),
    ({"match": {"namespace": ["kube-system"]}}, 'unknown field "spec.match.namespace"'),
    ({"match": {"image": "x"}}, "must be of type array"),
]


LIMITS = [GpuExceptionLimits((RULE,), ("*",), 366, needs_approval=False)]


def in_namespace(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "metadata": {**raw["metadata"], "namespace": "test-1"}}


def test_the_api_server_refuses_objects_that_cannot_be_right(
    plane: ControlPlane, namespace: str
) -> None:
    strict = f"{path_of(namespace)}?fieldValidation=Strict"
    dates: list[tuple[dict[str, Any], str]] = [
        ({"expires": day(-1)}, "is over"),
        ({"expires": day(400)}, "is more than 366 days after the creation"),
    ]
    for spec, says in (*dates, *REFUSED):
        answer = plane.request("POST", strict, gpu_exception(**spec))
        assert answer.status in {400, 422}, (spec, answer)
        assert says in answer.body["message"], answer.body["message"]
        # gpuward itself does not rely on the API server.
        assert not acceptance(in_namespace(gpu_exception(**spec)), LIMITS, today()).is_accepted
    assert acceptance(in_namespace(gpu_exception()), LIMITS, today()).is_accepted
    for days in (0, 366):
        answer = plane.request("POST", f"{strict}&dryRun=All", gpu_exception(expires=day(days)))
        assert answer.status == 201, answer


class User:
    """A user with a role of the cluster in one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, *roles: str) -> None:
        self._plane, self._namespace = plane, namespace
        self.name = f"{'-'.join(roles)}-{namespace}"
        for role in roles:
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name}
            plane.create(
                f"{RBAC}/namespaces/{namespace}/rolebindings",
                {
                    "metadata": {"name": role},
                    "roleRef": {**reference, "name": role},
                    "subjects": [subject],
                },
            )

    def request(self, method: str, path: str, body: Any = None) -> int:
        """The status of a request of this user."""
        headers = {"Impersonate-User": self.name, "Impersonate-Group": "system:authenticated"}
        content_type = MERGE if method == "PATCH" else "application/json"
        answer = self._plane.request(method, path, body, headers, content_type=content_type)
        return answer.status

    def kubectl(self, *arguments: str) -> str:
        """The error of kubectl for this user."""
        target = ("-n", self._namespace, "--as", self.name)
        return self._plane.kubectl(*arguments, *target, check=False).stderr


def test_to_ask_is_one_right_and_to_approve_another(plane: ControlPlane, namespace: str) -> None:
    approver_role = {"apiGroups": ["gpuward.io"], "resources": ["gpuexceptions"]}
    rule = {**approver_role, "verbs": ["approve", "get", "patch"]}
    role = f"approver-{namespace}"
    plane.create(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": [rule]})
    viewer, owner = User(plane, namespace, "view"), User(plane, namespace, "edit")
    approver = User(plane, namespace, role)
    objects, made = path_of(namespace), path_of(namespace, "x")
    (approval,) = gpu_exception(approved=True)["metadata"]["labels"].values()
    approve = {"metadata": approval_by(approver.name, approval)}
    unnamed = {"metadata": {"labels": {APPROVAL_LABEL: approval}}}
    in_anothers_name = {"metadata": approval_by("jane", approval)}
    claim = {"metadata": {"annotations": {APPROVER_ANNOTATION: "jane"}}}
    withdraw: Any = {"metadata": {"labels": {APPROVAL_LABEL: None}}}
    note, extend = {"metadata": {"annotations": {"a": "b"}}}, {"spec": {"expires": day(8)}}
    await_rights(plane)
    # The controllers aggregate the roles, a moment after the chart has created them.
    eventually(lambda: viewer.request("GET", objects) == 200, what="the roles are aggregated")
    trial = f"{objects}?dryRun=All"
    eventually(lambda: owner.request("POST", trial, gpu_exception()) == 201, what="that for owners")
    assert viewer.request("POST", objects, gpu_exception()) == 403
    assert owner.request("POST", objects, gpu_exception(approved=True)) == 403
    assert owner.request("POST", objects, gpu_exception()) == 201
    for body, status in ((note, 200), (extend, 200), (approve, 403), (claim, 403)):
        assert owner.request("PATCH", made, body) == status, body
    done = owner.kubectl("label", "gpuexception", "x", f"{APPROVAL_LABEL}={approval}")
    assert done.replace('"x"', '"rdma-bring-up"') in DOCUMENTATION.read_text(encoding="utf-8")
    assert owner.request("PATCH", f"{made}/status", {"status": {"conditions": []}}) == 403
    admin = User(plane, namespace, "admin")
    assert admin.request("PATCH", made, approve) == 403
    own_role = {"metadata": {"name": "own"}, "rules": [rule]}
    assert admin.request("POST", f"{RBAC}/namespaces/{namespace}/roles", own_role) == 403
    for body in (unnamed, in_anothers_name, claim):
        assert approver.request("PATCH", made, body) == 403, body
    done = approver.kubectl("label", "gpuexception", "x", f"{APPROVAL_LABEL}={approval}")
    assert done.rstrip().endswith(f"{APPROVER_ANNOTATION} to {approver.name}")
    assert approver.request("PATCH", made, approve) == 200
    later = {"spec": {"expires": day(9)}}
    for body, status in ((note, 200), (claim, 403), (later, 403), (withdraw, 200)):
        assert owner.request("PATCH", made, body) == status, body
    assert owner.request("DELETE", made) == 200
    plane.request("DELETE", f"{RBAC}/clusterroles/{role}")


def test_the_controller_may_do_what_it_needs_and_no_more(installed: Installation) -> None:
    """By the API server's own authorizer, as the account of the controller."""
    own = installed.namespace
    allowed = {
        ("list", "gpuward.io", "gpuexceptions", "", "other", ""),
        ("patch", "gpuward.io", "gpuexceptions", "status", "other", ""),
        ("get", "", "configmaps", "", own, "gpuward-exceptions"),
        ("update", "", "configmaps", "", own, "gpuward-exceptions"),
    }
    refused = {
        ("update", "gpuward.io", "gpuexceptions", "status", "other", ""),
        ("create", "", "configmaps", "", own, ""),
        ("list", "", "configmaps", "", own, ""),
        ("patch", "", "configmaps", "", own, "gpuward-exceptions"),
        ("update", "", "configmaps", "", own, "gpuward-policy"),
        ("update", "", "configmaps", "", "other", "gpuward-exceptions"),
        ("get", "", "secrets", "", own, "gpuward-tls"),
        ("create", "events.k8s.io", "events", "", own, ""),
    }
    verbs = ("approve", "create", "delete", "get", "patch", "update", "watch")
    refused |= {(verb, "gpuward.io", "gpuexceptions", "", "other", "") for verb in verbs}
    found = {
        attempt
        for attempt in allowed | refused
        if may(installed.plane, own, "gpuward-exceptions", attempt)
    }
    assert found == allowed


def test_an_uninstallation_deletes_no_objects(installed: Installation) -> None:
    plane = installed.plane
    namespace = plane.namespace()
    plane.create(path_of(namespace), gpu_exception())
    installed.uninstall()
    assert plane.request("GET", path_of(namespace, "x")).status == 200
    eventually(lambda: not is_refused(plane, namespace), what="pods are admitted")
