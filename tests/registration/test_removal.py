"""Tests of `gpuward webhooks remove` on a real API server, with the rights of the chart's hook."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from cluster.api.client import KubernetesConfigurations
from cluster.api.connection import Connection
from cluster.api.errors import ConfigurationKind, ConfigurationRef, ConflictError
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod
from tests.testkit.chart.permissions import (
    RBAC,
    REMOVAL_ACCOUNT,
    create_removal_account,
    delete_removal_permissions,
    delete_repair_permissions,
    grant_repair,
)
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually, free_port
from tests.testkit.control_plane.rights import await_rights
from tests.testkit.registration.removal import ADMISSION, Removal
from webhook.registration import RegistrationOptions


@pytest.fixture
def removal(plane: ControlPlane) -> Iterator[Removal]:
    namespace = plane.namespace()
    removal = Removal(plane, f"gpuward-{namespace}", namespace)
    create_removal_account(plane, namespace, removal.name)
    removal.register()
    yield removal
    for kind in removal.existing():
        removal.edit(kind, "/metadata/finalizers", [])
        plane.request("DELETE", removal.path(kind))
    delete_removal_permissions(plane, removal.name)


def test_both_are_deleted_and_a_second_run_succeeds(removal: Removal) -> None:
    done = removal.run(removal.hook_kubeconfig)
    validating, mutating = (
        f"{k.value}/{removal.name}"
        for k in (ConfigurationKind.VALIDATING, ConfigurationKind.MUTATING)
    )
    expected = f"{validating}: deleted\n{mutating}: deleted\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    assert removal.existing() == set()
    done = removal.run(removal.hook_kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{validating}: did not exist\n{mutating}: did not exist\n"


def test_a_configuration_of_others_stays_and_the_other_one_is_deleted(removal: Removal) -> None:
    removal.edit(ConfigurationKind.VALIDATING, "/webhooks/0/name", "pods.example.com")
    done = removal.run(removal.hook_kubeconfig)
    assert done.returncode == 1
    assert "not gpuward's: it contains the webhook pods.example.com" in done.stderr
    assert removal.existing() == {ConfigurationKind.VALIDATING}


def test_missing_rights_are_reported_with_the_command_to_run_instead(removal: Removal) -> None:
    done = removal.run(unprivileged := removal.unprivileged_kubeconfig)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("not deleted") == 2, "each is tried, and reported once"
    assert "cannot get resource" in done.stderr
    assert removal.existing() == set(ConfigurationKind)
    program, *arguments = shlex.split(done.stderr.splitlines()[-1])
    assert program == "kubectl"
    allowed = [a if a != str(unprivileged) else str(removal.plane.kubeconfig) for a in arguments]
    removal.plane.kubectl(*allowed)
    assert removal.existing() == set()


@pytest.mark.parametrize("way", ["the option", "the annotation"])
def test_the_right_to_create_them_again_is_deleted_first(removal: Removal, way: str) -> None:
    grant_repair(removal.plane, removal.namespace, removal.name)
    binding = f"{removal.name}-repair"
    rule = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"]}
    rule |= {"resourceNames": [binding], "verbs": ["delete"]}
    change = [{"op": "add", "path": "/rules/-", "value": rule}]
    role = f"{RBAC}/clusterroles/{removal.name}-removal"
    options = [f"--repair-binding={binding}"] if way == "the option" else []
    if way == "the annotation":
        for kind in ConfigurationKind:
            removal.edit(kind, "/metadata/annotations", {"gpuward.io/repair-binding": binding})
    # Without the right to that, both stay: they would be created again.
    done = removal.run(removal.hook_kubeconfig, *options)
    assert done.returncode == 1
    assert "clusterrolebindings" in done.stderr
    assert removal.existing() == set(ConfigurationKind)
    content_type = "application/json-patch+json"
    assert removal.plane.request("PATCH", role, change, content_type=content_type).status == 200
    await_rights(removal.plane)
    done = removal.run(removal.hook_kubeconfig, *options)
    assert (done.returncode, done.stderr, removal.existing()) == (0, "", set())
    path = f"{RBAC}/clusterrolebindings/{binding}"
    assert removal.plane.request("GET", path).status == 404
    delete_repair_permissions(removal.plane, removal.name)


def test_an_annotation_cannot_choose_another_binding(removal: Removal) -> None:
    path = f"{RBAC}/clusterrolebindings"
    name = f"of-others-{removal.name}"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    removal.plane.create(path, {"metadata": {"name": name}, "roleRef": role})
    for kind in ConfigurationKind:
        removal.edit(kind, "/metadata/annotations", {"gpuward.io/repair-binding": name})
    done = removal.run(removal.plane.kubeconfig)  # a user who may delete everything
    assert (done.returncode, removal.existing()) == (0, set())
    assert removal.plane.request("GET", f"{path}/{name}").status == 200
    assert removal.plane.request("DELETE", f"{path}/{name}").status == 200


def test_a_refusal_does_not_prevent_the_deletion_of_the_other(removal: Removal) -> None:
    patch = [
        {"op": "replace", "path": "/rules/0/resources", "value": [ConfigurationKind.MUTATING.value]}
    ]
    role = f"{RBAC}/clusterroles/{removal.name}-removal"
    content_type = "application/json-patch+json"
    assert removal.plane.request("PATCH", role, patch, content_type=content_type).status == 200
    await_rights(removal.plane)
    done = removal.run(removal.hook_kubeconfig)
    assert done.returncode == 1
    assert f"{ConfigurationKind.VALIDATING.value}/{removal.name}: not deleted: " in done.stderr
    assert f"{ConfigurationKind.MUTATING.value}/{removal.name}: deleted\n" in done.stdout
    assert removal.existing() == {ConfigurationKind.VALIDATING}


def test_a_configuration_with_a_finalizer_is_not_reported_as_deleted(removal: Removal) -> None:
    removal.edit(ConfigurationKind.MUTATING, "/metadata/finalizers", ["example.com/keep"])
    done = removal.run(removal.hook_kubeconfig)
    assert done.returncode == 1
    assert "its finalizers keep it: example.com/keep" in done.stderr
    assert removal.existing() == {ConfigurationKind.MUTATING}


def test_a_replaced_configuration_is_not_deleted(removal: Removal) -> None:
    cluster = KubernetesConfigurations(Connection.like_kubectl(str(removal.hook_kubeconfig)))
    with pytest.raises(ConflictError):
        cluster.delete_configuration(
            ConfigurationRef(ConfigurationKind.MUTATING, removal.name), "of-one-that-is-gone"
        )
    assert removal.existing() == set(ConfigurationKind)


def test_the_hook_has_no_other_rights(removal: Removal) -> None:
    client = removal.plane.client(removal.plane.token(REMOVAL_ACCOUNT, removal.namespace))
    for kind in ConfigurationKind:
        all_path = f"{ADMISSION}/{kind.value}"
        own_path = removal.path(kind)
        for method, path in (
            *(("GET", all_path), ("POST", all_path), ("DELETE", all_path)),
            *(("PUT", own_path), ("PATCH", own_path)),
            *(("GET", f"{all_path}/another"), ("DELETE", f"{all_path}/another")),
        ):
            body = {"metadata": {"name": removal.name}}
            content_type = (
                "application/merge-patch+json" if method == "PATCH" else "application/json"
            )
            answer = client.request(
                method, path, None if method == "GET" else body, None, content_type
            )
            assert answer.status == 403, (method, path, answer)
    for what in ("secrets", "pods"):
        path = f"/api/v1/namespaces/{removal.namespace}/{what}"
        assert client.request("GET", path).status == 403
    assert removal.existing() == set(ConfigurationKind)


def test_pods_are_admitted_once_an_unreachable_webhook_is_removed(plane: ControlPlane) -> None:
    namespace, name = plane.namespace(), "gpuward-dead"
    create_removal_account(plane, namespace, name)
    unreachable = by_url(f"https://127.0.0.1:{free_port()}", plane.authority.bundle)
    enforcing = RegistrationOptions(Action.DENY, failure_policy="Fail")
    manifest = {**pod(container()), "metadata": {"generateName": "any-"}}
    with registered(plane, unreachable, enforcing, name=name, only=namespace):

        def refused() -> bool:
            answer = create(plane, namespace, manifest, dry_run=True)
            return answer.status == 500 and "failed calling webhook" in str(answer.body)

        eventually(refused, what="pods are refused")
        removal = Removal(plane, name, namespace)
        assert removal.run(removal.hook_kubeconfig).returncode == 0
        eventually(
            lambda: create(plane, namespace, manifest).status == 201, what="pods are admitted"
        )
    delete_removal_permissions(plane, name)
