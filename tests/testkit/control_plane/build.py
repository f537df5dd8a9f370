"""Builds Kubernetes, etcd, kwok and helm for the tests into a cache outside the repository.

    python -m tests.testkit.control_plane.build [--print]

builds what is missing. With --print it also prints the name and the path of each program.
`programs()` returns these paths and builds what is missing; `chart_tools()` does the same for the
programs that only the tests of the chart need. GPUWARD_KUBERNETES chooses a release: see
`sources.kubernetes`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.testkit.control_plane.sources import (
    ARGO_CD,
    CHART_LINTER,
    CHART_TOOLS,
    DEVICE_ALLOCATORS,
    FLUX,
    GATEKEEPER,
    HELM,
    KREW,
    KSERVE,
    KUBERNETES,
    KUEUE,
    KYVERNO,
    PROMETHEUS,
    REPORT_KINDS,
    SCHEDULER_FILTERS,
    WORKLOAD_CONTROLLERS,
    Copied,
    Source,
    kubernetes,
)
from tests.testkit.control_plane.toolchain import BuildError, build_once, cache, go_command, run

MANIFESTS = "manifests"


@dataclass(frozen=True)
class Programs:
    """The folders with the programs and the files that belong to them."""

    folders: tuple[Path, ...]

    def __getitem__(self, name: str) -> Path:
        """The program called `name`, such as `kubectl` or `helm4`; BuildError if it is missing."""
        for folder in self.folders:
            if (folder / name).is_file():
                return folder / name
        raise BuildError(f"{name} is not in {', '.join(map(str, self.folders))}")

    def has(self, *names: str) -> bool:
        """Return whether all of these programs exist."""
        return all(any((folder / n).is_file() for folder in self.folders) for n in names)

    @property
    def stages(self) -> list[Path]:
        """The configuration files of kwok; empty without kwok."""
        return sorted(file for folder in self.folders for file in folder.glob("stages/*.yaml"))

    @property
    def crds(self) -> list[Path]:
        """The CustomResourceDefinitions of other projects; empty without the chart tools."""
        return sorted(file for folder in self.folders for file in folder.glob("crds/*.yaml"))

    @property
    def settings(self) -> list[Path]:
        """The settings of Argo CD, as it installs them; empty without Argo CD."""
        return sorted(file for folder in self.folders for file in folder.glob("settings/*.yaml"))

    def manifests(self, name: str) -> Path:
        """The folder with the manifests of another project, as its Go module has them."""
        for folder in self.folders:
            if (folder / MANIFESTS / name).is_dir():
                return folder / MANIFESTS / name
        raise BuildError(f"the manifests of {name} are not in {', '.join(map(str, self.folders))}")

    @property
    def version(self) -> str:
        """The version that the API server reports, such as `v1.37.2`."""
        return run([str(self["kube-apiserver"]), "--version"]).split()[-1]

    @property
    def minor_version(self) -> int:
        """The minor version of the API server: 37 of `v1.37.2`."""
        return int(self.version.split(".")[1])


def programs() -> Programs:
    """The programs of the release to test; built if necessary.

    If KUBEBUILDER_ASSETS is set, its programs are used and nothing is built.
    """
    return _programs(kubernetes(), HELM)


def chart_tools() -> Programs:
    """helm-docs, promtool, kube-score, and the `crds` of the objects that the chart can create.

    They are not part of `programs()`, so that only the tests that need them wait for their build.
    """
    return _programs(CHART_TOOLS, CHART_LINTER)


def prometheus() -> Programs:
    """The server Prometheus, and promtool."""
    return build_programs(PROMETHEUS)


def krew() -> Path:
    """The program krew, which installs plugins of kubectl."""
    return _programs(KREW)["krew"]


def scheduler_filters() -> Path:
    """The program scheduler-filters, which asks the filters of the newest kube-scheduler."""
    return _programs(SCHEDULER_FILTERS)["scheduler-filters"]


def device_allocator(release: str) -> Path:
    """The program device-allocator, which asks the allocator of a release of Kubernetes."""
    return build_programs(DEVICE_ALLOCATORS[release])["device-allocator"]


def report_kinds() -> Programs:
    """The `crds` of PolicyReports and OpenReports, as their projects publish them."""
    return _programs(REPORT_KINDS)


def argo_cd() -> Programs:
    """The program argo-cd, and the `crds` and `settings` that Argo CD needs in the cluster."""
    return _programs(ARGO_CD)


def flux() -> Path:
    """The program flux, which releases a chart as Flux does."""
    return _programs(FLUX)["flux"]


def controllers() -> Programs:
    """The controllers of GPU workloads that are tested beside gpuward, and their `manifests`."""
    return build_programs(KUEUE, WORKLOAD_CONTROLLERS)


def kserve() -> Programs:
    """KServe's controller, and its `manifests`."""
    return build_programs(KSERVE)


def kyverno() -> Programs:
    """Kyverno's admission controller, and its `manifests`."""
    return build_programs(KYVERNO)


def gatekeeper() -> Programs:
    """Gatekeeper, and its `manifests`."""
    return build_programs(GATEKEEPER)


