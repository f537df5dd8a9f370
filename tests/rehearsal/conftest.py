"""The artefacts that the rehearsal publishes, once: see docs/releasing.md."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.chart.installation import Installation
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.paths import ROOT
from tests.testkit.release.chart import PushedChart, push_chart
from tests.testkit.release.distributions import (
    build_distributions,
    download_wheels,
    pins_of,
    read_version,
)
from tests.testkit.release.image import (
    ARCHITECTURES,
    PYTHON,
    REPOSITORY,
    Builder,
    Labels,
    obstacle,
)
from tests.testkit.release.new_user import NewUser
from tests.testkit.release.repository import (
    NEXT_VERSION,
    VERSION,
    checkout,
    make_repository,
    start_git_server,
)
from tests.testkit.release.servers import (
    PackageIndex,
    Registry,
    start_package_index,
    start_registry,
)
from tests.testkit.skipping import skip_missing

pytest_plugins = ("tests.testkit.chart.fixtures",)
REQUIREMENTS = ROOT / "requirements"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Processes that end with the rehearsal."""
    processes = Processes(tmp_path_factory.mktemp("servers"))
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bare repository with a tag for each version."""
    bare = tmp_path_factory.mktemp("git") / "gpuward"
    make_repository(bare)
    return bare


@pytest.fixture(scope="session")
def git_server(servers: Processes, repository: Path) -> str:
    """The address of the folder of the repository on its server."""
    return start_git_server(servers, repository)


@pytest.fixture(scope="session")
def versions(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """The outputs of the workflow's first job, by version."""
    folder = tmp_path_factory.mktemp("versions")
    return {
        version: read_version(repository, f"v{version}", folder / version)
        for version in (VERSION, NEXT_VERSION)
    }


@pytest.fixture(scope="session")
def distributions(
    repository: Path,
    versions: dict[str, dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """The folder with wheel and source distribution, by version."""
    folder = tmp_path_factory.mktemp("distributions")
    return {
        version: build_distributions(repository, f"v{version}", outputs["epoch"], folder / version)
        for version, outputs in versions.items()
    }


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what gpuward and its build require, as wheels for this machine."""
    folder = tmp_path_factory.mktemp("wheels")
    names = ("lint.txt", "image.txt", "distributions.txt")
    completion = tmp_path_factory.mktemp("pins") / "completion.txt"
    pins_of(REQUIREMENTS / "dev.txt", "shtab", completion)
    download_wheels([*(REQUIREMENTS / name for name in names), completion], folder)
    return folder


@pytest.fixture(scope="session")
def index(servers: Processes, wheels: Path, distributions: dict[str, Path]) -> PackageIndex:
    """The index, with the wheels of the requirements and gpuward's first version."""
    for file in distributions[VERSION].iterdir():
        shutil.copy(file, wheels)
    return start_package_index(servers, wheels)


@pytest.fixture(scope="session")
def registry(servers: Processes, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """The OCI registry."""
    return start_registry(servers, tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="session")
def charts(
    repository: Path,
    registry: Registry,
    control_plane_programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, PushedChart]:
    """The chart in the registry, by version."""
    folder = tmp_path_factory.mktemp("charts")
    return {
        version: push_chart(repository, version, folder / version, registry, control_plane_programs)
        for version in (VERSION, NEXT_VERSION)
    }


@pytest.fixture(scope="session")
def labels(versions: dict[str, dict[str, str]]) -> Labels:
    """The labels that the workflow gives the image."""
    outputs = versions[VERSION]
    return Labels(outputs["version"], "0" * 40, outputs["created"], outputs["epoch"])


@pytest.fixture(scope="session")
def images(
    repository: Path,
    index: PackageIndex,
    labels: Labels,
    tmp_path_factory: pytest.TempPathFactory,
) -> Builder:
    """The builder, which has the image `gpuward-ARCHITECTURE` for each."""
    if why := obstacle():
        skip_missing(why)
    for machine in ARCHITECTURES.values():
        platforms = (f"manylinux2014_{machine}", f"manylinux_2_28_{machine}")
        download_wheels(
            [REQUIREMENTS / "image.txt"], index.folder, platform=platforms, python=PYTHON
        )
    folder = tmp_path_factory.mktemp("image")
    source = folder / "source"
    checkout(repository, f"v{VERSION}", source)
    builder = Builder(folder, index)
    for architecture in ARCHITECTURES:
        builder.build(source, architecture, labels, f"gpuward-{architecture}")
    return builder


@pytest.fixture(scope="session")
def digest(images: Builder, registry: Registry) -> str:
    """The digest of the index of both images in the registry."""
    names = {architecture: f"gpuward-{architecture}" for architecture in ARCHITECTURES}
    return images.push(names, registry, REPOSITORY)


@pytest.fixture
def released(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    """A release of the chart that is not installed yet."""
    with Installation(chart_plane, kubelet, "helm4") as uninstalled:
        yield uninstalled


@pytest.fixture(scope="session")
def trust(registry: Registry) -> str:
    """The option with which helm trusts the registry's certificate, which is of no public CA."""
    return f"--ca-file={registry.authority}"


@pytest.fixture
def user(tmp_path: Path, index: PackageIndex, git_server: str) -> NewUser:
    """A user who has nothing of gpuward yet."""
    return NewUser(tmp_path / "home", index, git_server)
