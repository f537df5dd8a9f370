"""The console as the chart installs it: what it says about the webhook beside it, and to whom."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.console.viewers import viewer_token
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]
# This is about what is installed, whichever helm has installed it.
pytestmark = pytest.mark.parametrize("installation", ["helm4"], indirect=True, scope="module")

VALUES = {
    "console": {"enabled": True},
    "gpuExceptions": {"enabled": True},
    "logLevel": "info",
    "policy": {
        "exceptions": [
            {
                "rules": ["privileged-gpu"],
                "match": {"namespace": "nccl-tests"},
                "reason": "RDMA bring-up",
                "expires": "2031-03-31",
            }
        ]
    },
}
BYPASS = [
    {
        "name": "main",
        "image": "example.com/app:1",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }
]


def asked(installation: Installation, path: str, bearer: str) -> Any:
    """The JSON at a path of the console; None as long as there is no answer."""
    for pod in installation.pods("console"):
        headers = {"Accept": "application/json", "Authorization": f"Bearer {bearer}"}
        request = Request(f"http://{pod.endpoint('http')}{path}", headers=headers)
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310  # the same
                return json.load(answer)
        except (HTTPError, URLError, ConnectionError):
            continue
    return None


def refused_pods(installation: Installation, bearer: str) -> set[str]:
    document = asked(installation, "/decisions?outcome=denied", bearer)
    return {one["name"] for one in document["decisions"]} if document else set()


def test_decisions_are_shown_to_those_whose_namespace_they_are_about(
    installation: Installation,
) -> None:
    plane = installation.plane
    installation.install(merge_values(SLOW_MACHINE, VALUES))
    home = plane.namespace({"gpuward.io/mode": "deny"})
    other = plane.namespace({"gpuward.io/mode": "deny"})
    member = viewer_token(plane, home)
    admin = viewer_token(plane, other, sees_all=True)
    pods = {home: "own-taker", other: "hidden-taker"}

    def is_refused(namespace: str) -> bool:
        manifest = {"metadata": {"name": pods[namespace]}, "spec": {"containers": BYPASS}}
        dry_run = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", manifest)
        return dry_run.status == 403

    eventually(lambda: all(map(is_refused, pods)), what="gpuward enforces")
    eventually(
        lambda: refused_pods(installation, admin) >= set(pods.values()),
        seconds=100,
        what="the console has read the log",
    )

    def knows_replicas() -> bool:
        """The log of one replica may have been read before that of the other."""
        replicas = asked(installation, "/decisions", admin)["webhook"]["replicas"]
        wanted = ("version", "policy", "certificate_end")
        return len(replicas) == 2 and all(each[key] for each in replicas for key in wanted)

    eventually(knows_replicas, seconds=100, what="the console knows both replicas")
    document = asked(installation, "/decisions?outcome=denied", admin)
    (own, *_) = [one for one in document["decisions"] if one["name"] == "own-taker"]
    assert (own["namespace"], own["kind"], own["mode"]) == (home, "Pod", "deny")
    assert own["is_dry_run"]
    assert ("visible-devices-env", "denied", "main") in {
        (reason["rule"], reason["outcome"], reason["container"]) for reason in own["reasons"]
    }
    assert document["missing"] == []
    webhook = document["webhook"]
    assert (webhook["registered"], webhook["failurePolicies"]) == (True, ["Ignore"])
    assert (document["modes"][home], document["modes"]["kube-system"]) == ("deny", None)
    (exception,) = document["exceptions"]
    assert (exception["reason"], exception["ends"]) == ("RDMA bring-up", "2031-03-31")

    shown = asked(installation, "/decisions", member)
    assert {one["namespace"] for one in shown["decisions"]} == {home}
    assert shown["modes"] == {home: "deny"}
    assert shown["exceptions"] == []
    assert shown["notShown"]["decisions"] >= 1
    webhook_pods = [pod.manifest["metadata"]["name"] for pod in installation.pods("webhook")]
    assert {replica["pod"] for replica in webhook["replicas"]} == {*webhook_pods}
    for word in (other, "hidden-taker", "RDMA", *webhook_pods):
        assert word not in json.dumps(shown)
