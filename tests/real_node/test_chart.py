"""The chart under the real kubelet, with gpuward's image as the Dockerfile lays it out."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.testkit.admission.enforcement import BYPASS_POD, enforcement_in
from tests.testkit.admission.pod_creator import PodCreator
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.chart.installation import CHART, merge_values
from tests.testkit.console.viewers import viewer_token
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.real_node.gpuward_image import NAME, ROOT_VARIABLE, gpuward_image
from tests.testkit.real_node.node import MERGE, RESOURCE, RealNode
from tests.testkit.real_node.pods import SECONDS, devices, waiting_pod
from tests.testkit.real_node.service_proxy import ServiceProxy
from tests.testkit.skipping import skip_missing

NAMESPACE = "gpuward-system"
REGISTRY, REPOSITORY, TAG = NAME.replace(":", "/").split("/")
VALUES: dict[str, Any] = {
    "mode": "deny",
    "image": {
        "registry": REGISTRY,
        "repository": REPOSITORY,
        "tag": TAG,
        "pullPolicy": "Never",
    },
    # A slow request does not time out on a busy machine.
    "registration": {"timeoutSeconds": 30},
}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WEBHOOK = "app.kubernetes.io/component=webhook"


class Chart:
    """The release `gpuward` on the node."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.plane: Cluster = node.plane

    def helm(self, *arguments: str, values: Any = None) -> None:
        """Run helm."""
        own = [*arguments, f"--namespace={NAMESPACE}"]
        if values is not None:
            own += ["--values=-"]
        done = self.plane.run("helm4", *own, input=json.dumps(merge_values(VALUES, values or {})))
        assert not done.returncode, done.stdout + done.stderr

    def upgrade(self, values: Any, *, wait: bool = True) -> None:
        """`helm upgrade` with these values."""
        waits = ("--wait", TIMEOUT) if wait else ()
        self.helm("upgrade", "gpuward", str(CHART), *waits, values=values)

    def pods(self, selector: str = WEBHOOK) -> list[Any]:
        """The pods of a component that are not being deleted."""
        query = selector.replace("=", "%3D").replace("/", "%2F")
        found = self.plane.request("GET", f"{PODS}?labelSelector={query}").body["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def restarts(self) -> list[int]:
        """Return how often the kubelet has restarted the container of each webhook pod."""
        return [status(pod)["restartCount"] for pod in self.pods()]

    def ready(self) -> list[Any]:
        """The webhook pods that are ready."""
        return [pod for pod in self.pods() if status(pod).get("ready")]

    def wait_until_ready(self) -> None:
        """Wait until both webhook pods are ready, and no other is left."""
        eventually(
            lambda: len(self.ready()) == len(self.pods()) == 2,
            seconds=SECONDS,
            what="both pods of the webhook are ready",
        )

    def process(self, pod: Any) -> int:
        """The process of a pod's container."""
        return self.node.process(status(pod))


def status(pod: Any) -> Any:
    """The status of a pod's only container; empty before it has one."""
    return next(iter(pod["status"].get("containerStatuses", ())), {})


@pytest.fixture(scope="module")
def chart(real_node: RealNode) -> Iterator[Chart]:
    """The installed chart, in mode `deny`."""
    root = os.environ.get(ROOT_VARIABLE)
    if root is None:
        skip_missing("gpuward's image is not built: use `make test-node`")
    real_node.import_images([gpuward_image(Path(root))])
    with ExitStack() as stack:
        stack.enter_context(ServiceProxy(real_node.plane))
        installed = Chart(real_node)
        waits = ("--create-namespace", "--wait", TIMEOUT)
        installed.helm("install", "gpuward", str(CHART), *waits, values={})
        stack.callback(real_node.remove_pods, NAMESPACE)
        stack.callback(installed.helm, "uninstall", "gpuward", TIMEOUT)
        namespace = installed.plane.namespace()
        eventually(
            lambda: enforcement_in(installed.plane, namespace) == "enforced",
            what="gpuward enforces",
        )
        yield installed


@contextmanager
def pods_created_meanwhile(chart: Chart) -> Iterator[PodCreator]:
    """Create pods all the while, one after the other, as long as the block lasts.

    None may be refused, and none may pass without evaluation.
    """
    with PodCreator(chart.plane, chart.plane.namespace()) as creator:
        creator.wait_for_pods()
        yield creator
        creator.wait_for_pods()
    assert creator.not_evaluated == 0


def test_the_kubelet_starts_it_restricted(chart: Chart) -> None:
    """Not as root, without capabilities, with seccomp, and with a read-only root folder."""
    chart.wait_until_ready()
    for each in chart.pods():
        assert_is_restricted(chart.process(each))


def assert_is_restricted(number: int) -> None:
    process = Path(f"/proc/{number}")
    lines = (process / "status").read_text().splitlines()
    said = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert said["Uid"].split() == ["65532"] * 4
    assert int(said["CapBnd"], 16) == int(said["CapEff"], 16) == 0
    assert said["NoNewPrivs"] == "1"
    assert said["Seccomp"] == "2"
    mounts = (process / "mountinfo").read_text().splitlines()
    (root,) = [line.split() for line in mounts if line.split()[4] == "/"]
    assert root[5].split(",")[0] == "ro"


def test_it_stays_within_its_memory(chart: Chart) -> None:
    """As the control group counts it; the limit of the chart is 2 GiB."""
    for each in chart.pods():
        limit, used = memory_files(chart.process(each))
        assert int(limit.read_text()) == 2 << 30
        assert int(used.read_text()) < 512 << 20


def memory_files(process: int) -> tuple[Path, Path]:
    """The files of the control group with the limit of memory of a process, and what it uses."""
    groups = {}
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups[controllers] = path.lstrip("/")
    root = Path("/sys/fs/cgroup")
    if "memory" not in groups:  # version 2
        return root / groups[""] / "memory.max", root / groups[""] / "memory.current"
    group = root / "memory" / groups["memory"]
    return group / "memory.limit_in_bytes", group / "memory.usage_in_bytes"


def test_the_kubelet_restarts_a_killed_process(chart: Chart) -> None:
    """Of one replica. What that process is asked meanwhile passes, under failurePolicy Ignore."""
    before = sum(chart.restarts())
    with PodCreator(chart.plane, chart.plane.namespace()) as creator:
        os.kill(chart.process(chart.pods()[0]), signal.SIGKILL)
        eventually(lambda: sum(chart.restarts()) == before + 1, seconds=SECONDS, what="a restart")
        chart.wait_until_ready()
        evaluated = creator.fixed
        eventually(lambda: creator.fixed > evaluated, what="pods are evaluated")


def test_pods_that_need_too_much_memory_replace_none_that_serve(chart: Chart) -> None:
    """The kernel kills the new ones, the kubelet says so, and a rollback removes them."""
    with pods_created_meanwhile(chart):
        serving = names(chart.ready())
        change = {"resources": {"limits": {"memory": "24Mi"}, "requests": {"memory": "24Mi"}}}
        chart.upgrade(change, wait=False)
        eventually(lambda: "OOMKilled" in ends(chart), seconds=SECONDS, what="the kernel kills")
        assert names(chart.ready()) == serving
        chart.helm("rollback", "gpuward", "--wait", TIMEOUT)
        chart.wait_until_ready()
        assert names(chart.ready()) == serving


def names(pods: list[Any]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def ends(chart: Chart) -> set[str]:
    """Return why containers of the webhook have ended."""
    statuses = [status(each) for each in chart.pods()]
    states = [one.get(key, {}) for one in statuses for key in ("state", "lastState")]
    return {state["terminated"]["reason"] for state in states if "terminated" in state}


def test_an_upgrade_and_a_rollback_let_no_pod_pass(chart: Chart) -> None:
    """New pods are ready before old ones end, and these answer as long as they are asked."""
    before = names(chart.pods())
    with pods_created_meanwhile(chart):
        chart.upgrade({"logLevel": "debug"})
        chart.wait_until_ready()
        during = names(chart.pods())
        chart.helm("rollback", "gpuward", "--wait", TIMEOUT)
        chart.wait_until_ready()
    assert not before & during
    assert not during & names(chart.pods())


def test_a_new_certificate_reaches_running_pods_by_their_volume(chart: Chart) -> None:
    """The kubelet writes it; no process restarts, and no pod passes."""
    before, restarts = names(chart.pods()), chart.restarts()
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpuward-tls"
    first = chart.plane.request("GET", secret).body["data"]["tls.crt"]
    with pods_created_meanwhile(chart):
        body = {"data": {"tls.crt": None, "tls.key": None}}
        emptied = chart.plane.request("PATCH", secret, body, content_type=MERGE)
        assert emptied.status == 200
        # The controller looks when it starts, and then at intervals.
        for each in chart.pods("app.kubernetes.io/component=certs"):
            chart.plane.request("DELETE", f"{PODS}/{each['metadata']['name']}")
        eventually(
            lambda: all(served(each) not in {"", first} for each in chart.ready()),
            seconds=SECONDS,
            what="the pods serve another certificate",
        )
    assert (names(chart.pods()), chart.restarts()) == (before, restarts)


def served(pod: Any) -> str:
    """The certificate that a pod serves, as in a Secret; empty if it does not answer."""
    try:
        pem = ssl.get_server_certificate((pod["status"]["podIP"], 10250))
    except OSError:
        return ""
    return base64.b64encode(pem.encode()).decode()


def test_eviction_leaves_a_pod_that_serves(chart: Chart) -> None:
    """The chart's PodDisruptionBudget: of two evictions at once, the second has to wait."""
    chart.wait_until_ready()
    # The API server goes by what a controller has counted.
    budgets = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    eventually(
        lambda: (
            [
                each["status"]["disruptionsAllowed"]
                for each in chart.plane.request("GET", budgets).body["items"]
            ]
            == [1]
        ),
        what="one pod may be evicted",
    )
    with pods_created_meanwhile(chart):
        answers = [evict(chart, name) for name in sorted(names(chart.pods()))]
        assert answers == [201, 429]
        chart.wait_until_ready()


def evict(chart: Chart, name: str) -> int:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    return chart.plane.request("POST", f"{PODS}/{name}/eviction", body).status


def test_pods_serve_while_kubelet_and_containerd_are_down(chart: Chart) -> None:
    """Containers outlive both. Afterwards the kubelet finds them as they were."""
    before, restarts = names(chart.pods()), chart.restarts()
    with pods_created_meanwhile(chart) as creator:
        for program in ("kubelet", "containerd"):
            chart.node.end(program)
        creator.wait_for_pods()
        chart.node.start_containerd()
        chart.node.start_kubelet()
        chart.node.wait_for_resource(RESOURCE, "3")
        chart.wait_until_ready()
    assert (names(chart.pods()), chart.restarts()) == (before, restarts)


def test_after_a_restart_of_the_node_all_containers_start_again(chart: Chart) -> None:
    """Until they do, pods are created without evaluation, under failurePolicy Ignore."""
    before, restarts = names(chart.pods()), sum(chart.restarts())
    processes = [chart.process(pod) for pod in chart.pods()]
    chart.node.end("kubelet")
    for process in processes:
        os.kill(process, signal.SIGKILL)
    chart.node.end("containerd")
    namespace = chart.plane.namespace()
    eventually(lambda: enforcement_in(chart.plane, namespace) == "silent", what="nobody answers")
    chart.node.start_containerd()
    chart.node.start_kubelet()
    chart.node.wait_for_resource(RESOURCE, "3")
    eventually(
        lambda: sum(chart.restarts()) >= restarts + 2, seconds=SECONDS, what="both start again"
    )
    chart.wait_until_ready()
    eventually(lambda: enforcement_in(chart.plane, namespace) == "enforced", what="enforcement")
    assert names(chart.pods()) == before


def test_a_bypass_gets_nothing_and_its_fix_its_own_card(chart: Chart) -> None:
    """Through the chart, from the manifest to the devices."""
    namespace = chart.plane.namespace()
    refused = create(chart.plane, namespace, BYPASS_POD)
    assert refused.status == 403
    fixed = pod(container(**variable("all"), **gpus(limits=1)))
    try:
        waiting_pod(chart.node, namespace, "fixed", fixed)
        assert len(devices(chart.node, namespace, "fixed").gpus) == 1
    finally:  # a card that it kept would be missing in the tests that follow
        chart.node.remove_pods(namespace)


def test_the_console_shows_the_cards_of_the_node(chart: Chart) -> None:
    """To users who may list pods, and to no others."""
    chart.upgrade({"console": {"enabled": True}})
    bearer = viewer_token(chart.plane, chart.plane.namespace(), sees_all=True)
    (console,) = chart.pods("app.kubernetes.io/component=console")
    eventually(
        lambda: chart.node.name in cards_by_node(console, bearer),
        seconds=SECONDS,
        what="the console has listed the nodes",
    )
    assert cards_by_node(console, bearer) == {chart.node.name: 3}
    assert cards_by_node(console, "no token") == {}
    assert_is_restricted(chart.process(console))
    chart.upgrade({})
    eventually(lambda: not chart.pods("app.kubernetes.io/component=console"), what="it is gone")


def cards_by_node(console: Any, bearer: str) -> dict[str, int]:
    """Return the cards of each node, as the console counts them for a token; empty without one."""
    headers = {"Accept": "application/json", "Authorization": f"Bearer {bearer}"}
    request = Request(f"http://{console['status']['podIP']}:8088/", headers=headers)
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310  # the same
            document = json.load(answer)
    except (HTTPError, URLError, ConnectionError):
        return {}
    return {
        node["name"]: resource["total"]
        for node in document["nodes"]
        for resource in node["resources"]
        if resource["resource"] == RESOURCE
    }
