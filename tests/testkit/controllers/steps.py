"""What a user does with a workload and its controller, and what the API server then has seen."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.controllers.examples import RESOURCE, Example
from tests.testkit.end_to_end.steps import apply, list_pods

WRITES = ("create", "delete", "patch", "update")
WRITES_OF_ONE_OBJECT = 25
"""More of them by one user, for one workload, are taken for a request without end."""
# Everything that Kubernetes makes of a workload, and with it the controllers.
MADE_BY_KUBERNETES = ("pods", "jobs", "statefulsets.apps", "services")
MADE = (
    *MADE_BY_KUBERNETES,
    "jobsets.jobset.x-k8s.io",
    "leaderworkersets.leaderworkerset.x-k8s.io",
    "rayclusters.ray.io",
    "rayjobs.ray.io",
    "rayservices.ray.io",
    "trainjobs.trainer.kubeflow.org",
    "workloads.kueue.x-k8s.io",
)


def run(plane: ControlPlane, namespace: str, example: Example) -> list[Any]:
    """Create a workload, about which only fixes are reported; its pods, once all run."""
    said = apply(plane, namespace, example.manifest).stderr.splitlines()
    assert [line for line in said if "] fixed: " not in line] == []
    return wait_for_pods(plane, namespace, example)


def wait_for_pods(plane: ControlPlane, namespace: str, example: Example) -> list[Any]:
    """The pods of a workload, once all run."""

    def get_running() -> list[Any]:
        found = list_pods(plane, namespace)
        ran = [pod for pod in found if pod["status"].get("phase") in ("Running", "Succeeded")]
        assert len(ran) >= example.pods, [describe(pod) for pod in found]
        return ran

    return eventually(get_running, what=f"the pods of {example.name} run")


def describe(pod: Any) -> tuple[str, str, Any]:
    """The name of a pod, its phase, and what is said of its node."""
    conditions = pod["status"].get("conditions", [])
    said = [each.get("message") for each in conditions if each["type"] == "PodScheduled"]
    return pod["metadata"]["name"], pod["status"].get("phase", ""), said


def gpu_pods(pods: list[Any]) -> list[Any]:
    """Those with a limit of GPUs."""
    return [
        pod
        for pod in pods
        if any(RESOURCE in c["resources"].get("limits", {}) for c in pod["spec"]["containers"])
    ]


def events(plane: ControlPlane, namespace: str) -> list[str]:
    """The messages of all events of a namespace."""
    done = plane.kubectl("get", "events", "-n", namespace, "-o", "json")
    return [each.get("message", "") for each in json.loads(done.stdout)["items"]]


def forget_events(plane: ControlPlane, namespace: str) -> None:
    """Delete the events of a namespace, so that a test reads those of its own workload alone."""
    plane.kubectl("delete", "events", "--all", "-n", namespace)


def apply_again(plane: ControlPlane, namespace: str, example: Example) -> tuple[str, ...]:
    """What kubectl says about a workload that is there, or is created first: it may refuse it.

    JobSet, for one, refuses a second apply of what it has completed itself.
    """
    apply(plane, namespace, example.manifest, check=False)
    said = []
    for options in ((), ("--server-side",), ("--server-side",)):
        done = apply(plane, namespace, example.manifest, *options, check=False)
        said.append((done.stdout + done.stderr).replace(namespace, "NAMESPACE"))
    return tuple(said)


@contextmanager
def created(plane: ControlPlane, namespace: str, example: Example) -> Iterator[str]:
    """Create a workload, and remove it at the end, also of a test that fails.

    Yields the warnings that kubectl shows.
    """
    warnings = apply(plane, namespace, example.manifest).stderr
    try:
        yield warnings
    finally:
        remove(plane, namespace, example)


def remove(
    plane: ControlPlane, namespace: str, example: Example, made: tuple[str, ...] = MADE
) -> None:
    """Delete a workload, and wait until nothing of it is left of the kinds `made`."""
    plane.kubectl("delete", example.resource, "-n", namespace, TIMEOUT)
    get = ("get", ",".join(made), "-n", namespace, "-o", "name")

    def is_empty() -> bool:
        left = plane.kubectl(*get).stdout
        assert left == "", left
        return True

    eventually(is_empty, what=f"nothing is left of {example.name}")


def repeated_writes(
    plane: ControlPlane, namespace: str, since: datetime.datetime
) -> dict[Any, int]:
    """The writes to one object by one user that happened too often since then.

    Tests that share a namespace share objects in it, such as its LocalQueue.
    """
    counted = Counter(
        (
            event["user"]["username"],
            event["verb"],
            event["objectRef"]["resource"],
            event["objectRef"].get("subresource", ""),
            event["objectRef"].get("name", ""),
            event["responseStatus"]["code"],
        )
        for event in plane.audit_events()
        if event["verb"] in WRITES
        and event.get("objectRef", {}).get("namespace") == namespace
        and event["objectRef"]["resource"] != "events"
        and event["stage"] == "ResponseComplete"
        and datetime.datetime.fromisoformat(event["requestReceivedTimestamp"]) >= since
    )
    return {key: times for key, times in counted.items() if times > WRITES_OF_ONE_OBJECT}
