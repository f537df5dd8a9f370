"""The built wheel, installed into a new virtual environment and run in a hostile repository."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.testkit.paths import ROOT
from tools import krew_plugin

pytestmark = pytest.mark.slow

POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    "    - {name: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}\n"
)
TRAP = "raise SystemExit('imported from the repository that is being linted')\n"
HEAVY = ("aiohttp", "kubernetes", "cryptography", "jsonschema")


@dataclass(frozen=True)
class Installation:
    """A new virtual environment with the wheel installed."""

    wheel: Path
    environment: Path

    def run(self, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in `folder`, with few environment variables."""
        program = self.environment / "bin" / command[0]
        return subprocess.run(
            [str(program), *command[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    as_for_a_release = {**os.environ, "HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"}
    subprocess.run(build, cwd=ROOT, env=as_for_a_release, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    hashed = ["--require-hashes", "-r", str(ROOT / "requirements" / "lint.txt")]
    subprocess.run([*pip, *hashed], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    return Installation(wheel, environment)


def test_the_wheel_has_one_top_level_package(installation: Installation) -> None:
    with zipfile.ZipFile(installation.wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        files = set(archive.namelist())
    assert {name for name in names if not name.endswith((".dist-info", ".data"))} == {"gpuward"}
    data = ("policy.schema.json", "profiles/built_in.json")
    for part in (*(f"policies/{name}" for name in data), "lint/cli.py"):
        assert f"gpuward/packages/{part}" in files


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("man/man1/gpuward.1", "manual"),
        ("bash-completion/completions/gpuward", "completion bash"),
        ("zsh/site-functions/_gpuward", "completion zsh"),
        ("fish/vendor_completions.d/gpuward.fish", "completion fish"),
    ],
)
def test_manual_and_completions_know_the_commands_of_every_extra(
    installation: Installation, file: str, command: str
) -> None:
    """They are those of an installation with all extras, as this one is."""
    whole = subprocess.run(
        [sys.executable, "-m", "gpuward", *command.split()],
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    installed = installation.environment / "share" / file
    assert installed.read_bytes() == whole.stdout
    assert b"authenticate" in whole.stdout  # of `gpuward console`


@pytest.mark.parametrize("command", [["gpuward"], ["python", "-m", "gpuward"]], ids=" ".join)
def test_it_works_in_a_hostile_repository(
    installation: Installation, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    for name in ("rules", "lint", "policies", "kubeyaml", "packages"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(TRAP)
    for name in ("yaml", "argparse", "dataclasses", "json", "jsonschema", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    if command == ["python", "-m", "gpuward"]:
        (tmp_path / "sitecustomize.py").unlink()
    done = installation.run(tmp_path, *command, "lint", "--output", "concise", ".")
    assert done.returncode == 1, done.stderr
    assert "error visible-devices-env" in done.stdout
    assert done.stderr == ""


def test_every_command_works_from_the_wheel(installation: Installation, tmp_path: Path) -> None:
    assert "visible-devices-env" in installation.run(tmp_path, "gpuward", "rules").stdout
    explained = installation.run(tmp_path, "gpuward", "explain", "visible-devices-env")
    assert "Why it matters" in explained.stdout
    assert "\nExample: " in explained.stdout
    policy = "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [ack, amd]\n"
    (tmp_path / "gpuward.yaml").write_text(policy)
    (tmp_path / "pod.yaml").write_text(POD)
    assert installation.run(tmp_path, "gpuward", "lint", ".").returncode == 1
    for verb, *arguments, extra in (
        ("serve", "--dev", "webhook"),
        ("certs", "check", ".", "certs"),
    ):
        assert installation.run(tmp_path, "gpuward", verb, "--help").returncode == 0
        done = installation.run(tmp_path, "gpuward", verb, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"gpuward {verb} needs the package ")
        wanted = f"gpuward[{extra}] @ {installation.wheel.as_uri()}"
        assert done.stderr.endswith(f": `pip install '{wanted}'`\n")


def test_krew_installs_a_plugin_that_needs_nothing_but_python(
    krew: Path, installation: Installation, tmp_path: Path
) -> None:
    archive, manifest = tmp_path / "gpuward.tar.gz", tmp_path / "gpuward.yaml"
    archive.write_bytes(packed := krew_plugin.archive(installation.wheel))
    found = krew_plugin.manifest(packed, "https://example.com/gpuward.tar.gz")
    manifest.write_text(yaml.safe_dump(found))
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [ack]\n")
    environment = {"HOME": str(tmp_path), "PATH": f"{sys.base_prefix}/bin:{os.defpath}"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | {"KREW_ROOT": str(tmp_path / "krew"), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(str(krew), "install", f"--manifest={manifest}", f"--archive={archive}")
    assert done.returncode == 0, done.stderr
    plugin = str(tmp_path / "krew" / "bin" / "kubectl-gpuward")  # what kubectl runs
    cluster = str(ROOT / "docs" / "example-cluster.yaml")
    done = run(plugin, "audit", "--policy", str(policy), "-f", cluster)
    assert (done.returncode, done.stderr) == (1, "")
    assert "visible-devices-env" in done.stdout


def test_linting_without_a_policy_imports_no_heavy_package(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    program = (
        "import sys\nfrom gpuward.__main__ import main\nmain(['lint', 'pod.yaml'])\n"
        f"print('LOADED', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = installation.run(tmp_path, "python", "-c", program)
    assert done.stdout.endswith("LOADED []\n"), done.stderr
