"""What the rehearsal publishes, once: see docs/releasing.md."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.control_plane.processes import Processes
from tests.testkit.paths import ROOT
from tests.testkit.release.distributions import (
    build_distributions,
    download_wheels,
    pins_of,
    read_version,
)
from tests.testkit.release.new_user import NewUser
from tests.testkit.release.repository import (
    NEXT_VERSION,
    VERSION,
    make_repository,
    start_git_server,
)
from tests.testkit.release.servers import (
    PackageIndex,
    Registry,
    start_package_index,
    start_registry,
)

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
    names = ("lint.txt", "image.txt", "build.txt")
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


@pytest.fixture
def user(tmp_path: Path, index: PackageIndex, git_server: str) -> NewUser:
    """Somebody who has nothing of gpuward yet."""
    return NewUser(tmp_path / "home", index, git_server)