def _programs(*sources: Source) -> Programs:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return Programs((Path(assets),))
    return build_programs(*sources)


def build_programs(*sources: Source) -> Programs:
    """The programs of `sources`; built if necessary."""
    return Programs(tuple(_build(go_command(source.go), source) for source in sources))


def _build(go: str, source: Source) -> Path:
    """The folder with the programs of a Go module and the copied files; built if necessary.

    The key of the cache is a hash of the flags, the packages, the copied files (by the `repr` of
    `Copied`, so renaming it discards the cache), the platform, go.mod, go.sum and the module's own
    program.
    """
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly"]
    flags += [f"-ldflags={_linker_flags(source)}"] if source.packages else []
    flags += source.flags
    platform = run([go, "env", "GOVERSION", "GOOS", "GOARCH"])
    copied = (source.copied, source.folders) if source.folders else source.copied
    recipe = repr((flags, source.packages, copied, platform))
    recipe += repr(source.compiled) if source.compiled else ""
    own = sorted(file.name for file in source.folder.glob("*.go"))
    files = [source.go_mod, source.go_sum, *(own if "." in source.packages.values() else [])]
    texts = [(source.folder / name).read_text(encoding="utf-8") for name in files]
    key = hashlib.sha256("\0".join([recipe, *texts]).encode()).hexdigest()[:12]
    target = cache() / f"{source.name}-{key}"
    with build_once(target) as folder:
        if folder:
            _announce(source, target)
            if source.compiled:
                flags.append(f"-overlay={_overlay(go, source, source.compiled, folder)}")
            for name, package in source.packages.items():
                command = [go, "build", *flags, f"-o={folder / name}", package]
                run(command, source.folder, cgo=source.cgo)
            _copy_files(go, source, folder)
    return target


def _announce(source: Source, target: Path) -> None:
    """Print what is built, how long it takes and where it is stored.

    pytest captures `sys.stderr`, so this writes to the original stream.
    """
    stream = sys.__stderr__ or sys.stderr
    stream.write(
        f"Building {', '.join(source.packages) or source.name} for the tests, which usually takes "
        f"{source.duration} on two cores. This happens once; they are kept in {target}.\n"
    )
    stream.flush()


def _copy_files(go: str, source: Source, folder: Path) -> None:
    """Copy files of other Go modules into the folder of the programs."""
    for copied in source.copied:
        home = _module_folder(go, source, copied.module)
        (folder / copied.folder).mkdir(exist_ok=True)
        for file in copied.files:
            shutil.copyfile(home / file, folder / copied.folder / Path(file).name)
    for tree in source.folders:
        home = _module_folder(go, source, tree.module)
        # File by file, as the folders of Go's cache of modules must not be written to.
        origin = home / tree.origin
        for source_file in filter(Path.is_file, origin.rglob("*")):
            target = folder / MANIFESTS / tree.folder / source_file.relative_to(origin)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source_file, target)


def _overlay(go: str, source: Source, compiled: Copied, folder: Path) -> Path:
    """A file that tells Go to compile files of another module beside those of the source."""
    home = _module_folder(go, source, compiled.module)
    files = {
        str(source.folder / compiled.folder / Path(file).name): str(home / file)
        for file in compiled.files
    }
    written = folder / "overlay.json"
    written.write_text(json.dumps({"Replace": files}), encoding="utf-8")
    return written


def module_folder(source: Source, module: str) -> Path:
    """The folder with the files of a required Go module."""
    return _module_folder(go_command(source.go), source, module)


def _module_folder(go: str, source: Source, module: str) -> Path:
    of_file = f"-modfile={source.go_mod}"
    run([go, "mod", "download", of_file, module], source.folder)
    return Path(run([go, "list", of_file, "-m", "-f={{.Dir}}", module], source.folder).strip())


def _linker_flags(source: Source) -> str:
    """The linker flags that set the versions of the programs.

    The API server derives the APIs that it serves from its version. helm has its own version and
    that of the Kubernetes release that it supports.
    """
    versions = dict(re.findall(r"^\s*(\S+) (v[\d.]+)", source.requirements, re.MULTILINE))
    if "k8s.io/apimachinery" not in versions:
        return "-s -w"
    minor = versions["k8s.io/apimachinery"].split(".")[1]
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
    """Run from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Build the control plane that the tests use.")
    parser.add_argument("--print", action="store_true", help="write each program's name and path")
    options = parser.parse_args()
    try:
        found = programs()
        lines = [f"{name} {found[name]}" for name in (*KUBERNETES.packages, *HELM.packages)]
        if not os.environ.get("KUBEBUILDER_ASSETS"):
            tools = chart_tools()
            report_kinds()
            lines.append(f"scheduler-filters {scheduler_filters()}")
            lines += [
                f"{each.name} {device_allocator(one)}" for one, each in DEVICE_ALLOCATORS.items()
            ]
            lines.append(f"krew {krew()}")
            names = (*CHART_TOOLS.packages, *CHART_LINTER.packages)
            lines += [f"{name} {tools[name]}" for name in names]
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines) if options.print else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
