"""The Dockerfile, what a build may see, and the pins that it installs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from certs import cli as certs
from tests.testkit.image.dockerfile_replay import Context, Stage, stages
from tests.testkit.paths import ROOT
from webhook.server.lifecycle import Settings

DOCKERFILE = ROOT / "Dockerfile"
REQUIREMENTS = ROOT / "requirements"
DEBIAN = {"trixie": "13"}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LABEL = "org.opencontainers.image."


@pytest.fixture(scope="module")
def found() -> list[Stage]:
    return stages(DOCKERFILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def final(found: list[Stage]) -> Stage:
    return found[-1]


def pins(name: str) -> dict[str, str]:
    """The versions that a requirements file names."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    done = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_both_images_have_one_python_and_one_debian(found: list[Stage], final: Stage) -> None:
    digest = r"@sha256:[0-9a-f]{64}"
    builder = re.fullmatch(rf"python:(3\.\d+)-slim-([a-z]+){digest}", found[0].base)
    runner = re.fullmatch(rf"gcr\.io/distroless/python3-debian(\d+):nonroot{digest}", final.base)
    assert builder
    assert runner
    python, release = builder.groups()
    assert runner[1] == DEBIAN[release]
    (entry,) = final.of("ENTRYPOINT")
    assert entry.words == [f"/usr/bin/python{python}", "-m", "gpuward"]
    assert {stage.base for stage in found[1:-1]} == {found[0].name}


def test_the_final_stage_needs_no_shell_and_no_root(final: Stage) -> None:
    used = [one.name for one in final.instructions]
    assert not {"RUN", "SHELL", "HEALTHCHECK", "VOLUME", "ADD"} & set(used)
    assert [one.value for one in final.of("USER")] == ["65532:65532"]
    assert used.index("USER") < used.index("ENTRYPOINT")
    assert [one.value for one in final.of("STOPSIGNAL")] == ["SIGTERM"]
    for name in ("ENTRYPOINT", "CMD"):
        (one,) = final.of(name)
        assert one.value.startswith("[")
    assert all("--chown" not in one.value for one in final.of("COPY"))


def test_it_names_the_ports_that_are_listened_on(
    final: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    (ports,) = final.of("EXPOSE")
    serve = Settings()
    assert [f":{port}" for port in ports.words[:2]] == [serve.listen, serve.metrics_listen]
    with pytest.raises(SystemExit):
        certs.main(["run", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"this controller. The default is {ports.words[2]}." in told


def test_it_says_what_it_is(final: Stage) -> None:
    labels = {key: value for one in final.of("LABEL") for key, value in one.pairs.items()}
    project = PROJECT["project"]
    assert labels[f"{LABEL}title"] == project["name"]
    assert labels[f"{LABEL}description"] == project["description"]
    assert labels[f"{LABEL}licenses"] == project["license"]
    assert labels[f"{LABEL}source"] == "https://github.com/gpuward/gpuward"
    assert final.base.startswith(labels[f"{LABEL}base.name"] + "@")
    arguments = {key for one in final.of("ARG") for key in one.pairs}
    for name in ("version", "revision", "created"):
        assert labels[f"{LABEL}{name}"] == f"${{{name.upper()}}}"
        assert name.upper() in arguments


def test_a_build_sees_the_packages_and_nothing_else() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {*wheel["packages"], *wheel["force-include"]}
    files = {"pyproject.toml", "README.md", "LICENSE"}
    named = {"requirements/image.txt", "requirements/build.txt"}
    context = Context(ROOT)
    seen = context.files()
    assert {name.partition("/")[0] for name in seen} == {*packages, *files, "requirements"}
    assert {name for name in seen if name.startswith("requirements/")} == named
    assert not [name for name in seen if "__pycache__" in name]
    for name in (".git/config", ".venv/bin/python", "tests/testkit/cases.py", "charts/x", ".env"):
        assert not context.allows(name)
    assert context.allows("rules/catalog/new/rule.py")


@pytest.mark.parametrize("name", ["image.txt", "build.txt"])
def test_what_is_shipped_is_what_is_tested(name: str) -> None:
    tested = pins("dev.txt")
    assert pins(name)
    assert {one: tested.get(one) for one in pins(name)} == pins(name)
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    assert "://" not in text


def test_only_wheels_with_known_hashes_are_installed(found: list[Stage]) -> None:
    assert found[0].environment["PIP_ONLY_BINARY"] == ":all:"
    installs = [
        command
        for stage in found
        for one in stage.of("RUN")
        for command in one.value.split("&&")
        if "pip install" in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command
