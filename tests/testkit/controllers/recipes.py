"""How each controller of GPU workloads is installed and started for tests."""

from __future__ import annotations

from typing import Any

from tests.testkit.controllers.controller import HOST, Locations, Recipe


def _settings(at: Locations) -> dict[str, Any]:
    """The settings that Kueue, JobSet and LeaderWorkerSet have in common."""
    return {
        "health": {"healthProbeBindAddress": f"{HOST}:{at.health}"},
        "metrics": {"bindAddress": f"{HOST}:{at.metrics}"},
        "webhook": {"host": at.webhook_host, "port": at.webhook_port},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _settings_with_folder(at: Locations) -> dict[str, Any]:
    """The same for those whose default folder of certificates is fixed."""
    common = _settings(at)
    return {**common, "webhook": {**common["webhook"], "certDir": str(at.certificates)}}


KUEUE = Recipe(
    "kueue",
    ("default",),
    "kueue-system",
    # Its API for pending workloads needs a Service that reaches the program.
    arguments=lambda _: ["--feature-gates=VisibilityOnDemand=false", "--zap-log-level=2"],
    # Without its own certificate it would look for one in a folder of /etc.
    settings=lambda at: {**_settings_with_folder(at), "internalCertManagement": {"enable": True}},
    service="kueue-webhook-service",
    own_certificate="kueue-webhook-server-cert",
)
JOBSET = Recipe(
    "jobset",
    ("default",),
    "jobset-system",
    settings=_settings,
    service="jobset-webhook-service",
)
LWS = Recipe(
    "lws",
    ("default",),
    "lws-system",
    settings=_settings_with_folder,
    service="lws-webhook-service",
)
KUBERAY = Recipe(
    "kuberay",
    ("crd", "rbac", "manager"),
    "ray-system",
    arguments=lambda at: [
        "--enable-leader-election=false",
        f"--metrics-addr={HOST}:{at.metrics}",
        f"--health-probe-bind-address={HOST}:{at.health}",
    ],
)
TRAINER = Recipe(
    "trainer",
    ("base/crds", "base/rbac", "base/manager", "base/webhook"),
    "kubeflow-system",
    settings=lambda at: {
        "health": {"healthProbeBindAddress": f"{HOST}:{at.health}"},
        "metrics": {"bindAddress": f"{HOST}:{at.metrics}", "secureServing": False},
        "webhook": {"host": at.webhook_host, "port": at.webhook_port},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    },
    service="kubeflow-trainer-controller-manager",
)
_KYVERNO_NAMES = "kyverno-svc.kyverno.svc.kyverno-tls-{}"
KYVERNO = Recipe(
    "kyverno",
    ("install-latest-testing.yaml",),
    "kyverno",
    arguments=lambda at: [
        f"--kubeconfig={at.kubeconfig}",
        f"--caSecretName={_KYVERNO_NAMES.format('ca')}",
        f"--tlsSecretName={_KYVERNO_NAMES.format('pair')}",
        f"--webhookServerHost={at.webhook_host}",
        f"--webhookServerPort={at.webhook_port}",
        f"--servicePort={at.webhook_port}",
        "--disableMetrics=true",
        "--controllerRuntimeMetricsAddress=0",
        "--admissionReports=false",
        "--v=2",
    ],
    deployment="kyverno-admission-controller",
    reads_deployment=True,
    service="kyverno-svc",
    own_certificate=_KYVERNO_NAMES.format("pair"),
)
GATEKEEPER = Recipe(
    "gatekeeper",
    ("gatekeeper.yaml",),
    "gatekeeper-system",
    arguments=lambda at: [
        f"--host={at.webhook_host}",
        f"--port={at.webhook_port}",
        f"--cert-dir={at.certificates}",
        f"--health-addr={HOST}:{at.health}",
        f"--prometheus-port={at.metrics}",
        "--disable-cert-rotation",
        "--operation=generate",
        "--operation=webhook",
        "--operation=mutation-webhook",
        "--operation=mutation-controller",
        "--operation=status",
        "--operation=mutation-status",
    ],
    deployment="gatekeeper-controller-manager",
    service="gatekeeper-webhook-service",
)
KSERVE = Recipe(
    "kserve",
    ("kserve.yaml",),
    "kserve",
    arguments=lambda at: [
        "--leader-elect=false",
        f"--webhook-port={at.webhook_port}",
        f"--metrics-addr={HOST}:{at.metrics}",
        f"--health-probe-addr={HOST}:{at.health}",
    ],
    deployment="kserve-controller-manager",
    service="kserve-webhook-server-service",
)
