"""The roads by which people install the chart: each leaves the cluster guarded, all the time.

The kubelet shows running pods no new content of their volumes meanwhile, as kubelets do for a
minute or more. Bad pods are created all the time, and none is admitted. Where a tool itself removes
`caBundle`, some may be, until the controller has written it again: there the test demands only that
the webhook is trusted again while the volumes are still held.

With GPUWARD_ROADS=FILE, a line for each step is added to that file: the road, the step, for how
many seconds a bad pod was admitted, and how many were. docs/resilience.md has them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.bad_pods import BadPods
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart.argo_cd import ArgoCD
from tests.testkit.chart.flux import Flux
from tests.testkit.chart.installation import ADMISSION, CHART, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.umbrella import umbrella
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures", "tests.testkit.chart.argo_cd_fixtures"]

VALUES = {"mode": "deny", "registration": {"timeoutSeconds": 30}, "drainSeconds": 5}
WAIT = ("--wait", "--timeout=100s")


def changed(number: int) -> dict[str, Any]:
    """Values that replace all pods."""
    values: dict[str, Any] = merge_values(
        VALUES, {"podAnnotations": {"example.com/round": str(number)}}
    )
    return values


@contextmanager
def guarded(
    installation: Installation, kubelet: Kubelet, road: str
) -> Generator[Callable[..., None]]:
    """Create bad pods while the volumes of running pods are held.

    Yields a function that performs a step. The cluster must be guarded afterwards, and with
    `always` also meanwhile.
    """
    namespace = installation.plane.namespace()
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )
    with kubelet.holding_volumes(), BadPods(installation.plane, namespace) as bad_pods:
        bad_pods.wait_for_pods()

        def perform(name: str, step: Callable[[], object], *, always: bool = True) -> None:
            before = bad_pods.unguarded_seconds, bad_pods.admitted
            step()
            bad_pods.wait_for_pods(8)
            seconds, admitted = (
                bad_pods.unguarded_seconds - before[0],
                bad_pods.admitted - before[1],
            )
            if file := os.environ.get("GPUWARD_ROADS"):
                with Path(file).open("a", encoding="utf-8") as stream:
                    stream.write(f"{road}\t{name}\t{seconds:.1f}\t{admitted}\n")
            assert not (always and admitted), f"{name}: {admitted} in {seconds:.1f} seconds"

        yield perform


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_helm(chart_plane: ControlPlane, kubelet: Kubelet, helm: str) -> None:
    atomic = "--atomic" if helm == "helm3" else "--rollback-on-failure"
    force = "--force" if helm == "helm3" else "--force-replace"
    # Helm 4 replaces objects only without server-side apply.
    replacing = (force,) if helm == "helm3" else (force, "--server-side=false")
    with Installation(chart_plane, kubelet, helm) as installation:

        def upgrade(number: int, *options: str) -> Callable[[], object]:
            given = (str(CHART), *WAIT, *options)
            return lambda: installation.helm("upgrade", *given, values=changed(number))

        installation.install(VALUES)
        with guarded(installation, kubelet, helm) as perform:
            perform("upgrade", upgrade(1))
            perform(atomic, upgrade(2, atomic))
            perform("--no-hooks", upgrade(3, "--no-hooks"))
            perform(force, upgrade(4, *replacing), always=False)
            perform("again", upgrade(4))
            perform("rollback", lambda: installation.rollback(2))
        installation.uninstall()
        eventually(lambda: installation.webhooks() == {}, what="no webhook is registered")


def rendered(installation: Installation, values: Any, *options: str) -> str:
    """Return what `helm template` prints: with all hooks, unless an option leaves them out."""
    return installation.helm("template", str(CHART), *options, values=values).stdout


@pytest.mark.parametrize("side", ["client", "server"])
def test_kubectl_apply(chart_plane: ControlPlane, kubelet: Kubelet, side: str) -> None:
    given = ("--server-side",) if side == "server" else ()
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))

        def apply(text: str, *options: str) -> Callable[[], object]:
            return lambda: chart_plane.kubectl("apply", *given, *options, "-f", "-", input=text)

        everything = rendered(installation, VALUES)
        apply(everything)()
        with guarded(installation, kubelet, f"kubectl apply, {side} side") as perform:
            perform("again", apply(everything))
            documented = rendered(installation, changed(1), "--no-hooks")
            perform("upgrade", apply(documented))
            if side == "client":
                selected = ("--prune", "--selector=app.kubernetes.io/instance=gpuward")
                perform("--prune", apply(documented, *selected))
                replace = ("replace", "--filename=-")
                perform(
                    "kubectl replace",
                    lambda: chart_plane.kubectl(*replace, input=documented),
                    always=False,
                )
            perform("rollback", apply(rendered(installation, VALUES, "--no-hooks")))
        delete = ("delete", "--ignore-not-found", "--filename=-")
        chart_plane.kubectl(*delete, input=everything)
        assert installation.webhooks() == {}


def test_an_apply_set(chart_plane: ControlPlane, kubelet: Kubelet) -> None:
    """With `--prune --applyset`, kubectl deletes what is no longer rendered, of any kind."""
    alpha = {"KUBECTL_APPLYSET": "true"}
    label_policy = f"{ADMISSION}/validatingadmissionpolicies/gpuward-mode-label"
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))

        def apply(values: Any) -> Callable[[], object]:
            namespace = f"--namespace={installation.namespace}"
            options = (namespace, "--prune", "--applyset=gpuward", "--filename=-")
            text = rendered(installation, values, "--no-hooks")

            def run() -> None:
                done = chart_plane.run("kubectl", "apply", *options, input=text, variables=alpha)
                assert done.returncode == 0, done.stderr

            return run

        apply(VALUES)()
        assert chart_plane.request("GET", label_policy).status == 200
        with guarded(installation, kubelet, "kubectl apply --applyset") as perform:
            perform("again", apply(VALUES))
            fewer = {"modeLabelPolicy": {"enabled": False}, "minimumMode": "deny"}
            perform("upgrade, pruning", apply(merge_values(changed(1), fewer)))
            assert chart_plane.request("GET", label_policy).status == 404


def test_kustomize(chart_plane: ControlPlane, kubelet: Kubelet, tmp_path: Path) -> None:
    """`helmCharts` renders all hooks, unless `skipHooks` is set."""
    with Installation(chart_plane, kubelet, "helm3") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        chart = {
            "name": CHART.name,
            "releaseName": installation.release,
            "namespace": installation.namespace,
            "valuesInline": merge_values(installation.node_values, VALUES),
        }
        kustomization = {"helmGlobals": {"chartHome": str(CHART.parent)}, "helmCharts": [chart]}
        (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
        helm = f"--helm-command={chart_plane.programs['helm3']}"
        build = ("kustomize", "--enable-helm", helm, "--load-restrictor=LoadRestrictionsNone")
        text = chart_plane.kubectl(*build, str(tmp_path)).stdout

        def apply() -> object:
            return chart_plane.kubectl("apply", "--server-side", "--filename=-", input=text)

        apply()
        with guarded(installation, kubelet, "kustomize") as perform:
            perform("again", apply)


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_an_umbrella_chart(
    chart_plane: ControlPlane, kubelet: Kubelet, tmp_path: Path, helm: str
) -> None:
    """With values in the parent chart and on the command line."""
    with Installation(chart_plane, kubelet, helm) as installation:
        chart = umbrella(tmp_path, json.dumps({"gpuward": VALUES}), helm)

        def run(command: str, number: int) -> Callable[[], object]:
            own = merge_values(installation.node_values, {"podAnnotations": {"n": str(number)}})
            return lambda: installation.helm(command, str(chart), *WAIT, values={"gpuward": own})

        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        run("install", 0)()
        with guarded(installation, kubelet, f"umbrella chart, {helm}") as perform:
            perform("upgrade", run("upgrade", 1))
        installation.uninstall()
        eventually(lambda: installation.webhooks() == {}, what="no webhook is registered")


@pytest.mark.parametrize("is_forced", [False, True], ids=["default", "forced"])
def test_flux(chart_plane: ControlPlane, kubelet: Kubelet, *, is_forced: bool) -> None:
    """Flux replaces objects only if they were not made by server-side apply."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        flux = Flux(installation)
        flux.install(VALUES, client_side=is_forced)
        road = "Flux, upgrade.force" if is_forced else "Flux"
        with guarded(installation, kubelet, road) as perform:
            upgrade = partial(flux.upgrade, changed(1), force=is_forced)
            perform("upgrade", upgrade, always=not is_forced)
            perform("rollback", flux.rollback)
        flux.uninstall()
        assert installation.webhooks() == {}


@pytest.mark.parametrize("option", ["", "Replace=true"], ids=["default", "replacing"])
def test_argo_cd(argo_cd: ArgoCD, chart_plane: ControlPlane, kubelet: Kubelet, option: str) -> None:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        with argo_cd.application(installation, VALUES, *filter(None, [option])) as application:
            synced_at = ""

            def wait_for_sync() -> bool:
                found = application.refresh()
                assert (found.sync, found.health, found.phase) == ("Synced", "Healthy", "Succeeded")
                assert found.synced_at != synced_at, "it is the synchronisation of before"
                return True

            def upgrade() -> None:
                nonlocal synced_at
                synced_at = application.refresh().synced_at
                application.upgrade(changed(1))
                eventually(wait_for_sync, what="Argo CD has applied the new values")

            eventually(wait_for_sync, what="Argo CD has installed the chart")
            road = f"Argo CD, {option}" if option else "Argo CD"
            with guarded(installation, kubelet, road) as perform:
                perform("upgrade", upgrade, always=not option)
