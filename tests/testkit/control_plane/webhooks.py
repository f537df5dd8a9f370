"""When the API server's admission knows the webhooks that are registered."""

from __future__ import annotations

import itertools
from typing import Any

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps?dryRun=All"
_KINDS = ("Mutating", "Validating")
# A name of its own for each call: the watch may not have shown yet that the last one is deleted.
_NUMBERS = itertools.count(1)
# No server listens on this port.
_NO_SERVER = "https://127.0.0.1:1"


def await_webhooks(cluster: Cluster) -> None:
    """Return when the API server's admission goes by the webhook configurations as they are now.

    It reads those of each kind from a watch, which may be behind the answer to a POST or PATCH.
    The watch delivers changes in their order: when a webhook is called that was registered last,
    the changes before it are known. Raises TimeoutError.
    """
    for kind in _KINDS:
        name = f"registered-last-{next(_NUMBERS)}.example.com"
        path = f"{_ADMISSION}/{kind.lower()}webhookconfigurations"
        cluster.create(path, _configuration(name))
        try:
            eventually(lambda: _is_called(cluster, name), what=f"{kind} webhooks")  # noqa: B023
        finally:
            cluster.request("DELETE", f"{path}/{name}")


def _is_called(cluster: Cluster, name: str) -> bool:
    probe = {"metadata": {"name": "probe", "labels": {name: ""}}}
    answer = cluster.request("POST", _CONFIG_MAPS, probe)
    return f'failed calling webhook "{name}"' in str(answer.body)


def _configuration(name: str) -> dict[str, Any]:
    """A webhook that fails, for ConfigMaps with a label that only those of `_is_called` have."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    webhook = {
        "name": name,
        "clientConfig": {"url": _NO_SERVER},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "objectSelector": {"matchLabels": {name: ""}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}
