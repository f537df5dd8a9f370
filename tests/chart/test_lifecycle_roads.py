"""The roads by which people install the chart: each leaves the cluster guarded, all the time.

On each, the chart is installed, upgraded, applied again, rolled back and uninstalled. Until it is
uninstalled, bad pods are created all the time, and none is admitted. The kubelet shows running pods
no new content of their volumes meanwhile, as kubelets do for a minute or more. Where a tool itself
removes `caBundle`, some bad pods may be admitted, until the controller has written it again: there
the test demands only that the webhook is trusted again while the volumes are still held.

With GPUWARD_ROADS=FILE, a line for each step is added to that file: the road, the step, for how
many seconds a bad pod was admitted, how many were, and for how many seconds a webhook configuration
had no `caBundle` because a tool had replaced it. docs/resilience.md has them.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from certs.validity import utc_now
from tests.testkit.admission.bad_pods import BadPods
from tests.testkit.admission.enforcement import enforcement_in
from tests.testkit.chart import certificate_modes
from tests.testkit.chart.argo_cd import ArgoCD
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.flux import Flux
from tests.testkit.chart.installation import ADMISSION, CHART, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.chart.umbrella import umbrella
from tests.testkit.control_plane import objects as manifests
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually

pytest_plugins = [
    "tests.testkit.chart.fixtures",
    "tests.testkit.chart.argo_cd_fixtures",
    "tests.testkit.chart.cert_manager_fixtures",
]

VALUES = {"mode": "deny", "registration": {"timeoutSeconds": 30}, "drainSeconds": 5}
WAIT = ("--wait", TIMEOUT)
# An upgrade to these fails, while the replicas of before go on.
NEVER_READY = {"extraArgs": ["--no-such-option"]}
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
POLICIES = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


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
            began = utc_now()
            step()
            bad_pods.wait_for_pods(8)
            seconds, admitted = (
                bad_pods.unguarded_seconds - before[0],
                bad_pods.admitted - before[1],
            )
            if file := os.environ.get("GPUWARD_ROADS"):
                without = without_ca_bundle(installation.plane, began)
                with Path(file).open("a", encoding="utf-8") as stream:
                    stream.write(f"{road}\t{name}\t{seconds:.1f}\t{admitted}\t{without:.2f}\n")
            assert not (always and admitted), f"{name}: {admitted} in {seconds:.1f} seconds"

        yield perform


def without_ca_bundle(plane: ControlPlane, since: datetime.datetime) -> float:
    """For how many seconds at most, by the audit log, a replaced configuration had no `caBundle`.

    That is until the certificate controller or cert-manager's injector wrote it again.
    """
    longest, replaced_at = 0.0, dict[str, datetime.datetime]()
    for event in plane.audit_events():
        kind = event.get("objectRef", {}).get("resource")
        at = datetime.datetime.fromisoformat(event["stageTimestamp"])
        if at < since or kind not in CONFIGURATIONS or event["responseStatus"]["code"] != 200:
            continue
        if event["verb"] == "update":
            replaced_at[kind] = at
        elif event["verb"] == "patch" and kind in replaced_at:
            longest = max(longest, (at - replaced_at.pop(kind)).total_seconds())
    return longest


def wait_until_nothing_acts(installation: Installation) -> None:
    """Wait until API servers admit everything, because nothing of gpuward acts any more."""
    plane, namespace = installation.plane, installation.plane.namespace()
    options = ("--selector=app.kubernetes.io/part-of=gpuward", "--output=name")
    get = ("get", ",".join((*CONFIGURATIONS, *POLICIES)), *options)
    eventually(lambda: not plane.kubectl(*get).stdout, what="nothing is registered")
    eventually(lambda: enforcement_in(plane, namespace) == "silent", what="pods are admitted")


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

        def fail() -> None:
            values = merge_values(changed(3), NEVER_READY)
            options = (str(CHART), atomic, "--timeout=15s")
            done = installation.helm("upgrade", *options, values=values, check=False)
            assert "context deadline exceeded" in done.stderr, done
            assert json.loads(installation.helm("status", "--output=json").stdout)["version"] == 5

        installation.install(VALUES)
        with guarded(installation, kubelet, helm) as perform:
            perform("upgrade", upgrade(1))
            perform(atomic, upgrade(2, atomic))
            perform(f"{atomic}, a failed upgrade", fail)
            perform("--no-hooks", upgrade(4, "--no-hooks"))
            perform(force, upgrade(5, *replacing), always=False)
            perform("again", upgrade(5))
            perform("rollback", lambda: installation.rollback(2))
        installation.uninstall()
        wait_until_nothing_acts(installation)


@pytest.mark.parametrize("mode", ["certManager", "existingSecret"])
def test_helm_with_certificates_of_others(
    cert_manager: CertManager, chart_plane: ControlPlane, kubelet: Kubelet, mode: str
) -> None:
    """What replaces objects leaves no gap where Helm itself writes `caBundle`."""
    with Installation(chart_plane, kubelet, "helm3") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        bundle = b""
        if mode == "existingSecret":
            signer = certificate_modes.new_signer(installation)
            certificate_modes.fill_secret(installation, signer)
            bundle = signer.certificate_pem
        chosen = {"certificates": certificate_modes.values(mode, bundle)["certificates"]}

        def upgrade(number: int, *options: str) -> Callable[[], object]:
            given = (str(CHART), *WAIT, *options)
            values = merge_values(changed(number), chosen)
            return lambda: installation.helm("upgrade", *given, values=values)

        installation.install(merge_values(VALUES, chosen))
        if mode == "certManager":
            cert_manager.authority("gpuward", installation.namespace)
        with guarded(installation, kubelet, f"helm3, {mode}") as perform:
            perform("upgrade", upgrade(1))
            perform("--force", upgrade(2, "--force"), always=mode == "existingSecret")
            perform("again", upgrade(2))
            perform("rollback", lambda: installation.rollback(1))
        installation.uninstall()
        wait_until_nothing_acts(installation)


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
        wait_until_nothing_acts(installation)


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
            perform("rollback", apply(VALUES))
            assert chart_plane.request("GET", label_policy).status == 200
        delete = ("delete", "--filename=-")
        chart_plane.kubectl(*delete, input=rendered(installation, VALUES, "--no-hooks"))
        wait_until_nothing_acts(installation)


def test_kustomize(chart_plane: ControlPlane, kubelet: Kubelet, tmp_path: Path) -> None:
    """`helmCharts` renders all hooks, unless `skipHooks` is set."""
    with Installation(chart_plane, kubelet, "helm3") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        helm = f"--helm-command={chart_plane.programs['helm3']}"
        build = ("kustomize", "--enable-helm", helm, "--load-restrictor=LoadRestrictionsNone")

        def built(values: Any, *, skips_hooks: bool = True) -> str:
            chart = {
                "name": CHART.name,
                "releaseName": installation.release,
                "namespace": installation.namespace,
                "valuesInline": merge_values(installation.node_values, values),
                "skipHooks": skips_hooks,
            }
            kustomization = {"helmGlobals": {"chartHome": str(CHART.parent)}, "helmCharts": [chart]}
            (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
            return chart_plane.kubectl(*build, str(tmp_path)).stdout

        def apply(text: str) -> Callable[[], object]:
            options = ("--server-side", "--filename=-")
            return lambda: chart_plane.kubectl("apply", *options, input=text)

        everything = built(VALUES, skips_hooks=False)
        apply(everything)()
        with guarded(installation, kubelet, "kustomize") as perform:
            perform("again", apply(everything))
            perform("upgrade", apply(built(changed(1))))
            perform("rollback", apply(built(VALUES)))
        chart_plane.kubectl("delete", "--ignore-not-found", "--filename=-", input=everything)
        wait_until_nothing_acts(installation)


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
            perform("again", run("upgrade", 1))
            perform("rollback", lambda: installation.rollback(1))
        installation.uninstall()
        wait_until_nothing_acts(installation)


@pytest.mark.parametrize("is_forced", [False, True], ids=["default", "forced"])
def test_flux(chart_plane: ControlPlane, kubelet: Kubelet, *, is_forced: bool) -> None:
    """Flux replaces objects only if they were not made by server-side apply."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        flux = Flux(installation)
        flux.install(VALUES, client_side=is_forced)
        road = "Flux, upgrade.force" if is_forced else "Flux"
        with guarded(installation, kubelet, road) as perform:
            upgrade = partial(flux.upgrade, force=is_forced)
            perform("upgrade", partial(upgrade, changed(1)), always=not is_forced)
            perform("again", partial(upgrade, changed(1)), always=not is_forced)
            fails = partial(failing, partial(upgrade, merge_values(changed(2), NEVER_READY)))
            perform("failed upgrade", fails, always=not is_forced)
            perform("remediation", flux.rollback)
        flux.uninstall()
        wait_until_nothing_acts(installation)


