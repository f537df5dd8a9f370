"""What is built for the tests, from which of our Go modules."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Copied(NamedTuple):
    """Files of a module that ours requires: they are copied into `folder`, beside the programs."""

    folder: str
    module: str
    files: tuple[str, ...]


class Source(NamedTuple):
    """A Go module of ours: the programs by name and import path, and what goes with them."""

    name: str
    packages: dict[str, str]
    copied: tuple[Copied, ...] = ()
    flags: tuple[str, ...] = ()
    duration: str = "about two minutes"
    """How long the first build usually takes, in words."""

    @property
    def folder(self) -> Path:
        """Where its go.mod is."""
        return HERE / self.name


_KUBERNETES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
KUBERNETES = Source("kubernetes", _KUBERNETES, duration="five to ten minutes")
OLDEST = Source("kubernetes-oldest", _KUBERNETES, duration="four to eight minutes")

# What makes nodes ready and lets pods run, complete and go away at once.
_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
)
HELM = Source(
    "helm",
    {
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
        "helm3": "helm.sh/helm/v3/cmd/helm",
        "helm4": "helm.sh/helm/v4/cmd/helm",
    },
    (Copied("stages", "sigs.k8s.io/kwok", _STAGES),),
)

# The kinds of other projects that the chart can make objects of.
_MONITORING = (
    "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
)
_CERTIFICATES = (
    "deploy/crds/cert-manager.io_certificates.yaml",
    "deploy/crds/cert-manager.io_issuers.yaml",
)
CHART_TOOLS = Source(
    "chart-tools",
    {
        "helm-docs": "github.com/norwoodj/helm-docs/cmd/helm-docs",
        "promtool": "github.com/prometheus/prometheus/cmd/promtool",
    },
    (
        Copied("crds", "github.com/prometheus-operator/prometheus-operator", _MONITORING),
        Copied("crds", "github.com/cert-manager/cert-manager", _CERTIFICATES),
    ),
    # Otherwise promtool holds the libraries of every cloud, which are most of its build.
    ("-tags=remove_all_sd",),
)
# Apart, because it needs parts of Kubernetes' API that promtool's version has dropped.
CHART_LINTER = Source("chart-linter", {"kube-score": "github.com/zegl/kube-score/cmd/kube-score"})
