"""Run the real Argo CD with a control plane, and install the chart by it.

Its application controller and its repository server run as they are released, with their own
settings (`argocd-cm`), a Redis in memory, and Helm 4, which Argo CD contains. They are built once,
like the control plane, from the Go module in `control_plane/argo-cd`. An example:

    def test_it_is_in_sync(argo_cd: ArgoCD, installation: Installation) -> None:
        with argo_cd.application(installation, {"mode": "deny"}) as application:
            eventually(lambda: application.refresh().sync == "Synced", what="it is in sync")

The application is synchronised automatically, with `prune` and `selfHeal`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testkit.chart.installation import CHART, Installation, merge_values
from tests.testkit.control_plane.build import Programs, argo_cd
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually, free_port, is_free
from tests.testkit.control_plane.servers import FEWER_COLLECTIONS
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.git_repository import GitRepository
from tests.testkit.skipping import skip_missing

NAMESPACE = "argocd"
_APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
_REFRESH = "argocd.argoproj.io/refresh"
_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
# The project that Argo CD's API server, which does not run here, creates: everything is allowed.
_PROJECT = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AppProject",
    "metadata": {"name": "default", "namespace": NAMESPACE},
    "spec": {
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    },
}
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Comparison:
    """The comparison of an application with the cluster, as Argo CD reports it."""

    sync: str
    """`Synced`, `OutOfSync` or `Unknown`."""
    health: str
    """`Healthy`, `Progressing`, `Degraded` or `Missing`."""
    out_of_sync: frozenset[str]
    """The objects that differ from what is rendered, as KIND/NAME."""
    managed: frozenset[str]
    """All objects of the application, as KIND/NAME."""
    conditions: dict[str, list[str]]
    """The messages of its conditions by type, such as `ExcludedResourceWarning`."""
    phase: str
    """The phase of the newest synchronisation, such as `Succeeded`; empty before the first."""
    synced_at: str
    """When the newest synchronisation ended; empty while it runs, and before the first."""


class Application:
    """The chart as an Application of Argo CD; leaving the context deletes it with its objects.

    `options` are its `syncOptions`, such as `Replace=true`.
    """

    def __init__(
        self,
        installation: Installation,
        repository: Path,
        values: Any,
        options: tuple[str, ...],
        argo_cd: Processes,
    ) -> None:
        self._installation = installation
        self._argo_cd = argo_cd
        self._plane = installation.plane
        self._options = ["CreateNamespace=true", *options]
        self._path = f"{_APPLICATIONS}/{installation.release}"
        self._manifest = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": installation.release,
                # Deletes the objects with the Application.
                "finalizers": ["resources-finalizer.argocd.argoproj.io"],
            },
            "spec": {
                "project": "default",
                "source": {
                    "repoURL": f"file://{repository}",
                    "targetRevision": "main",
                    "path": CHART.name,
                    "helm": {"valuesObject": merge_values(installation.node_values, values)},
                },
                "destination": {
                    "server": "https://kubernetes.default.svc",
                    "namespace": installation.namespace,
                },
                "syncPolicy": {
                    "automated": {"prune": True, "selfHeal": True},
                    "syncOptions": self._options,
                },
            },
        }

    def upgrade(self, values: Any) -> None:
        """Give the chart other values, with none of the earlier ones."""
        merged = merge_values(self._installation.node_values, values)
        helm = [{"op": "replace", "path": "/spec/source/helm/valuesObject", "value": merged}]
        self._patch(helm, "application/json-patch+json")

    def sync(self) -> None:
        """Apply the chart once more, although nothing differs: what `argocd app sync` asks for."""
        self._patch({"operation": {"sync": {"prune": True, "syncOptions": self._options}}})

    def refresh(self) -> Comparison:
        """Let Argo CD compare the application with the cluster now; returns what it says then."""
        self._patch({"metadata": {"annotations": {_REFRESH: "normal"}}})
        found = eventually(self._refreshed, what="Argo CD has compared the application")
        status = found["status"]
        operation = status.get("operationState", {})
        resources = status.get("resources", [])
        conditions: dict[str, list[str]] = {}
        for each in status.get("conditions", []):
            conditions.setdefault(each["type"], []).append(each["message"])
        return Comparison(
            sync=status["sync"]["status"],
            health=status.get("health", {}).get("status", ""),
            out_of_sync=_names(each for each in resources if each.get("status") == "OutOfSync"),
            managed=_names(resources),
            conditions=conditions,
            phase=operation.get("phase", ""),
            synced_at=operation.get("finishedAt", ""),
        )

    def _refreshed(self) -> Any:
        """The Application, if no comparison is still asked for."""
        self._argo_cd.check()
        found = self._plane.request("GET", self._path).body
        return None if _REFRESH in found["metadata"].get("annotations", {}) else found

    def _patch(self, patch: Any, content_type: str = "application/merge-patch+json") -> None:
        answer = self._plane.request("PATCH", self._path, patch, content_type=content_type)
        assert answer.status == 200, answer

    def __enter__(self) -> Self:
        self._plane.create(_APPLICATIONS, self._manifest)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stop_synchronising()
        finally:
            self._plane.request("DELETE", self._path)
        eventually(self._is_deleted, what="Argo CD has deleted the application's objects")

    def _stop_synchronising(self) -> None:
        """Let no synchronisation run or begin.

        Argo CD compares all the time. A comparison that began before the deletion may still start
        a synchronisation after it, which creates the objects again and delays the deletion by its
        retries.
        """
        self._patch({"spec": {"syncPolicy": {"automated": None}}})
        self.refresh()

        def is_idle() -> bool:
            found = self._plane.request("GET", self._path).body
            assert "operation" not in found, found["status"].get("operationState")
            return True

        eventually(is_idle, what="no synchronisation runs")

    def _is_deleted(self) -> bool:
        found = self._plane.request("GET", self._path)
        assert found.status == 404, found.body.get("status")
        return True


class ArgoCD:
    """Runs Argo CD while its context is open; its CRDs and its namespace stay."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._programs = _built()
        self._processes = Processes(folder)
        # The programs that the repository server runs, beside git.
        self._bin = folder / "bin"

    def application(self, installation: Installation, values: Any, *options: str) -> Application:
        """The chart as it is now, with these values and `syncOptions`, to be entered."""
        repository = GitRepository(self._folder / f"charts-{next(_NUMBERS)}")
        shutil.copytree(CHART, repository.folder / CHART.name)
        repository.git("add", "--all")
        repository.git("commit", "-q", "-m", "The chart")
        return Application(installation, repository.folder, values, options, self._processes)

    def __enter__(self) -> Self:
        crds = [f"--filename={file}" for file in self._programs.crds]
        self._plane.kubectl("apply", "--server-side", *crds)
        # kubectl refuses to wait for an object that has no conditions yet.
        established = ("wait", "--for=condition=Established", *crds)
        eventually(lambda: self._plane.kubectl(*established), what="Argo CD's kinds are served")
        items = {"kind": "List", "apiVersion": "v1", "items": [_NAMESPACE, _PROJECT]}
        apply = ("apply", "--server-side", f"--namespace={NAMESPACE}")
        self._plane.kubectl(*apply, "--filename=-", input=json.dumps(items))
        self._plane.kubectl(*apply, *(f"--filename={file}" for file in self._programs.settings))
        self._start()
        return self

    def _start(self) -> None:
        self._bin.mkdir()
        (self._bin / "helm").symlink_to(self._plane.programs["helm4"])
        # Prints nothing of a commit without a signature.
        (self._bin / "git-verify-wrapper.sh").symlink_to("/bin/true")
        redis, repositories = free_port(), free_port()
        self._serve("redis", redis, "redis", f"127.0.0.1:{redis}")
        self._serve(
            "repo-server",
            repositories,
            "argocd-repo-server",
            f"--redis=127.0.0.1:{redis}",
            "--address=127.0.0.1",
            f"--port={repositories}",
            "--metrics-address=127.0.0.1",
            f"--metrics-port={free_port()}",
        )
        self._run(
            "application-controller",
            "argocd-application-controller",
            f"--namespace={NAMESPACE}",
            f"--redis=127.0.0.1:{redis}",
            f"--repo-server=127.0.0.1:{repositories}",
            f"--metrics-port={free_port()}",
        )

    def _serve(self, name: str, port: int, *arguments: str) -> None:
        """Run a server, and wait until it listens."""
        self._run(name, *arguments)

        def listens() -> bool:
            self._processes.check()
            return not is_free("127.0.0.1", port)

        eventually(listens, what=f"{name} listens")

    def _run(self, name: str, *arguments: str) -> None:
        environment = {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "KUBECONFIG": str(self._plane.kubeconfig),
            # The cluster https://kubernetes.default.svc is that of the kubeconfig.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(self._folder),
            "ARGOCD_SSH_DATA_PATH": str(self._folder),
            "ARGOCD_ASK_PASS_SOCK": str(self._folder / "ask"),
            **FEWER_COLLECTIONS,
        }
        command = [str(self._programs["argo-cd"]), *arguments]
        self._processes.start(name, command, environment)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.stop()


def _names(resources: Any) -> frozenset[str]:
    return frozenset(f"{each['kind']}/{each['name']}" for each in resources)


def _built() -> Programs:
    """The program, its CRDs and settings; skips the test if they cannot be built."""
    try:
        found = argo_cd()
        _ = found["argo-cd"]
    except BuildError as error:
        skip_missing(str(error))
    return found
