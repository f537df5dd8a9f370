"""The chart on a real control plane, installed by the real helm, its pods played by processes.

The fixtures are in `installed_fixtures.py`, a pytest plugin. A story:

    def test_it_serves(installed: Installed) -> None:
        installed.install({"mode": "deny"})
        namespace = installed.plane.namespace()
        eventually(lambda: is_enforced(installed.plane, namespace), what="it is in force")
        installed.upgrade({"mode": "warn"})

`install` and `upgrade` return when helm does, which waits until the pods are ready.
The control plane is not that of the other tests: a cluster has the chart once, and in its default
mode it judges every namespace.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from cluster.api import ConfigurationKind
from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.pod_process import PodProcess
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT

CHART = ROOT / "charts" / "gpuward"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
#: For a busy machine: no call is given up that is only slow, and nobody waits for others to leave
PATIENT = {"registration": {"timeoutSeconds": 30}, "drainSeconds": 0}
_NUMBERS = itertools.count(1)
_PORT = 443


class Installed:
    """Release `release` of the chart in a namespace of its own, which is made by installing it.

    `helm` is `helm3` or `helm4`. Values are given as a dict and hold until the next upgrade;
    `node` besides, by which the pods come to the kubelet and the Service to its address.
    When the block is left, nothing of it is in the cluster any more.
    """

    def __init__(
        self,
        plane: ControlPlane,
        kubelet: Kubelet,
        helm: str,
        *,
        release: str = "gpuward",
        namespace: str = "",
    ) -> None:
        self.plane = plane
        self.kubelet = kubelet
        self.release = release
        self.namespace = namespace or f"gpuward-system-{next(_NUMBERS)}"
        self.program = helm
        self._stack = ExitStack()
        self.address = _free_address(plane)
        self.node = {**kubelet.values, "service": {"clusterIP": self.address}}

    def helm(
        self, command: str, *arguments: str, values: Any = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """`helm COMMAND RELEASE ARGUMENTS…`; with `check`, a failure is an AssertionError."""
        given = [*command.split(), self.release, *arguments, "--namespace", self.namespace]
        if values is not None:
            given += ["--values", "-"]
        told = json.dumps(merged(self.node, values or {}))
        done = self.plane.run(self.program, *given, input=told)
        if check and done.returncode:
            raise AssertionError(f"{self.program} {' '.join(given)}: {done.stdout}{done.stderr}")
        self.kubelet.check()
        return done

    def install(self, values: Any, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`helm install --create-namespace --wait`."""
        waits = ("--create-namespace", "--wait", "--timeout=100s")
        return self.helm("install", str(CHART), *waits, values=values, check=check)

    def upgrade(self, values: Any, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`helm upgrade --wait`, with these values and none of before."""
        waits = ("--wait", "--timeout=100s")
        return self.helm("upgrade", str(CHART), *waits, values=values, check=check)

    def rollback(self, revision: int) -> None:
        """`helm rollback --wait`."""
        self.helm("rollback", str(revision), "--wait", "--timeout=100s")

    def uninstall(self) -> None:
        """`helm uninstall`, which waits for the hook alone; pods go a little later."""
        self.helm("uninstall", "--timeout=100s")

    def restart(self) -> None:
        """Have the servers' pods made anew, and wait until they are ready."""
        which = ("deployment/gpuward", "-n", self.namespace)
        self.plane.kubectl("rollout", "restart", *which)
        self.plane.kubectl("rollout", "status", *which, "--timeout=100s")

    def publish(self) -> None:
        """Have the bundle published at once, and not seconds later."""
        # A controller looks around when it is started.
        certs = ("-l", "app.kubernetes.io/component=certs", "-n", self.namespace)
        self.plane.kubectl("delete", "pod", *certs)
        eventually(lambda: b"" not in self.bundles(), what="the bundle is published")

    def webhooks(self) -> dict[str, Any]:
        """The entries of both configurations by their names."""
        found: dict[str, Any] = {}
        for kind in ConfigurationKind:
            body = self.plane.request("GET", f"{ADMISSION}/{kind.value}/gpuward").body
            found |= {entry["name"]: entry for entry in body.get("webhooks", [])}
        return found

    def bundles(self) -> set[bytes]:
        """What API servers trust the entries by, decoded; empty for an entry without any."""
        bundles = {e["clientConfig"].get("caBundle", "") for e in self.webhooks().values()}
        return {base64.b64decode(bundle) for bundle in bundles}

    def get(self, path: str) -> Any:
        """An object of the release's namespace, by KIND/NAME as kubectl takes it."""
        done = self.plane.kubectl("get", path, "-n", self.namespace, "-o", "json")
        return json.loads(done.stdout)

    def pods(self, component: str = "webhook") -> list[PodProcess]:
        """The pods of a component whose processes run: `webhook` or `certs`."""
        return self.kubelet.pods(self.namespace, component)

    def __enter__(self) -> Self:
        proxy = self._stack.enter_context(Forwarder(self.address, _PORT))
        self.kubelet.proxies[self.namespace] = proxy
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kinds = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
        roles = ("clusterrole", "clusterrolebinding")
        ours = "app.kubernetes.io/part-of=gpuward"
        for what in (*kinds, *roles):
            self.plane.kubectl("delete", what, "-l", ours)
        # Nobody waits for the namespace, for there is no other of its name.
        self.plane.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        del self.kubelet.proxies[self.namespace]
        self._stack.close()


def merged(one: Any, other: Any) -> Any:
    """Values, with those of `other` laid over them."""
    result = copy.deepcopy(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _free_address(plane: ControlPlane) -> str:
    """An address that no Service has."""
    taken = {
        service["spec"].get("clusterIP")
        for service in plane.request("GET", "/api/v1/services").body["items"]
    }
    while (address := plane.service_address(_PORT)) in taken:
        pass
    return address
