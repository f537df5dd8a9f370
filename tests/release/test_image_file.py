"""The Dockerfile, the build context, and the pinned requirements of the image."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cluster.controllers import certs_command as certs
from gpuward.commands import COMMANDS
from tests.testkit.image.dockerfile_replay import BuildContext, Stage, stages
from tests.testkit.paths import ROOT
from webhook.settings import ServerSettings

DOCKERFILE = ROOT / "Dockerfile"
REQUIREMENTS = ROOT / "requirements"
DEBIAN = {"trixie": "13"}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LABEL = "org.opencontainers.image."


@pytest.fixture(scope="module")
def all_stages() -> list[Stage]:
    return stages(DOCKERFILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def final_stage(all_stages: list[Stage]) -> Stage:
    return all_stages[-1]


def pins(name: str) -> dict[str, str]:
    """The pinned versions of a requirements file."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_hadolint_finds_nothing() -> None:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    done = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_both_base_images_have_the_same_python_and_debian(
    all_stages: list[Stage], final_stage: Stage
) -> None:
    digest = r"@sha256:[0-9a-f]{64}"
    builder = re.fullmatch(rf"python:(3\.\d+)-slim-([a-z]+){digest}", all_stages[0].base)
    runner = re.fullmatch(
        rf"gcr\.io/distroless/python3-debian(\d+):nonroot{digest}", final_stage.base
    )
    assert builder
    assert runner
    python, release = builder.groups()
    assert runner[1] == DEBIAN[release]
    (entry,) = final_stage.find_all("ENTRYPOINT")
    assert entry.words == [f"/usr/bin/python{python}", "-m", "gpuward"]
    assert {stage.base for stage in all_stages[1:-1]} == {all_stages[0].name}


def test_the_final_stage_needs_no_shell_and_no_root(final_stage: Stage) -> None:
    used = [one.name for one in final_stage.instructions]
    assert not {"RUN", "SHELL", "HEALTHCHECK", "VOLUME", "ADD"} & set(used)
    assert [one.value for one in final_stage.find_all("USER")] == ["65532:65532"]
    assert used.index("USER") < used.index("ENTRYPOINT")
    assert [one.value for one in final_stage.find_all("STOPSIGNAL")] == ["SIGTERM"]
    for name in ("ENTRYPOINT", "CMD"):
        (one,) = final_stage.find_all(name)
        assert one.value.startswith("[")
    assert all("--chown" not in one.value for one in final_stage.find_all("COPY"))


def test_it_exposes_the_ports_that_gpuward_listens_on(
    final_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    (ports,) = final_stage.find_all("EXPOSE")
    serve = ServerSettings()
    assert [f":{port}" for port in ports.words[:2]] == [serve.listen, serve.metrics_listen]
    with pytest.raises(SystemExit):
        certs.main(["run", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert f"serves /healthz and /metrics; default: {ports.words[2]} " in help_text


def test_its_labels_describe_the_image(final_stage: Stage) -> None:
    labels = {
        key: value for one in final_stage.find_all("LABEL") for key, value in one.pairs.items()
    }
    project = PROJECT["project"]
    assert labels[f"{LABEL}title"] == project["name"]
    assert labels[f"{LABEL}description"] == project["description"]
    assert labels[f"{LABEL}licenses"] == project["license"]
    assert labels[f"{LABEL}source"] == "https://github.com/gpuward/gpuward"
    assert final_stage.base.startswith(labels[f"{LABEL}base.name"] + "@")
    arguments = {key for one in final_stage.find_all("ARG") for key in one.pairs}
    for name in ("version", "revision", "created"):
        assert labels[f"{LABEL}{name}"] == f"${{{name.upper()}}}"
        assert name.upper() in arguments


def test_the_build_context_has_the_packages_and_nothing_else() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {*wheel["packages"], *wheel["force-include"]}
    files = {"pyproject.toml", "README.md", "LICENSE"}
    requirement_files = {"requirements/image.txt", "requirements/build.txt"}
    context = BuildContext(ROOT)
    visible = context.files()
    assert {name.partition("/")[0] for name in visible} == {*packages, *files, "requirements"}
    assert {name for name in visible if name.startswith("requirements/")} == requirement_files
    assert not [name for name in visible if "__pycache__" in name]
    for name in (".git/config", ".venv/bin/python", "tests/testkit/cases.py", "charts/x", ".env"):
        assert not context.allows(name)
    assert context.allows("rules/catalog/new/rule.py")


@pytest.mark.parametrize(
    "name", ["image.txt", "build.txt", "distributions.txt", "linter-tests.txt"]
)
def test_the_shipped_versions_are_the_tested_versions(name: str) -> None:
    tested = pins("dev.txt")
    assert pins(name)
    assert {one: tested.get(one) for one in pins(name)} == pins(name)
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    assert "://" not in text


def test_a_release_is_built_with_the_packages_of_every_command() -> None:
    """The manual page and the completions of shells have the options of all commands."""
    extras = {extra for _, extra, *_ in COMMANDS.values() if extra}
    listed = PROJECT["project"]["optional-dependencies"]
    names = {re.split(r"[^a-z0-9-]", one)[0] for extra in extras for one in listed[extra]}
    assert names <= pins("distributions.txt").keys()


def test_only_wheels_with_known_hashes_are_installed(all_stages: list[Stage]) -> None:
    assert all_stages[0].environment["PIP_ONLY_BINARY"] == ":all:"
    installs = [
        command
        for stage in all_stages
        for one in stage.find_all("RUN")
        for command in one.value.split("&&")
        if "pip install" in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command
