"""The programs that are built for the tests, and the Go modules beside this file for them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tests.testkit.control_plane.toolchain import BuildError

HERE = Path(__file__).resolve().parent


class Copied(NamedTuple):
    """Files of a required Go module, which are copied into `folder` beside the programs.

    The names of this class and its fields are part of the cache key: see `build.py`.
    """

    folder: str
    module: str
    files: tuple[str, ...]


class CopiedFolder(NamedTuple):
    """A folder of a required Go module, which is copied to `folder` beside the programs."""

    folder: str
    module: str
    origin: str


class Source(NamedTuple):
    """A Go module: its programs by name and import path, and copied files.

    `name` is part of the cache's folder names: a new name means a new build.
    """

    name: str
    packages: dict[str, str]
    copied: tuple[Copied, ...] = ()
    flags: tuple[str, ...] = ()
    duration: str = "about two minutes"
    """How long the first build usually takes, in words."""
    cgo: bool = False
    """Whether it has parts in C, so that its build needs a C compiler."""
    home: Path = HERE
    """The folder that has the folder of its go.mod."""
    module: str = ""
    """The name of the folder of its go.mod, if it is not `name`."""
    folders: tuple[CopiedFolder, ...] = ()
    go_mod: str = "go.mod"
    """The file with its requirements, which others may have in place of the folder's go.mod."""
    compiled: Copied | None = None
    """Go files of a required module that are part of the module's own program."""

    @property
    def folder(self) -> Path:
        """The folder of its go.mod."""
        return self.home / (self.module or self.name)

    @property
    def go(self) -> tuple[int, ...]:
        """The release of Go that its go.mod requires, such as `(1, 26)`."""
        found = re.search(r"^go (\d+)\.(\d+)", self.requirements, re.MULTILINE)
        return tuple(map(int, found.groups())) if found else ()

    @property
    def requirements(self) -> str:
        """The text of its go.mod."""
        return (self.folder / self.go_mod).read_text(encoding="utf-8")

    @property
    def go_sum(self) -> str:
        """The name of the file with the checksums of its requirements."""
        return f"{self.go_mod.removesuffix('.mod')}.sum"


_KUBERNETES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
KUBERNETES = Source("kubernetes", _KUBERNETES, duration="five to ten minutes")
_KUBERNETES_BY_RELEASE = {
    "": KUBERNETES,
    "1.34": Source("kubernetes-1.34", _KUBERNETES, duration="four to eight minutes"),
    "oldest": Source("kubernetes-oldest", _KUBERNETES, duration="four to eight minutes"),
}
RELEASE_VARIABLE = "GPUWARD_KUBERNETES"


def kubernetes() -> Source:
    """The release to test: the newest, or what GPUWARD_KUBERNETES says: `oldest` or `1.34`.

    `oldest` is the oldest tested release, and 1.34 the first in which claims for devices are
    stable. BuildError for another value.
    """
    release = os.environ.get(RELEASE_VARIABLE, "")
    if release not in _KUBERNETES_BY_RELEASE:
        known = " or ".join(filter(None, _KUBERNETES_BY_RELEASE))
        raise BuildError(f"{RELEASE_VARIABLE} is {release!r}; use {known}, or leave it out")
    return _KUBERNETES_BY_RELEASE[release]


SCHEDULER_FILTERS = Source(
    "scheduler-filters",
    {"scheduler-filters": "."},
    duration="some minutes, or seconds after Kubernetes",
    module="kubernetes",
)

_ALLOCATOR = {"device-allocator": "."}
DEVICE_ALLOCATORS = {
    "1.34": Source(
        "device-allocator-1.34",
        _ALLOCATOR,
        flags=("-modfile=1.34.mod", "-tags=kubernetes_1_34"),
        duration="one to two minutes",
        module="device-allocator",
        go_mod="1.34.mod",
    ),
    "1.36": Source(
        "device-allocator-1.36",
        _ALLOCATOR,
        flags=("-modfile=1.36.mod",),
        duration="one to two minutes",
        module="device-allocator",
        go_mod="1.36.mod",
    ),
    "1.37": Source("device-allocator", _ALLOCATOR, duration="half a minute"),
}
"""kube-scheduler's device allocator, by the release of Kubernetes."""

# These stages make nodes ready, and make pods run, complete and disappear at once.
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

# The CustomResourceDefinitions of other projects whose objects the chart can create.
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
    # Without this tag promtool contains the libraries of every cloud: most of its build time.
    ("-tags=remove_all_sd",),
)
# A module of its own: it needs parts of Kubernetes' API that promtool's version lacks.
CHART_LINTER = Source("chart-linter", {"kube-score": "github.com/zegl/kube-score/cmd/kube-score"})

