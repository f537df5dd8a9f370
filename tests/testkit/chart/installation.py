"""Install the chart on a real control plane with the real helm; its pods run as processes.

The fixtures are in `fixtures.py`, a pytest plugin. An example:

    def test_it_serves(installation: Installation) -> None:
        installation.install({"mode": "deny"})
        namespace = installation.plane.namespace()
        eventually(lambda: is_enforced(installation.plane, namespace), what="gpuward enforces")
        installation.upgrade({"mode": "warn"})

`install` and `upgrade` return when helm does: helm waits until the pods are ready.
These tests have a control plane of their own: a cluster can have the chart only once, and by
default gpuward evaluates every namespace.
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

from cluster.api.errors import ConfigurationKind
from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.pod_process import PodProcess
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.paths import ROOT

CHART = ROOT / "charts" / "gpuward"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
#: Values for a busy machine: a slow request does not time out, pods end without a drain, and helm
#: does not check the policy first
SLOW_MACHINE = {
    "registration": {"timeoutSeconds": 30},
    "drainSeconds": 0,
    "policyHook": {"enabled": False},
}
#: The same, with all components for whose kinds the API server of the tests has a definition
ALL_COMPONENTS = {
    **SLOW_MACHINE,
    "mode": "deny",
    "gpuExceptions": {"enabled": True},
    "clusterInventory": {"enabled": True},
    "audit": {"enabled": True},
    "nodeGuard": {"enabled": True},
}
_NUMBERS = itertools.count(1)
_PORT = 443


class Installation:
    """Release `release` of the chart in a namespace of its own, which the installation creates.

    `helm` is `helm3` or `helm4`. Values are given as a dict and apply until the next upgrade.
    `node_values` are always added: they schedule the pods on the test's kubelet and give the
    Service its address. Leaving the context removes everything from the cluster.
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
        self.node_values = {**kubelet.values, "service": {"clusterIP": self.address}}

    def helm(
        self, command: str, *arguments: str, values: Any = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """`helm COMMAND RELEASE ARGUMENTS…`; with `check`, a failure is an AssertionError."""
        given = [*command.split(), self.release, *arguments, "--namespace", self.namespace]
        if values is not None:
            given += ["--values", "-"]
        text = json.dumps(merge_values(self.node_values, values or {}))
        done = self.plane.run(self.program, *given, input=text)
        if check and done.returncode:
            raise AssertionError(f"{self.program} {' '.join(given)}: {done.stdout}{done.stderr}")
        self.kubelet.check()
        return done

    def install(self, values: Any, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`helm install --create-namespace --wait`."""
        waits = ("--create-namespace", "--wait", TIMEOUT)
        return self.helm("install", str(CHART), *waits, values=values, check=check)

    def upgrade(self, values: Any, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`helm upgrade --wait`, with these values and none of the earlier ones."""
        waits = ("--wait", TIMEOUT)
        return self.helm("upgrade", str(CHART), *waits, values=values, check=check)

    def rollback(self, revision: int) -> None:
        """`helm rollback --wait`."""
        self.helm("rollback", str(revision), "--wait", TIMEOUT)

    def uninstall(self) -> None:
        """`helm uninstall`, which waits only for the hook; the pods end a little later."""
        self.helm("uninstall", TIMEOUT)

    def restart(self) -> None:
        """Restart the webhook's pods, and wait until the new ones are ready."""
        target = ("deployment/gpuward", "-n", self.namespace)
        self.plane.kubectl("rollout", "restart", *target)
        self.plane.kubectl("rollout", "status", *target, TIMEOUT)

    def publish_ca_bundle(self) -> None:
        """Restart the certificate controller, so that it publishes the CA bundle at once.

        Returns when the bundle is published and the new pod is available.
        """
        # The controller reconciles when it starts, otherwise only at intervals.
        certs = ("-l", "app.kubernetes.io/component=certs", "-n", self.namespace)
        before = {pod.name for pod in self.pods("certs")}
        self.plane.kubectl("delete", "pod", *certs)
        eventually(lambda: b"" not in self.ca_bundles(), what="the CA bundle is published")

        def is_available() -> bool:
            (pod,) = self.pods("certs")
            status = self.get("deployment/gpuward-certs")["status"]
            return pod.ready and pod.name not in before and status["availableReplicas"] == 1

        eventually(is_available, what="the certificate controller is available")

    def webhooks(self) -> dict[str, Any]:
        """The webhooks of both configurations by their names."""
        found: dict[str, Any] = {}
        for kind in ConfigurationKind:
            body = self.plane.request("GET", f"{ADMISSION}/{kind.value}/gpuward").body
            found |= {entry["name"]: entry for entry in body.get("webhooks", [])}
        return found

    def ca_bundles(self) -> set[bytes]:
        """The caBundles of all webhooks, decoded; empty for a webhook without one."""
        bundles = {e["clientConfig"].get("caBundle", "") for e in self.webhooks().values()}
        return {base64.b64decode(bundle) for bundle in bundles}

    def get(self, path: str) -> Any:
        """An object of the release's namespace, by KIND/NAME as in kubectl."""
        done = self.plane.kubectl("get", path, "-n", self.namespace, "-o", "json")
        return json.loads(done.stdout)

    def pods(self, component: str = "webhook") -> list[PodProcess]:
        """The pods of a component (`webhook` or `certs`) whose processes run."""
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
        policies = ("validatingadmissionpolicy", "validatingadmissionpolicybinding")
        roles = ("clusterrole", "clusterrolebinding")
        others = ("flowschema", "customresourcedefinition")  # the latter Helm keeps
        label = "app.kubernetes.io/part-of=gpuward"
        every = ",".join((*kinds, *policies, *roles, *others))
        self.plane.kubectl("delete", every, "-l", label)
        # No need to wait until the namespace is gone: no other test uses its name.
        self.plane.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        del self.kubelet.proxies[self.namespace]
        self._stack.close()


def merge_values(base: Any, override: Any) -> Any:
    """The values of `base`, with those of `override` replacing them."""
    result = copy.deepcopy(base)
    for key, value in override.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge_values(result[key], value) if both else value
    return result


def _free_address(plane: ControlPlane) -> str:
    """A Service address that no Service uses."""
    taken = {
        service["spec"].get("clusterIP")
        for service in plane.request("GET", "/api/v1/services").body["items"]
    }
    while (address := plane.service_address(_PORT)) in taken:
        pass
    return address
