"""Builds Kubernetes, etcd, kwok and helm for the tests: once, into a cache outside the repository.

    python tests/controlplane/build.py [--oldest] [--print]

builds what is not there yet; with --print it also writes each program's name and path. As a
module: `programs(oldest=…)` gives the same paths, and builds if it must.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As a script it finds its own folder only, which is not where imports start.
sys.path.insert(0, str(HERE.parent))

from controlplane.toolchain import (  # noqa: E402
    BuildError,
    cache,
    go_command,
    made_once,
    run,
)

KUBERNETES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
HELM = {
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm3": "helm.sh/helm/v3/cmd/helm",
    "helm4": "helm.sh/helm/v4/cmd/helm",
}
# What makes nodes ready and lets pods run, complete and go away at once.
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True)
class Programs:
    """Where the control plane's programs are: the folders that may hold them."""

    folders: tuple[Path, ...]

    def __getitem__(self, name: str) -> Path:
        """The program called `name`, such as `kubectl` or `helm4`; BuildError if it is missing."""
        for folder in self.folders:
            if (folder / name).is_file():
                return folder / name
        raise BuildError(f"{name} is not in {', '.join(map(str, self.folders))}")

    def has(self, *names: str) -> bool:
        """Whether all of these programs are here."""
        return all(any((folder / n).is_file() for folder in self.folders) for n in names)

    @property
    def stages(self) -> list[Path]:
        """The configuration files of kwok; none where there is no kwok."""
        return sorted(file for folder in self.folders for file in folder.glob("stages/*.yaml"))

    @property
    def version(self) -> str:
        """The version that the API server calls itself, such as `v1.36.3`."""
        return run([str(self["kube-apiserver"]), "--version"]).split()[-1]


def programs(*, oldest: bool = False) -> Programs:
    """The programs of the tested release, or of the oldest supported one; built if need be.

    KUBEBUILDER_ASSETS, where set, is taken as it is and nothing is built.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return Programs((Path(assets),))
    kubernetes = "kubernetes-oldest" if oldest else "kubernetes"
    go = go_command()
    return Programs((_built(go, kubernetes, KUBERNETES), _built(go, "helm", HELM)))


def _built(go: str, module: str, packages: dict[str, str]) -> Path:
    """The folder with the built `packages` (name to import path) of one of our Go modules."""
    source = HERE / module
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={_stamps(source)}"]
    recipe = repr((flags, packages, STAGES, run([go, "env", "GOVERSION", "GOOS", "GOARCH"])))
    texts = [(source / name).read_text(encoding="utf-8") for name in ("go.mod", "go.sum")]
    key = hashlib.sha256("\0".join([recipe, *texts]).encode()).hexdigest()[:12]
    target = cache() / f"{module}-{key}"
    with made_once(target) as folder:
        if folder:
            for name, package in packages.items():
                run([go, "build", *flags, f"-o={folder / name}", package], source)
            if "kwok" in packages:
                home = run([go, "list", "-m", "-f={{.Dir}}", "sigs.k8s.io/kwok"], source)
                _copy_stages(Path(home.strip()) / "kustomize" / "stage", folder / "stages")
    return target


def _copy_stages(origin: Path, target: Path) -> None:
    target.mkdir()
    for stage in STAGES:
        shutil.copyfile(origin / stage, target / Path(stage).name)


def _stamps(source: Path) -> str:
    """The linker's flags: what the programs shall take for their own version.

    The API server decides by it what it serves; helm's is that of the Kubernetes it knows.
    """
    text = (source / "go.mod").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^\s*(\S+) (v[\d.]+)", text, re.MULTILINE))
    minor = versions["k8s.io/client-go"].split(".")[1]
    values = {
        "helm.sh/helm/v3/internal/version.version": versions.get("helm.sh/helm/v3", ""),
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
    }
    if "k8s.io/kubernetes" in versions:
        for package in ("component-base/version", "client-go/pkg/version"):
            values[f"k8s.io/{package}.gitVersion"] = versions["k8s.io/kubernetes"]
    return " ".join(["-s", "-w", *(f"-X={name}={value}" for name, value in values.items())])


def main() -> int:
    """Run from the command line; see the module's text."""
    parser = argparse.ArgumentParser(description="Build the control plane that the tests use.")
    parser.add_argument("--oldest", action="store_true", help="the oldest supported Kubernetes")
    parser.add_argument("--print", action="store_true", help="write each program's name and path")
    options = parser.parse_args()
    try:
        found = programs(oldest=options.oldest)
        lines = [f"{name} {found[name]}" for name in (*KUBERNETES, *HELM)]
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines) if options.print else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
