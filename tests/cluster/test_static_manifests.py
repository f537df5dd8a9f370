"""Policies that a real API server reads from files: nobody in the cluster can remove them."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cluster.doctor.cli import main as doctor
from policies.loading import default_policy, load_policy
from rules.finding import Action
from tests.testkit.admission.in_process import (
    ADMIN,
    new_pod,
)
from tests.testkit.admission.reviews import variable
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import ProcessError, eventually
from tests.testkit.dry_runs import minor_version
from webhook.in_process.guard import Guard
from webhook.in_process.objects import ExportOptions
from webhook.in_process.static_manifests import digests, static_files, write_folder
from webhook.registration import MODE_LABEL, RegistrationOptions

SYSTEM = "gpuward-system"
FIRST_STATIC_MINOR = 37
FORBIDDEN, NOT_FOUND = 403, 404
GUARD = Guard(users=[ADMIN, "alice"], groups=["platform"])
OPTIONS = ExportOptions(RegistrationOptions(default=Action.DENY, excluded_namespaces=(SYSTEM,)))
POLICIES = "/apis/admissionregistration.k8s.io/v1/"
METRIC = "apiserver_manifest_admission_config_controller_"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("static")
    write_folder(made, files_for(made))
    return made


def files_for(folder: Path) -> dict[str, str]:
    return static_files(default_policy(), OPTIONS, GUARD, PurePosixPath(folder))


@pytest.fixture(scope="module")
def plane(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory, folder: Path
) -> Iterator[ControlPlane]:
    flags = [f"--admission-control-config-file={folder / 'admission.yaml'}"]
    place = tmp_path_factory.mktemp("plane")
    with ControlPlane(control_plane_programs, folder=place, api_server_flags=flags) as plane:
        if minor_version(plane) < FIRST_STATIC_MINOR:
            pytest.skip("this API server reads no policies from files")
        yield plane


def by(user: str, group: str = "system:masters") -> dict[str, str]:
    """The headers by which the administrator acts as another one."""
    return {"Impersonate-User": user, "Impersonate-Group": group}


def bypass(namespace: str) -> Any:
    return new_pod(namespace, containers=[{"name": "a", "image": "x", **variable("all")}])


def create_pod(plane: ControlPlane, pod: Any) -> Response:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
    return plane.request("POST", path, pod)


@pytest.fixture(scope="module")
def namespace(plane: ControlPlane) -> str:
    return plane.namespace()


def test_a_bypass_is_refused_and_an_ordinary_pod_is_not(
    plane: ControlPlane, namespace: str
) -> None:
    answer = create_pod(plane, bypass(namespace))
    assert answer.status == FORBIDDEN
    assert ".static.k8s.io' with binding" in answer.body["message"]
    assert create_pod(plane, new_pod(namespace)).status < FORBIDDEN


def test_what_can_be_fixed_is_fixed(plane: ControlPlane, namespace: str) -> None:
    """API servers refuse a GPU that is only in `requests`."""
    resources = {"requests": {"nvidia.com/gpu": "1"}}
    container = {"name": "a", "image": "x", "resources": resources}
    answer = create_pod(plane, new_pod(namespace, containers=[container]))
    assert answer.status < FORBIDDEN
    (made,) = answer.body["spec"]["containers"]
    assert made["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_the_metric_of_the_api_server_has_the_digests_of_the_folder(
    plane: ControlPlane, folder: Path
) -> None:
    loaded = {
        labels["plugin"]: labels["hash"]
        for labels, _ in plane.metrics(METRIC)[f"{METRIC}last_config_info"]
    }
    assert loaded == digests(files_for(folder))
    assert loaded.keys() == {"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}


def test_doctor_says_whether_it_has_loaded_them(
    plane: ControlPlane, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def states(of: Path) -> list[str]:
        doctor(
            [
                *("--static-manifests", str(of), "--kubeconfig", str(plane.kubeconfig)),
                *("--no-dry-run", "-o", "json"),
            ]
        )
        found = json.loads(capsys.readouterr().out)["rows"]
        return [row["state"] for row in found if row["subject"] == "files of the API server"]

    assert states(folder) == ["ok", "ok"]
    write_folder(tmp_path, static_files(default_policy(), OPTIONS, None, PurePosixPath(folder)))
    assert states(tmp_path) == ["ok", "wrong"]  # without the guards


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> dict[str, str]:
    """Objects as an installation of gpuward has them: the path of each by a word for it."""
    plane.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    inside = f"namespaces/{SYSTEM}/"
    webhooks = {"metadata": {"name": "gpuward"}, "webhooks": []}
    selector = {"matchLabels": {"app": "gpuward"}}
    template = {"metadata": {"labels": {"app": "gpuward"}}, "spec": new_pod(SYSTEM)["spec"]}
    policy_spec = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "validations": [{"expression": "true"}],
    }
    objects: dict[str, tuple[str, Any]] = {
        "mutating": (f"{POLICIES}mutatingwebhookconfigurations", webhooks),
        "validating": (f"{POLICIES}validatingwebhookconfigurations", webhooks),
        "exported policy": (
            f"{POLICIES}validatingadmissionpolicies",
            {"metadata": {"name": "gpuward-bypass-deny"}, "spec": policy_spec},
        ),
        "exported binding": (
            f"{POLICIES}validatingadmissionpolicybindings",
            {
                "metadata": {"name": "gpuward-bypass-deny-in-mode-deny"},
                "spec": {"policyName": "gpuward-bypass-deny", "validationActions": ["Deny"]},
            },
        ),
        "policy": (f"/api/v1/{inside}configmaps", {"metadata": {"name": "gpuward-policy"}}),
        "certificate": (f"/api/v1/{inside}secrets", {"metadata": {"name": "gpuward-serving"}}),
        "lease": (
            f"/apis/coordination.k8s.io/v1/{inside}leases",
            {"metadata": {"name": "gpuward-certs"}, "spec": {}},
        ),
        "deployment": (
            f"/apis/apps/v1/{inside}deployments",
            {"metadata": {"name": "gpuward"}, "spec": {"selector": selector, "template": template}},
        ),
    }
    for path, manifest in objects.values():
        plane.create(path, manifest)
    account = f"/api/v1/{inside}serviceaccounts/default"
    eventually(lambda: plane.request("GET", account).status < FORBIDDEN, what="the account")
    paths = {word: f"{path}/{o['metadata']['name']}" for word, (path, o) in objects.items()}
    return {**paths, "namespace": f"/api/v1/namespaces/{SYSTEM}"}


WORDS = [
    *("mutating", "validating", "exported policy", "exported binding", "policy", "certificate"),
    *("lease", "deployment", "namespace"),
]
COLLECTIONS = [word for word in WORDS if word != "namespace"]


@pytest.mark.parametrize("word", WORDS)
def test_an_administrator_cannot_delete_what_gpuward_consists_of(
    plane: ControlPlane, installed: dict[str, str], word: str
) -> None:
    answer = plane.request("DELETE", installed[word], headers=by("mallory"))
    assert answer.status == FORBIDDEN
    assert "gpuward guards" in answer.body["message"]
    assert plane.request("GET", installed[word]).status < FORBIDDEN


@pytest.mark.parametrize("word", COLLECTIONS)
def test_nor_together_with_others_of_the_kind(
    plane: ControlPlane, installed: dict[str, str], word: str
) -> None:
    collection = installed[word].rpartition("/")[0]
    plane.request("DELETE", collection, headers=by("mallory"))
    answer = plane.request("GET", installed[word])
    assert answer.status < FORBIDDEN
    assert "deletionTimestamp" not in answer.body["metadata"]


@pytest.mark.parametrize("word", COLLECTIONS)
def test_nor_change_it(plane: ControlPlane, installed: dict[str, str], word: str) -> None:
    patch = {"metadata": {"labels": {"changed": "true"}}}
    kind = "application/merge-patch+json"
    answer = plane.request("PATCH", installed[word], patch, by("mallory"), kind)
    assert answer.status == FORBIDDEN
    for user in (f"system:serviceaccount:{SYSTEM}:gpuward-certs", "alice"):
        assert plane.request("PATCH", installed[word], patch, by(user), kind).status < FORBIDDEN


OWNER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "name": "missing",
    "uid": "00000000-0000-0000-0000-000000000000",
}
# What lacks its owner is deleted by the garbage collector, which the guards let pass.
LACKS_ITS_OWNER = {"metadata": {"ownerReferences": [OWNER]}}


@pytest.mark.parametrize(
    ("word", "subresource", "patch"),
    [
        ("namespace", "", LACKS_ITS_OWNER),
        ("namespace", "/status", LACKS_ITS_OWNER),
        ("deployment", "/status", LACKS_ITS_OWNER),
        ("deployment", "/status", {"metadata": {"annotations": {"a": "b"}}}),
        ("deployment", "/scale", {"spec": {"replicas": 0}}),
    ],
)
def test_nor_let_controllers_do_it(
    plane: ControlPlane, installed: dict[str, str], word: str, subresource: str, patch: Any
) -> None:
    path, kind = f"{installed[word]}{subresource}", "application/merge-patch+json"
    assert plane.request("PATCH", path, patch, by("mallory"), kind).status == FORBIDDEN
    allowed = plane.request("PATCH", f"{path}?dryRun=All", patch, by("alice"), kind)
    assert allowed.status < FORBIDDEN


def test_nor_create_what_acts_as_gpuward(plane: ControlPlane, installed: dict[str, str]) -> None:
    inside = f"namespaces/{SYSTEM}/"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": new_pod(SYSTEM)["spec"]}
    job = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    sets = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    scaler = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gpuward"},
        "maxReplicas": 1,
    }
    name = {"metadata": {"name": "other"}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    annotation = {"kubernetes.io/service-account.name": "generic-garbage-collector"}
    secret = {
        "metadata": {"name": "token", "annotations": annotation},
        "type": "kubernetes.io/service-account-token",
    }
    for path, made in (
        (f"/api/v1/{inside}pods", new_pod(SYSTEM, "other")),
        (f"/apis/apps/v1/{inside}replicasets", {**name, "spec": sets}),
        (f"/apis/batch/v1/{inside}jobs", {**name, "spec": job}),
        (f"/apis/autoscaling/v2/{inside}horizontalpodautoscalers", {**name, "spec": scaler}),
        (f"/api/v1/{inside}serviceaccounts/default/token", token),
        ("/api/v1/namespaces/kube-system/serviceaccounts/namespace-controller/token", token),
        ("/api/v1/namespaces/kube-system/secrets", secret),
    ):
        answer = plane.request("POST", f"{path}?dryRun=All", made, by("mallory"))
        assert answer.status == FORBIDDEN, (path, answer.body)
        assert "gpuward guards" in answer.body["message"]
        assert plane.request("POST", f"{path}?dryRun=All", made, by("alice")).status < FORBIDDEN
    assert installed


def test_controllers_of_kubernetes_do_their_work(
    plane: ControlPlane, installed: dict[str, str]
) -> None:
    """They make the pods of the Deployment, and complete what a named user deletes."""
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    eventually(lambda: plane.request("GET", pods).body["items"], what="a pod of the Deployment")
    plane.create(
        f"/apis/apps/v1/namespaces/{SYSTEM}/deployments",
        {
            "metadata": {"name": "second"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": new_pod(SYSTEM)["spec"]},
            },
        },
    )
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/second"
    sets = f"/apis/apps/v1/namespaces/{SYSTEM}/replicasets?labelSelector=a%3Db"
    eventually(lambda: plane.request("GET", sets).body["items"], what="its ReplicaSet")
    assert plane.request("DELETE", path, headers=by("alice")).status < FORBIDDEN
    eventually(lambda: not plane.request("GET", sets).body["items"], what="its deletion")
    assert installed


def test_an_update_that_changes_nothing_passes(
    plane: ControlPlane, installed: dict[str, str]
) -> None:
    """As when all Secrets are written again, to encrypt them by another key."""
    for word in COLLECTIONS:

        def passes(path: str = installed[word]) -> bool:
            """A controller may change the object in between: then it is another version."""
            stored = plane.request("GET", path).body
            return plane.request("PUT", path, stored, by("mallory")).status < FORBIDDEN

        eventually(passes, what=word)


def test_nor_create_a_webhook_configuration_in_its_name(
    plane: ControlPlane, installed: dict[str, str]
) -> None:
    path = installed["mutating"].rpartition("/")[0]
    for name, is_refused in (("gpuward-2", True), ("gpuwardian", False), ("other", False)):
        made = {"metadata": {"name": name}, "webhooks": []}
        answer = plane.request("POST", f"{path}?dryRun=All", made, by("mallory"))
        assert (answer.status == FORBIDDEN) is is_refused, name


def test_other_namespaces_are_not_guarded(plane: ControlPlane, installed: dict[str, str]) -> None:
    elsewhere = plane.namespace()
    for namespace in (elsewhere, "kube-system"):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        made = {"metadata": {"name": "gpuward-policy"}}
        assert plane.request("POST", path, made, by("mallory")).status < FORBIDDEN
        answer = plane.request("DELETE", f"{path}/gpuward-policy", headers=by("mallory"))
        assert answer.status < FORBIDDEN, installed
    answer = plane.request("DELETE", f"/api/v1/namespaces/{elsewhere}", headers=by("mallory"))
    assert answer.status < FORBIDDEN


def test_only_named_users_choose_the_mode_of_a_namespace(plane: ControlPlane) -> None:
    namespace, kind = plane.namespace(), "application/merge-patch+json"
    path = f"/api/v1/namespaces/{namespace}"
    weaker: Any = {"metadata": {"labels": {MODE_LABEL: "off"}}}
    for subresource in ("", "/status"):
        answer = plane.request("PATCH", f"{path}{subresource}", weaker, by("mallory"), kind)
        assert answer.status == FORBIDDEN
    stored = plane.request("GET", path).body
    stored["metadata"]["labels"] |= weaker["metadata"]["labels"]
    answer = plane.request("PUT", f"{path}/finalize", stored, by("mallory"))
    assert answer.status == FORBIDDEN
    other = {"metadata": {"labels": {"team": "a"}}}
    assert plane.request("PATCH", path, other, by("mallory"), kind).status < FORBIDDEN
    made = {"metadata": {"name": "own-mode", **weaker["metadata"]}}
    assert plane.request("POST", "/api/v1/namespaces", made, by("mallory")).status == FORBIDDEN
    assert plane.request("PATCH", path, weaker, by("alice"), kind).status < FORBIDDEN
    without = {"metadata": {"labels": {MODE_LABEL: None}}}
    assert plane.request("PATCH", path, without, by("mallory"), kind).status == FORBIDDEN
    assert plane.request("PATCH", path, other, by("mallory"), kind).status < FORBIDDEN


def test_a_named_user_deletes_and_the_files_still_act(
    plane: ControlPlane, installed: dict[str, str], namespace: str
) -> None:
    for word in ("exported binding", "exported policy"):
        answer = plane.request("DELETE", installed[word], headers=by("alice"))
        assert answer.status < FORBIDDEN
        assert plane.request("GET", installed[word]).status == NOT_FOUND
    assert create_pod(plane, bypass(namespace)).status == FORBIDDEN


def test_no_pod_gets_in_while_the_api_server_starts(plane: ControlPlane, namespace: str) -> None:
    answers: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, HTTPException):
                answers.append(create_pod(plane, bypass(namespace)).status)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            plane.restart_api_server()
            before = len(answers)
            eventually(lambda: len(answers) > before + 1, what="an answer after the start")
        finally:
            stop.set()
        asking.result()
    assert FORBIDDEN in answers
    assert all(status >= FORBIDDEN for status in answers), answers


def test_a_broken_file_leaves_the_policies_as_they_were(
    plane: ControlPlane, folder: Path, namespace: str
) -> None:
    file = folder / "validating-policies" / "gpuward.yaml"
    good = file.read_text(encoding="utf-8")
    # An API server that reads a file while it is still empty loads no policies.
    broken = file.with_suffix(".new")
    broken.write_text(good + "---\nnot: a policy\n", encoding="utf-8")
    broken.replace(file)
    try:
        eventually(lambda: reloads(plane, "failure"), seconds=300, what="a failed reload")
        assert create_pod(plane, bypass(namespace)).status == FORBIDDEN
        assert "reloading manifest config" in plane.log("kube-apiserver")
    finally:
        write_folder(folder, files_for(folder))


def reloads(plane: ControlPlane, status: str) -> float:
    samples = plane.metrics(METRIC).get(f"{METRIC}automatic_reloads_total", [])
    return sum(value for labels, value in samples if labels["status"] == status)


def test_an_api_server_does_not_start_with_a_broken_file(
    control_plane_programs: Programs, tmp_path: Path, plane: ControlPlane
) -> None:
    assert minor_version(plane) >= FIRST_STATIC_MINOR
    folder = tmp_path / "static"
    write_folder(folder, files_for(folder))
    (folder / "validating-policies" / "gpuward.yaml").write_text("not: a policy\n")
    flags = [f"--admission-control-config-file={folder / 'admission.yaml'}"]
    with (
        pytest.raises(ProcessError, match=r"gpuward\.yaml"),
        ControlPlane(
            control_plane_programs, folder=tmp_path, controllers=False, api_server_flags=flags
        ),
    ):
        pass


def test_a_new_policy_is_read_while_the_api_server_runs(
    plane: ControlPlane, folder: Path, namespace: str
) -> None:
    policy = load_policy(
        '{apiVersion: gpuward.io/v1, kind: Policy, rules: {visible-devices-env: {action: "off"}}}',
        "a test",
    )
    write_folder(folder, static_files(policy, OPTIONS, GUARD, PurePosixPath(folder)))

    def passes() -> bool:
        return create_pod(plane, bypass(namespace)).status < FORBIDDEN

    eventually(passes, seconds=300, what="the new policy")
