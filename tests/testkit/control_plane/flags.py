"""The command line of each program of the control plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testkit.control_plane.pki import KeyPairFiles

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    # Most requests only read, and no test asks who reads what.
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}

TYPE_CHECKER = "validatingadmissionpolicy-status-controller"
"""It checks the types of each policy once more, which takes as long as the API server needs."""


@dataclass(frozen=True)
class Settings:
    """The folder and the ports of a control plane."""

    folder: Path
    port: int
    etcd_port: int
    etcd_peer_port: int
    own_services: str = ""

    @property
    def services(self) -> str:
        """The first three numbers of the Services' addresses, by default of the loopback network.

        They are addresses of this machine: without kube-proxy, the API server calls a Service by
        connecting to the process that listens on its address. Loopback addresses contain the port,
        so two control planes never have the same.
        """
        return self.own_services or f"127.{self.port // 256}.{self.port % 256}"

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def audit_log(self) -> Path:
        """The audit log, one JSON object a line."""
        return self.folder / "audit.log"


def etcd(settings: Settings) -> list[str]:
    """The arguments of etcd: a single member that does not wait for the disk."""
    client = f"http://127.0.0.1:{settings.etcd_port}"
    peer = f"http://127.0.0.1:{settings.etcd_peer_port}"
    return [
        f"--data-dir={settings.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(
    settings: Settings, authority: Path, server: KeyPairFiles, tokens: KeyPairFiles
) -> list[str]:
    """The arguments of the API server: RBAC, TLS, audit log, Services on loopback addresses."""
    policy = settings.folder / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY), encoding="utf-8")
    return [
        f"--etcd-servers=http://127.0.0.1:{settings.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={settings.port}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--client-ca-file={authority}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={tokens.certificate}",
        f"--service-account-signing-key-file={tokens.key}",
        f"--service-cluster-ip-range={settings.services}.0/24",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={settings.audit_log}",
    ]


def controller_manager(
    kubeconfig: Path, authority: Path, tokens: KeyPairFiles, without: Sequence[str] = ()
) -> list[str]:
    """The arguments of the controller manager: every controller that needs no cloud or network.

    But for those in `without`.
    """
    excluded = "".join(f",-{name}" for name in ("node-ipam-controller", *without))
    return [
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={tokens.key}",
        "--use-service-account-credentials",
        f"--controllers=*{excluded}",
        "--leader-elect=false",
        "--secure-port=0",
        # On a busy machine the heartbeats of simulated nodes are late, and pods would be evicted.
        "--node-monitor-grace-period=1h",
        # The default rate limit makes the start five seconds slower.
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    """The arguments of the scheduler."""
    return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]


def feature_gates(names: Sequence[str]) -> list[str]:
    """The argument that switches these on."""
    return [f"--feature-gates={','.join(f'{name}=true' for name in names)}"] if names else []


def kwok(kubeconfig: Path, stages: Sequence[Path]) -> list[str]:
    """The arguments of kwok, which simulates the kubelets of the nodes with its annotation."""
    return [
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *(f"--config={stage}" for stage in stages),
    ]
