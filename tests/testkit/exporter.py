"""NVIDIA's exporter of metrics as its chart installs it, and with code of another user."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rules.gpu.components import DAEMON_SET_CONTROLLERS
from tests.testkit.admission.reviews import container, pod, variable

ACCOUNT = "dcgm-exporter"
CONTROLLER = DAEMON_SET_CONTROLLERS[0]
_HEALTH = {"httpGet": {"path": "/health", "port": 9400}}
# NVIDIA/dcgm-exporter deployment/templates/daemonset.yaml and values.yaml at d5e5f510.
_OF_THE_CHART = container(
    "exporter",
    image="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.1-4.8.0-distroless",
    args=["-f", "/etc/dcgm-exporter/dcp-metrics-included.csv"],
    env=[
        {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
        {"name": "DCGM_EXPORTER_LISTEN", "value": ":9400"},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "DCGM_EXPORTER_WEB_CONFIG_FILE", "value": "/etc/dcgm-exporter/web-config.yaml"},
        {"name": "KUBERNETES_ENABLE_DRA", "value": "true"},
    ],
    securityContext={"runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}},
    volumeMounts=[
        {"name": "files", "mountPath": "/etc/dcgm-exporter/web-config.yaml", "subPath": "w"},
        {"name": "files", "mountPath": "/etc/dcgm-exporter/default-counters.csv", "subPath": "c"},
        {"name": "files", "mountPath": "/var/lib/dcgm-exporter-debug"},
    ],
    livenessProbe=_HEALTH,
    readinessProbe=_HEALTH,
)
_COMMAND: Mapping[str, Any] = {"exec": {"command": ["/files/program"]}}
OWN: Mapping[str, Mapping[str, Any]] = {
    "as the chart installs it": {},
    "its program": {"command": ["/usr/bin/dcgm-exporter"]},
    "its entry point": {"command": ["/usr/local/dcgm/dcgm-exporter-entrypoint.sh", "-n"]},
    "the toolkit's variable": variable("all"),
}
"""Fields of its container with which the exporter runs only its own program."""


def _mounted(path: str, **fields: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "files", "mountPath": path, **fields}]}


FOREIGN: Mapping[str, Mapping[str, Any]] = {
    "a command from a volume": {"command": ["/files/program"], **_mounted("/files")},
    "a shell": {"command": ["/bin/bash", "-c"], "args": ["nvidia-smi"]},
    "a volume over its folder": _mounted("/usr/bin"),
    "a volume over its program": _mounted("/usr/bin/dcgm-exporter", subPath="program"),
    "a volume over its entry point": _mounted("/usr/local/dcgm/"),
    "a volume over the root": _mounted("/"),
    "a list of libraries to load": _mounted("/etc/ld.so.preload", subPath="list"),
    "a path by way of a link": _mounted("/var/run/../usr/bin"),
    "a library to load": {**variable("/files/lib.so", "LD_PRELOAD"), **_mounted("/files")},
    "a folder of libraries": {**variable("/files", "LD_LIBRARY_PATH"), **_mounted("/files")},
    "a folder of programs": variable("/files", "PATH"),
    "a script of the shell": variable("/files/script", "BASH_ENV"),
    "variables by a reference": {"envFrom": [{"configMapRef": {"name": "variables"}}]},
    "arguments instead of a command": {"args": ["sh", "-c", "id"]},
    "a hook at the start": {"lifecycle": {"postStart": _COMMAND}},
    "a hook at the end": {"lifecycle": {"preStop": _COMMAND}},
    "a probe of its life": {"livenessProbe": _COMMAND},
    "a probe of its readiness": {"readinessProbe": _COMMAND},
    "a probe of its start": {"startupProbe": _COMMAND},
}
"""By which it runs code that its author chose."""


def exporter_pod(fields: Mapping[str, Any], name: str = "exporter") -> dict[str, Any]:
    """A pod of its DaemonSet, whose container has these fields besides or instead."""
    made = copy.deepcopy({**_OF_THE_CHART, **fields})
    files = {"name": "files", "emptyDir": {}}
    found = pod(made, serviceAccountName=ACCOUNT, volumes=[files])
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "3b6e"}
    found["metadata"] = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    return found
