"""Tests of `gpuward webhooks watch` on a real API server, with the rights of the chart's pod."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.api.errors import ConfigurationKind
from rules.finding import Action
from tests.testkit.chart.permissions import (
    WATCH_ACCOUNT,
    create_watch_account,
    delete_repair_permissions,
    delete_watch_permissions,
    grant_repair,
)
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.registration.checked_installation import ENVIRONMENT
from webhook.registration import RegistrationOptions, configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
METRIC = "gpuward_registration_as_expected"
POD = {"POD_NAME": "gpuward-watch-0", "POD_UID": "9b4e"}
KINDS = MUTATING, VALIDATING = ConfigurationKind.MUTATING, ConfigurationKind.VALIDATING


class Watched(NamedTuple):
    """Two webhook configurations that select no namespace, and the process that watches them."""

    plane: ControlPlane
    namespace: str
    log_file: Path
    port: int

    @property
    def name(self) -> str:
        return f"gpuward-{self.namespace}"

    def samples(self) -> dict[str, float]:
        """The samples of the metric by kind; none before the process answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        families = text_string_to_metric_families(text)
        found = [s for family in families for s in family.samples if s.name == METRIC]
        return {sample.labels["kind"]: sample.value for sample in found}

    def become(self, mutating: int, validating: int) -> None:
        """Wait until the metric has these values."""
        wanted = {MUTATING.value: mutating, VALIDATING.value: validating}
        eventually(lambda: self.samples() == wanted, what=f"the metric is {wanted}")

    def log(self, event: str) -> list[Any]:
        """The lines of the log with an event."""
        # The last line may not be whole.
        lines = [json.loads(line) for line in self.log_file.read_text().split("\n")[:-1]]
        return [line for line in lines if line["event"] == event]

    def events(self, reason: str = "RegistrationChanged") -> list[Any]:
        """The Kubernetes Events of the namespace with a reason."""
        done = self.plane.kubectl("get", "events", "-n", self.namespace, "-o", "json")
        found: list[Any] = json.loads(done.stdout)["items"]
        return [event for event in found if event["reason"] == reason]

    def path(self, kind: ConfigurationKind) -> str:
        return f"{ADMISSION}/{kind.value}/{self.name}"

    def edit(self, kind: ConfigurationKind, path: str, value: Any) -> None:
        patch = [{"op": "replace", "path": path, "value": value}]
        content_type = "application/json-patch+json"
        answer = self.plane.request("PATCH", self.path(kind), patch, content_type=content_type)
        assert answer.status == 200, answer


def client_config(namespace: str, path: str) -> dict[str, Any]:
    service = {"name": "gpuward", "namespace": namespace, "port": 443, "path": path}
    return {"service": service, "caBundle": "LS0tLS1CRUdJTg=="}


# Only the watch of the configurations can begin another comparison within a test.
HOURLY = "--interval=3600"


@pytest.fixture
def watched(
    request: pytest.FixtureRequest, plane: ControlPlane, processes: Processes, tmp_path: Path
) -> Iterator[Watched]:
    """Compares every second; the parameter has the options to use instead."""
    namespace = plane.namespace()
    name = f"gpuward-{namespace}"
    options = RegistrationOptions(Action.OFF)
    manifests = configurations(name, partial(client_config, namespace), options)
    for manifest in manifests:
        for webhook in manifest["webhooks"]:
            webhook["objectSelector"] = {"matchLabels": {"gpuward.io/never": namespace}}
    expected = tmp_path / "expected.yaml"
    expected.write_text(json.dumps({"kind": "List", "items": manifests}))
    for kind, manifest in zip(ConfigurationKind, manifests, strict=True):
        plane.create(f"{ADMISSION}/{kind.value}", manifest)
    service = {"metadata": {"name": "gpuward"}, "spec": {"ports": [{"port": 443}]}}
    plane.create(f"/api/v1/namespaces/{namespace}/services", service)
    create_watch_account(plane, namespace, name)
    kubeconfig = plane.kubeconfig_for(plane.token(WATCH_ACCOUNT, namespace))
    port = free_port()
    arguments = [f"--expected={expected}", f"--kubeconfig={kubeconfig}", f"--status-port={port}"]
    options_given = getattr(request, "param", ["--interval=1"])
    if "--repair" in options_given:
        grant_repair(plane, namespace, name)
    arguments += ["--settle-seconds=0", *options_given]
    command = [sys.executable, "-m", "gpuward", "webhooks", "watch", *arguments]
    process = f"watch-{namespace}"
    processes.start(process, command, {**ENVIRONMENT, **POD, "POD_NAMESPACE": namespace})
    found = Watched(plane, namespace, processes.log(process), port)
    yield found
    processes.end(process)
    for kind in ConfigurationKind:
        plane.request("DELETE", found.path(kind))
    delete_watch_permissions(plane, name)
    delete_repair_permissions(plane, name)


