"""Run the command of one of the chart's hooks by hand, with the hook's account and permissions."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.processes import eventually


def prepare_hook(installation: Installation, component: str) -> tuple[Any, str]:
    """Create the account and permissions of a hook; returns its pod and its account's name."""
    hooks = yaml.safe_load_all(installation.helm("get hooks").stdout)
    parts = [
        each
        for each in hooks
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    permissions = [each for each in parts if each["kind"] not in ("Job", "Pod")]
    (work,) = (each for each in parts if each["kind"] in ("Job", "Pod"))
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": permissions})
    installation.plane.kubectl("apply", "-n", installation.namespace, "-f", "-", input=manifests)
    template = work["spec"]["template"] if work["kind"] == "Job" else work
    # Without the options that make the hook wait.
    (container,) = template["spec"]["containers"]
    container["args"] = [a for a in container["args"] if not a.startswith("--wait")]
    labels = template["metadata"]["labels"]
    metadata = {
        "name": f"{component}-by-hand",
        "labels": labels,
        "namespace": installation.namespace,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return pod, template["spec"]["serviceAccountName"]


def run_hook(installation: Installation, component: str) -> tuple[str, str]:
    """Run the command of a hook in a pod; returns the final phase and the log."""
    pod, _ = prepare_hook(installation, component)
    path = f"/api/v1/namespaces/{installation.namespace}/pods"
    name = pod["metadata"]["name"]
    installation.plane.create(path, pod)

    def phase() -> str:
        found: str = installation.plane.request("GET", f"{path}/{name}").body["status"]["phase"]
        return found if found in ("Succeeded", "Failed") else ""

    final_phase = eventually(phase, what=f"{name} ends")
    log = installation.kubelet.log(installation.namespace, name)
    installation.plane.kubectl("delete", "pod", name, "-n", installation.namespace)
    return final_phase, log
