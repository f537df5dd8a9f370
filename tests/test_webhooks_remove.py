"""`gpuward webhooks remove` on a real API server, with the rights of the chart's hook."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from admitting import ROOT, by_url, create, registered
from calls import container, pod
from certs_rights import RBAC, REMOVER, prepare_removal, take_back_removal
from controlplane.plane import ControlPlane
from controlplane.processes import eventually, free_port

from cluster.api import ConfigurationKind, ConfigurationRef, ConflictError
from cluster.client import KubernetesConfigurations
from cluster.connection import Connection
from registration.configurations import RegistrationOptions, configurations
from rules.finding import Action

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class Removal(NamedTuple):
    """Two webhook configurations of one name, and who may take them away."""

    plane: ControlPlane
    name: str
    namespace: str

    @property
    def hook(self) -> Path:
        """The credentials of the chart's hook."""
        return self.plane.kubeconfig_for(self.plane.token(REMOVER, self.namespace))

    @property
    def stranger(self) -> Path:
        """The credentials of somebody who may do nothing."""
        return self.plane.kubeconfig_for(self.plane.token("default", self.namespace))

    def register(self) -> None:
        """Make what a chart makes; no pod is ever sent there."""
        made = configurations(self.name, lambda path: {"url": "https://127.0.0.1:1" + path}, NOBODY)
        for kind, manifest in zip(ConfigurationKind, made, strict=True):
            self.plane.create(f"{ADMISSION}/{kind.value}", manifest)

    def there(self) -> set[ConfigurationKind]:
        """Those that exist."""
        asked = {
            kind: self.plane.request("GET", self.path(kind)).status for kind in ConfigurationKind
        }
        assert set(asked.values()) <= {200, 404}
        return {kind for kind, status in asked.items() if status == 200}

    def path(self, kind: ConfigurationKind) -> str:
        return f"{ADMISSION}/{kind.value}/{self.name}"

    def edit(self, kind: ConfigurationKind, path: str, value: Any) -> None:
        """Set one value of a configuration."""
        sent = [{"op": "add", "path": path, "value": value}]
        content_type = "application/json-patch+json"
        answer = self.plane.request("PATCH", self.path(kind), sent, content_type=content_type)
        assert answer.status == 200, answer

    def run(self, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
        named = [f"--{kind}-configuration={self.name}" for kind in ("mutating", "validating")]
        return remove("--kubeconfig", str(kubeconfig), *named)


NOBODY = RegistrationOptions(Action.OFF)


def remove(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`gpuward webhooks remove`, in a home with nothing in it."""
    seen = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    command = [sys.executable, "-m", "gpuward", "webhooks", "remove", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**seen, **environment}
    )


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