def test_a_change_becomes_a_metric_a_line_in_the_log_and_an_event(watched: Watched) -> None:
    watched.become(1, 1)
    assert watched.events() == watched.log("registration changed") == []
    watched.edit(VALIDATING, "/webhooks/0/failurePolicy", "Fail")
    watched.become(1, 0)
    (line,) = eventually(lambda: watched.log("registration changed"), what="a line in the log")
    difference = 'deny.gpuward.io: failurePolicy: expected "Ignore", found "Fail"'
    assert (line["level"], line["configuration"]) == ("error", watched.name)
    assert line["differences"] == [difference]
    (event,) = eventually(watched.events, what="an event")
    assert event["type"] == "Warning"
    assert event["message"] == f"{VALIDATING.value}/{watched.name}: {difference}"
    about = event["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == ("Pod", *POD.values())
    watched.edit(VALIDATING, "/webhooks/0/failurePolicy", "Ignore")
    watched.become(1, 1)
    eventually(lambda: watched.log("registration as expected again"), what="a line in the log")


def test_deleted_configurations_are_reported(watched: Watched) -> None:
    watched.become(1, 1)
    for kind in ConfigurationKind:
        watched.plane.request("DELETE", watched.path(kind))
    watched.become(0, 0)
    eventually(lambda: len(watched.events()) == 2, what="two events")
    assert all("it does not exist" in event["message"] for event in watched.events())


def test_a_long_list_of_differences_is_cut_in_the_event(watched: Watched) -> None:
    watched.become(1, 1)
    path = f"{ADMISSION}/{MUTATING.value}/{watched.name}"
    found = watched.plane.request("GET", path).body
    for webhook in found["webhooks"]:
        webhook.update(rules=webhook["rules"][:1], timeoutSeconds=9, failurePolicy="Fail")
    assert watched.plane.request("PUT", path, found).status == 200
    (event,) = eventually(watched.events, what="an event")
    assert event["message"].endswith("…")
    assert len(event["message"].encode()) == 1024


def test_missing_rights_are_no_all_clear(watched: Watched) -> None:
    watched.become(1, 1)
    delete_watch_permissions(watched.plane, watched.name)
    eventually(lambda: watched.samples() == {}, what="the metric has no sample")
    (line, *_) = eventually(lambda: watched.log("registration not compared"), what="a line")
    assert line["level"] == "error"
    assert "cannot get resource" in line["error"]


@pytest.mark.parametrize("watched", [[HOURLY]], indirect=True)
def test_a_change_is_seen_at_once(watched: Watched) -> None:
    watched.become(1, 1)
    watched.edit(VALIDATING, "/webhooks/0/failurePolicy", "Fail")
    watched.become(1, 0)
    watched.plane.request("DELETE", watched.path(MUTATING))
    watched.become(0, 0)
    watched.edit(VALIDATING, "/webhooks/0/failurePolicy", "Ignore")
    watched.become(0, 1)


@pytest.mark.parametrize("watched", [[HOURLY, "--repair"]], indirect=True)
def test_deleted_configurations_are_created_again_as_helm_would(watched: Watched) -> None:
    watched.become(1, 1)
    before = {kind: watched.plane.request("GET", watched.path(kind)).body for kind in KINDS}
    for kind in KINDS:
        assert watched.plane.request("DELETE", watched.path(kind)).status == 200
    eventually(lambda: len(watched.events("RegistrationRepaired")) == 2, what="two events")
    watched.become(1, 1)
    for kind in KINDS:
        found = watched.plane.request("GET", watched.path(kind)).body
        assert found["metadata"]["uid"] != before[kind]["metadata"]["uid"]
        assert found["webhooks"] == before[kind]["webhooks"]
        (owner,) = found["metadata"]["managedFields"]
        assert (owner["manager"], owner["operation"]) == ("helm", "Apply")


@pytest.mark.parametrize("watched", [[HOURLY, "--repair"]], indirect=True)
def test_nothing_is_created_once_the_service_is_gone(watched: Watched) -> None:
    watched.become(1, 1)
    names = [f"{kind.value}/{watched.name}" for kind in KINDS]
    # In the order in which Helm 4 uninstalls.
    watched.plane.kubectl("delete", *names)
    watched.plane.kubectl("delete", "service/gpuward", "-n", watched.namespace)
    (line, *_) = eventually(lambda: watched.log("registration not repaired"), what="no repair")
    assert line["error"].endswith("does not exist either")
    watched.become(0, 0)


@pytest.mark.parametrize("watched", [[HOURLY, "--repair"]], indirect=True)
def test_nothing_is_created_once_the_right_to_it_is_gone(watched: Watched) -> None:
    watched.become(1, 1)
    names = [f"{kind.value}/{watched.name}" for kind in KINDS]
    # In this order, and in one command, as docs/uninstall.md has it.
    watched.plane.kubectl("delete", f"clusterrolebinding/{watched.name}-repair", *names)
    eventually(lambda: watched.log("registration not repaired"), what="the repair is refused")
    watched.become(0, 0)
    for kind in KINDS:
        assert watched.plane.request("GET", watched.path(kind)).status == 404


def test_the_right_to_create_is_limited_to_server_side_apply_of_these_names(
    watched: Watched,
) -> None:
    grant_repair(watched.plane, watched.namespace, watched.name)
    client = watched.plane.client(watched.plane.token(WATCH_ACCOUNT, watched.namespace))
    apply = "application/apply-patch+yaml"
    for kind in KINDS:
        manifest = watched.plane.request("GET", watched.path(kind)).body
        manifest["metadata"] = {"name": watched.name}
        watched.plane.request("DELETE", watched.path(kind))
        parent, other = f"{ADMISSION}/{kind.value}", f"{watched.name}-other"
        assert client.request("POST", parent, manifest).status == 403
        renamed = {**manifest, "metadata": {"name": other}}
        path = f"{parent}/{other}?fieldManager=helm"
        assert client.request("PATCH", path, renamed, content_type=apply).status == 403
        path = f"{watched.path(kind)}?fieldManager=helm"
        assert client.request("PATCH", path, manifest, content_type=apply).status == 201
        assert client.request("GET", f"{parent}?watch=true&timeoutSeconds=1").status == 403
