"""`gpuward webhooks remove` on a real API server, with the rights of the chart's hook."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from cluster.api import ConfigurationKind, ConfigurationRef, ConflictError
from cluster.client import KubernetesConfigurations
from cluster.connection import Connection
from registration.configurations import RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, create, registered
from tests.testkit.admission.reviews import container, pod
from tests.testkit.chart.permissions import RBAC, REMOVER, prepare_removal, take_back_removal
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually, free_port
from tests.testkit.registration.removal import ADMISSION, Removal


@pytest.fixture
def removal(plane: ControlPlane) -> Iterator[Removal]:
    namespace = plane.namespace()
    here = Removal(plane, f"gpuward-{namespace}", namespace)
    prepare_removal(plane, namespace, here.name)
    here.register()
    yield here
    for kind in here.there():
        here.edit(kind, "/metadata/finalizers", [])
        plane.request("DELETE", here.path(kind))
    take_back_removal(plane, here.name)


def test_both_go_and_a_second_time_does_no_harm(removal: Removal) -> None:
    done = removal.run(removal.hook)
    validating, mutating = (
        f"{k.value}/{removal.name}"
        for k in (ConfigurationKind.VALIDATING, ConfigurationKind.MUTATING)
    )
    said = f"{validating}: deleted\n{mutating}: deleted\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert removal.there() == set()
    done = removal.run(removal.hook)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{validating}: did not exist\n{mutating}: did not exist\n"


def test_what_belongs_to_others_stays_and_the_other_one_goes(removal: Removal) -> None:
    removal.edit(ConfigurationKind.VALIDATING, "/webhooks/0/name", "pods.example.com")
    done = removal.run(removal.hook)
    assert done.returncode == 1
    assert "not gpuward's: it contains the webhook pods.example.com" in done.stderr
    assert removal.there() == {ConfigurationKind.VALIDATING}


def test_who_may_not_is_told_what_to_run_instead(removal: Removal) -> None:
    done = removal.run(stranger := removal.stranger)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("not deleted") == 2, "each is tried, and said once"
    assert "cannot get resource" in done.stderr
    assert removal.there() == set(ConfigurationKind)
    program, *arguments = shlex.split(done.stderr.splitlines()[-1])
    assert program == "kubectl"
    allowed = [a if a != str(stranger) else str(removal.plane.kubeconfig) for a in arguments]
    removal.plane.kubectl(*allowed)
    assert removal.there() == set()


def test_one_that_is_refused_does_not_save_the_other(removal: Removal) -> None:
    sent = [
        {"op": "replace", "path": "/rules/0/resources", "value": [ConfigurationKind.MUTATING.value]}
    ]
    role = f"{RBAC}/clusterroles/{removal.name}-removal"
    content_type = "application/json-patch+json"
    assert removal.plane.request("PATCH", role, sent, content_type=content_type).status == 200
    done = removal.run(removal.hook)
    assert done.returncode == 1
    assert f"{ConfigurationKind.VALIDATING.value}/{removal.name}: not deleted: " in done.stderr
    assert f"{ConfigurationKind.MUTATING.value}/{removal.name}: deleted\n" in done.stdout
    assert removal.there() == {ConfigurationKind.VALIDATING}


def test_what_a_finalizer_keeps_is_not_called_deleted(removal: Removal) -> None:
    removal.edit(ConfigurationKind.MUTATING, "/metadata/finalizers", ["example.com/keep"])
    done = removal.run(removal.hook)
    assert done.returncode == 1
    assert "its finalizers keep it: example.com/keep" in done.stderr
    assert removal.there() == {ConfigurationKind.MUTATING}


def test_what_has_taken_its_place_meanwhile_stays(removal: Removal) -> None:
    cluster = KubernetesConfigurations(Connection.like_kubectl(str(removal.hook)))
    with pytest.raises(ConflictError):
        cluster.delete_configuration(
            ConfigurationRef(ConfigurationKind.MUTATING, removal.name), "of-one-that-is-gone"
        )
    assert removal.there() == set(ConfigurationKind)


def test_the_hook_may_do_nothing_else(removal: Removal) -> None:
    client = removal.plane.client(removal.plane.token(REMOVER, removal.namespace))
    for kind in ConfigurationKind:
        every = f"{ADMISSION}/{kind.value}"
        ours = removal.path(kind)
        for method, path in (
            *(("GET", every), ("POST", every), ("DELETE", every)),
            *(("PUT", ours), ("PATCH", ours)),
            *(("GET", f"{every}/another"), ("DELETE", f"{every}/another")),
        ):
            body = {"metadata": {"name": removal.name}}
            sent = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = client.request(method, path, None if method == "GET" else body, None, sent)
            assert answer.status == 403, (method, path, answer)
    for what in ("secrets", "pods"):
        path = f"/api/v1/namespaces/{removal.namespace}/{what}"
        assert client.request("GET", path).status == 403
    assert removal.there() == set(ConfigurationKind)


def test_a_dead_webhook_that_refuses_every_pod_is_out_of_the_way(plane: ControlPlane) -> None:
    namespace, name = plane.namespace(), "gpuward-dead"
    prepare_removal(plane, namespace, name)
    dead = by_url(f"https://127.0.0.1:{free_port()}", plane.authority.bundle)
    enforcing = RegistrationOptions(Action.DENY, failure_policy="Fail")
    manifest = {**pod(container()), "metadata": {"generateName": "any-"}}
    with registered(plane, dead, enforcing, name=name, only=namespace):

        def refused() -> bool:
            answer = create(plane, namespace, manifest, dry_run=True)
            return answer.status == 500 and "failed calling webhook" in str(answer.body)

        eventually(refused, what="pods are refused")
        here = Removal(plane, name, namespace)
        assert here.run(here.hook).returncode == 0
        eventually(
            lambda: create(plane, namespace, manifest).status == 201, what="pods are admitted"
        )
    take_back_removal(plane, name)
