"""The wheel and the source distribution, from the index to the first finding."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.testkit.git_repository import BAD
from tests.testkit.paths import ROOT
from tests.testkit.release.distributions import build_distributions
from tests.testkit.release.new_user import REPOSITORY, NewUser
from tests.testkit.release.repository import VERSION

README = (ROOT / "README.md").read_text(encoding="utf-8")
VENV = "python3 -m venv .venv && . .venv/bin/activate"


def readme_block(heading: str) -> list[str]:
    """The commands of the first console block below a heading of the README."""
    part = README.split(f"\n## {heading}\n", 1)[1]
    block = re.search(r"```console\n(.*?)```", part, re.DOTALL)
    assert block
    lines = (line.partition(" #")[0].strip() for line in block[1].splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_two_builds_of_a_tag_have_the_same_bytes(
    repository: Path,
    versions: dict[str, dict[str, str]],
    distributions: dict[str, Path],
    tmp_path: Path,
) -> None:
    epoch = versions[VERSION]["epoch"]
    again = build_distributions(repository, f"v{VERSION}", epoch, tmp_path / "again")
    digests = [
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
        for folder in (distributions[VERSION], again)
    ]
    assert digests[0] == digests[1]
    assert set(digests[0]) == {f"gpuward-{VERSION}-py3-none-any.whl", f"gpuward-{VERSION}.tar.gz"}


def test_the_page_on_the_index_refers_to_nothing_that_is_not_there(
    distributions: dict[str, Path],
) -> None:
    """Links and pictures that are relative in the repository lead to it from elsewhere."""
    (wheel,) = distributions[VERSION].glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"gpuward-{VERSION}.dist-info/METADATA").decode()
    targets = re.findall(r"\]\(([^)]+)\)", metadata)
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []
    for target in targets:
        found = re.fullmatch(rf".*/v{re.escape(VERSION)}/([^#]+)(?:#.*)?", target)
        if found:
            assert (ROOT / found[1]).exists(), target


def test_the_source_distribution_has_what_packagers_need(distributions: dict[str, Path]) -> None:
    (archive,) = distributions[VERSION].glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"LICENSE", "README.md", "SECURITY.md", "tests/conftest.py"} <= names
    assert not [name for name in names if name.startswith((".git/", ".venv", "dist/"))]


def test_what_the_readme_says_of_files_ends_with_a_finding(user: NewUser) -> None:
    user.succeeds("python3 -m venv .venv")
    lint, *others = readme_block("Begin with files")
    install = "pip install gpuward"
    assert f"| `{install}` |" in README
    assert lint == "gpuward lint deploy/"
    user.write("deploy/notebook.yaml", BAD)
    activate = ". .venv/bin/activate && "
    user.succeeds(activate + install)
    done = user.run(activate + lint)
    assert (done.returncode, done.stderr) == (1, "")
    assert "visible-devices-env" in done.stdout
    for command in others:
        done = user.run(activate + command)
        assert done.returncode in {0, 1}, done.stderr


@pytest.mark.parametrize(
    "commands",
    [
        ["uv tool install --quiet gpuward", "gpuward lint pod.yaml"],
        ["uvx --quiet gpuward lint pod.yaml"],
        ["pipx install --quiet gpuward", "gpuward lint pod.yaml"],
        ["pipx run --quiet gpuward lint pod.yaml"],
    ],
    ids=lambda commands: " ".join(commands[0].split()[:2]),
)
def test_other_installers_end_with_the_same_finding(user: NewUser, commands: list[str]) -> None:
    user.write("pod.yaml", BAD)
    *before, lint = commands
    for command in before:
        user.succeeds(command)
    done = user.run(lint)
    assert done.returncode == 1, done.stderr
    assert "visible-devices-env" in done.stdout
    # Each leaves the folder of the user as it was.
    assert [file.name for file in user.folder.iterdir()] == ["pod.yaml"]


def test_a_clone_can_be_installed_before_there_is_a_release(user: NewUser) -> None:
    rows = dict(re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", README, re.MULTILINE))
    user.write("deploy/pod.yaml", BAD)
    user.succeeds(f"{VENV} && git clone --quiet {REPOSITORY} clone")
    with_extra = rows["pip install 'gpuward[cluster]'"]
    for install in (rows["pip install gpuward"], with_extra):
        user.succeeds(f". .venv/bin/activate && cd clone && {install}")
        done = user.run(". .venv/bin/activate && gpuward lint deploy/")
        assert done.returncode == 1, done.stderr
    user.succeeds(". .venv/bin/activate && gpuward audit --help")
    done = user.run(rows["uvx gpuward lint deploy/"].replace("CLONE", "./clone"))
    assert done.returncode == 1, done.stderr
    assert "visible-devices-env" in done.stdout


def test_an_extra_that_is_missing_is_named_as_it_is_installed(user: NewUser) -> None:
    user.succeeds(f"{VENV} && pip install --quiet gpuward")
    done = user.run(". .venv/bin/activate && gpuward audit")
    assert done.returncode == 2
    found = re.search(r"`(pip install .+?)`", done.stderr)
    assert found, done.stderr
    user.succeeds(f". .venv/bin/activate && {found[1]} && gpuward audit --help")


def test_the_package_brings_its_manual_and_completions(user: NewUser) -> None:
    """For all commands, though the extras of most are not installed."""
    user.succeeds("pipx install --quiet gpuward")
    manual = user.succeeds("MANPATH=~/.local/share/man MANPAGER=cat man gpuward")
    assert "gpuward lint" in manual
    assert "gpuward console" in manual
    user.succeeds(f"{VENV} && pip install --quiet gpuward")
    completed = ". .venv/share/bash-completion/completions/gpuward && complete -p gpuward"
    assert "gpuward" in user.succeeds(completed)


def test_completion_can_be_made_anew(user: NewUser) -> None:
    user.succeeds(f"{VENV} && pip install --quiet 'gpuward[completion]'")
    command = "gpuward completion bash > completion && . ./completion && complete -p gpuward"
    assert "gpuward" in user.succeeds(f". .venv/bin/activate && {command}")