def failing(upgrade: Callable[..., object]) -> None:
    """Perform an upgrade of Flux whose pods never become ready."""
    with pytest.raises(AssertionError, match=r"(?s)flux upgrade: .*context deadline exceeded"):
        upgrade(seconds=15)


@pytest.mark.parametrize("option", ["", "Replace=true"], ids=["default", "replacing"])
def test_argo_cd(argo_cd: ArgoCD, chart_plane: ControlPlane, kubelet: Kubelet, option: str) -> None:
    with Installation(chart_plane, kubelet, "helm4") as installation:
        chart_plane.create("/api/v1/namespaces", manifests.namespace(installation.namespace, {}))
        options = filter(None, [option])
        with argo_cd.application(installation, changed(0), *options) as application:
            synced_at = ""

            def wait_for_sync() -> bool:
                found = application.refresh()
                assert (found.sync, found.health, found.phase) == ("Synced", "Healthy", "Succeeded")
                assert found.synced_at != synced_at, "it is the synchronisation of before"
                return True

            def sync(begin: Callable[[], object]) -> Callable[[], None]:
                def perform() -> None:
                    nonlocal synced_at
                    synced_at = application.refresh().synced_at
                    begin()
                    eventually(wait_for_sync, what="Argo CD has applied the chart")

                return perform

            eventually(wait_for_sync, what="Argo CD has installed the chart")
            road = f"Argo CD, {option}" if option else "Argo CD"
            with guarded(installation, kubelet, road) as perform:
                upgrade = sync(lambda: application.upgrade(changed(1)))
                perform("upgrade", upgrade, always=not option)
                perform("again", sync(application.sync), always=not option)
                rollback = sync(lambda: application.upgrade(changed(0)))
                perform("rollback", rollback, always=not option)
        wait_until_nothing_acts(installation)
