"""The command line of each program of the control plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testkit.control_plane.pki import Pair

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Settings:
    """Where a control plane keeps its files and which ports it has."""

    folder: Path
    port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def services(self) -> str:
        """The first three numbers of the Services' addresses.

        They are loopback addresses, so whoever listens on one is what the API server reaches
        when it calls a Service, without kube-proxy. The port, which two control planes never
        share, makes them different from those of every other one.
        """
        return f"127.{self.port // 256}.{self.port % 256}"

    @property
    def url(self) -> str:
        """Where the API server is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def audit_log(self) -> Path:
        """One JSON object a line."""
        return self.folder / "audit.log"


def etcd(settings: Settings) -> list[str]:
    """A single member that does not wait for the disk."""
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


def api_server(settings: Settings, authority: Path, server: Pair, tokens: Pair) -> list[str]:
    """RBAC, TLS, an audit log, and Services on loopback addresses."""
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


def controller_manager(kubeconfig: Path, authority: Path, tokens: Pair) -> list[str]:
    """Every controller that needs no cloud and no network."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={tokens.key}",
        "--use-service-account-credentials",
        "--controllers=*,-node-ipam-controller",
        "--leader-elect=false",
        "--secure-port=0",
        # Its usual patience with the API server costs five seconds at the start.
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    """The scheduler as it is."""
    return [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]


def kwok(kubeconfig: Path, stages: Sequence[Path]) -> list[str]:
    """It plays the kubelet of the nodes that are annotated as its own."""
    return [
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *(f"--config={stage}" for stage in stages),
    ]