_PROMETHEUS = "github.com/prometheus/prometheus/cmd"
PROMETHEUS = Source(
    "prometheus",
    {"prometheus": f"{_PROMETHEUS}/prometheus", "promtool": f"{_PROMETHEUS}/promtool"},
    flags=("-tags=remove_all_sd",),
    duration="two to fifteen minutes",
)

KREW = Source("krew", {"krew": "sigs.k8s.io/krew/cmd/krew"}, duration="half a minute")

# The CustomResourceDefinitions of reports, as Kyverno and OpenReports install them.
_POLICY_REPORTS = (
    "config/crds/policyreport/wgpolicyk8s.io_clusterpolicyreports.yaml",
    "config/crds/policyreport/wgpolicyk8s.io_policyreports.yaml",
)
_OPEN_REPORTS = (
    "config/crd/openreports.io_clusterreports.yaml",
    "config/crd/openreports.io_reports.yaml",
)
REPORT_KINDS = Source(
    "report-kinds",
    {},
    (
        Copied("crds", "github.com/kyverno/kyverno", _POLICY_REPORTS),
        Copied("crds", "github.com/openreports/reports-api", _OPEN_REPORTS),
    ),
    duration="some seconds",
)

# What Argo CD needs in the cluster: its kinds, and its settings as it installs them.
_ARGO_CD = "github.com/argoproj/argo-cd/v3"
_ARGO_CD_KINDS = (
    "manifests/crds/application-crd.yaml",
    "manifests/crds/applicationset-crd.yaml",
    "manifests/crds/appproject-crd.yaml",
)
_ARGO_CD_SETTINGS = (
    "manifests/base/config/argocd-cm.yaml",
    "manifests/base/config/argocd-secret.yaml",
)
ARGO_CD = Source(
    "argo-cd",
    {"argo-cd": "."},
    (Copied("crds", _ARGO_CD, _ARGO_CD_KINDS), Copied("settings", _ARGO_CD, _ARGO_CD_SETTINGS)),
    duration="four to five minutes",
)
FLUX = Source("flux", {"flux": "."})

CONTROLLERS = HERE.parent / "controllers"
_KUEUE, _TRAINER = "sigs.k8s.io/kueue", "github.com/kubeflow/trainer/v2"
KUEUE = Source(
    "kueue",
    {
        "kueue": f"{_KUEUE}/cmd/kueue",
        "trainer": f"{_TRAINER}/cmd/trainer-controller-manager",
    },
    duration="five to eight minutes",
    home=CONTROLLERS,
    folders=(
        CopiedFolder("kueue", _KUEUE, "config"),
        CopiedFolder("trainer", _TRAINER, "manifests"),
    ),
)
_JOBSET, _LWS = "sigs.k8s.io/jobset", "sigs.k8s.io/lws"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
WORKLOAD_CONTROLLERS = Source(
    "workload-controllers",
    {
        "jobset": _JOBSET,
        "lws": f"{_LWS}/cmd",
        "kuberay": _KUBERAY,
    },
    duration="five to eight minutes",
    home=CONTROLLERS,
    module="workloads",
    folders=(
        CopiedFolder("jobset", _JOBSET, "config"),
        CopiedFolder("lws", _LWS, "config"),
        CopiedFolder("kuberay", _KUBERAY, "config"),
    ),
)
_KYVERNO, _GATEKEEPER = "github.com/kyverno/kyverno", "github.com/open-policy-agent/gatekeeper/v3"
KYVERNO = Source(
    "kyverno",
    {"kyverno": f"{_KYVERNO}/cmd/kyverno"},
    duration="ten to fifteen minutes",
    home=CONTROLLERS,
    folders=(CopiedFolder("kyverno", _KYVERNO, "config"),),
)
GATEKEEPER = Source(
    "gatekeeper",
    {"gatekeeper": _GATEKEEPER},
    duration="five to eight minutes",
    home=CONTROLLERS,
    folders=(CopiedFolder("gatekeeper", _GATEKEEPER, "deploy"),),
)
_KSERVE = "github.com/kserve/kserve"
KSERVE = Source(
    "kserve",
    {"kserve": f"{_KSERVE}/cmd/manager"},
    duration="five to eight minutes",
    home=CONTROLLERS,
    folders=(CopiedFolder("kserve", _KSERVE, "install/v0.15.2"),),
)
