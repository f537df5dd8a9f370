"""NVIDIA's exporter is excused in `monitoring`; other programs in its image are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from policies.loading import default_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.admission.reviews import Admission, variable
from tests.testkit.cases import TODAY
from tests.testkit.exporter import ACCOUNT, CONTROLLER, FOREIGN, OWN, exporter_pod

NAMESPACE = "monitoring"


def refused(fields: Mapping[str, Any], namespace: str = NAMESPACE, policy: str = "") -> str:
    """Return why the exporter's pod with these fields is refused; empty if it is not."""
    answer = Admission(policy).validate(exporter_pod(fields), user=CONTROLLER, namespace=namespace)
    return "" if answer.allowed else str(answer)


@pytest.mark.parametrize("what", OWN)
def test_the_exporter_itself_is_excused(what: str) -> None:
    assert not refused(OWN[what])


@pytest.mark.parametrize("what", FOREIGN)
def test_code_of_somebody_else_is_not_excused(what: str) -> None:
    assert "image-default-all" in refused(FOREIGN[what])


def test_its_capability_is_refused_as_well() -> None:
    fields = {**FOREIGN["a hook at the start"], **variable("void")}
    made = exporter_pod(fields)
    made["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    answer = Admission().validate(made, user=CONTROLLER, namespace=NAMESPACE)
    assert not answer.allowed
    assert "sys-admin-gpu" in str(answer)


@pytest.mark.parametrize("what", [what for what in OWN if "variable" not in what])
def test_in_any_namespace_the_exporter_keeps_its_gpus(what: str) -> None:
    assert not refused(OWN[what], "default")


@pytest.mark.parametrize("what", FOREIGN)
def test_in_any_namespace_code_of_somebody_else_gets_none(what: str) -> None:
    answer = Admission().mutate(exporter_pod(FOREIGN[what]), user=CONTROLLER, namespace="default")
    assert answer.operations, answer
    assert "image-default-all" in refused(FOREIGN[what], "default")


@pytest.mark.parametrize("field", ["initContainers", "ephemeralContainers"])
def test_one_container_with_another_program_excuses_none(field: str) -> None:
    made = exporter_pod({**variable("all")})
    shell = {**made["spec"]["containers"][0], "name": "shell", **FOREIGN["a shell"]}
    made["spec"][field] = [shell]
    answer = Admission().validate(made, user=CONTROLLER, namespace=NAMESPACE)
    assert "visible-devices-env" in str(answer)


def test_a_component_without_programs_may_run_anything() -> None:
    component = f"{{namespaces: [{NAMESPACE}], serviceAccounts: [{ACCOUNT}]}}"
    profile = f"{{name: own, extends: [nvidia], components: [{component}]}}"
    assert not refused(FOREIGN["a shell"], policy=f"profiles: [{profile}]")


AGENT = "rocm/k8s-device-plugin:latest"
OTHER_PROGRAMS = (
    ["python", "-c", "import os; os.system('id')"],
    ["/usr/bin/python3.12", "-m", "http.server"],
    ["perl", "-e", "system 'id'"],
    ["node", "-e", "require('child_process').execSync('id')"],
    ["awk", 'BEGIN { system("id") }'],
    ["/bin/busybox", "sh", "-c", "id"],
    ["timeout", "9", "k8s-device-plugin"],
    ["python3", "-c", "device-plugin -a"],
    ["sh", "-c", "device-plugin -a; id"],
)
AGENT_PROGRAMS: tuple[list[str], ...] = (
    [],
    ["./k8s-node-labeller"],
    ["/usr/bin/k8s-device-plugin"],
    ["/kubelet-gpu-plugin"],
    ["gpu-kubeletplugin"],
    ["./main"],
    ["rbln-validator"],
    ["/bin/sh", "-c", "neuron-monitor | neuron-monitor-prometheus.py --port 9010"],
    ["/bin/bash", "-c", "--", "device-plugin -useAscendDocker=true"],
)


def found_in_agent(command: list[str], **fields: Any) -> set[str]:
    """Return the rules that find something in a privileged agent of another maker."""
    made = {"command": command, "image": AGENT, **variable("void"), **fields}
    manifest = exporter_pod(made)
    manifest["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    manifest["metadata"] |= {"namespace": NAMESPACE, "uid": "4c7f"}
    found = check(manifest, default_policy().rule_set(), Context(today=TODAY)).findings
    return {finding.rule for finding in found}


@pytest.mark.parametrize("command", OTHER_PROGRAMS, ids=" ".join)
def test_no_agent_is_excused_in_which_another_program_runs(command: list[str]) -> None:
    assert "privileged-gpu" in found_in_agent(command)


@pytest.mark.parametrize("command", OTHER_PROGRAMS, ids=" ".join)
def test_nor_one_that_runs_another_program_by_a_hook_or_a_probe(command: list[str]) -> None:
    runs = {"exec": {"command": command}}
    for fields in ({"lifecycle": {"postStart": runs}}, {"livenessProbe": runs}):
        assert "privileged-gpu" in found_in_agent([], **fields)
    healthy = {"exec": {"command": ["./k8s-device-plugin", "-health"]}}
    assert "privileged-gpu" not in found_in_agent([], livenessProbe=healthy)


@pytest.mark.parametrize("command", AGENT_PROGRAMS, ids=" ".join)
def test_agents_of_every_maker_are_excused_with_their_own_programs(command: list[str]) -> None:
    assert "privileged-gpu" not in found_in_agent(command)


@pytest.mark.parametrize("command", [{"a": 1}, "/usr/bin/dcgm-exporter", [1], [None]])
def test_a_malformed_command_is_none_of_its_programs(command: Any) -> None:
    manifest = exporter_pod({"command": command, **variable("all")})
    manifest["metadata"] |= {"namespace": NAMESPACE, "uid": "4c7f"}
    found = check(manifest, default_policy().rule_set(), Context(today=TODAY)).findings
    assert "visible-devices-env" in {finding.rule for finding in found}
