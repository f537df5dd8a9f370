"""`--render` with `--staged` and `--changed-since`: charts and kustomizations that change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sources.git.command import GitError
from sources.git.trees import BlobReader, GitTree, index_entries, working_copy
from tests.testkit.chart.rendering import program
from tests.testkit.git_repository import BAD, GOOD, POD, GitRepository

CHART = "apiVersion: v2\nname: serving\nversion: 0.1.0\n"
TEMPLATE = POD % "{{ .Values.devices }}"
KUSTOMIZATION = "resources: [../base]\npatches: [{path: gpu.yaml}]\n"
PATCH = POD


@pytest.fixture
def repository(tmp_path: Path, git: str) -> GitRepository:
    """A repository on a branch, with faulty charts that are not touched, and helm and kubectl."""
    assert git
    made = GitRepository(tmp_path / "repository")
    tools, copies = tmp_path / "tools", tmp_path / "copies"
    tools.mkdir()
    copies.mkdir()
    for name, path in (("helm", program("helm4")), ("kubectl", program("kubectl"))):
        (tools / name).symlink_to(path)
    made.environment |= {"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(copies)}
    for folder, devices in (("old", "all"), ("charts/new", "void")):
        made.write(f"{folder}/Chart.yaml", CHART)
        made.write(f"{folder}/values.yaml", f"devices: {devices}\n")
        made.write(f"{folder}/templates/pod.yaml", TEMPLATE)
    made.write("k/base/pod.yaml", GOOD)
    made.write("k/base/kustomization.yaml", "resources: [pod.yaml]\n")
    made.write("k/top/kustomization.yaml", KUSTOMIZATION)
    made.write("k/top/gpu.yaml", PATCH % "void")
    made.git("add", "-A")
    made.git("commit", "-qm", "begin")
    made.git("checkout", "-q", "-b", "work")
    return made


def found(
    repository: GitRepository, *options: str, folder: str = "."
) -> tuple[list[tuple[str, int]], int]:
    """The file and the line of each finding, and how many renderings there were."""
    arguments = ("lint", "--render", "--output=json", *options)
    done = repository.gpuward(*arguments, folder=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    places = [(each["file"], each["line"]) for each in report["findings"]]
    assert str(repository.folder.parent / "copies") not in done.stdout
    assert not list((repository.folder.parent / "copies").iterdir())
    return places, report["summary"]["renderings"]


def test_what_is_staged_is_rendered(repository: GitRepository) -> None:
    assert found(repository, "--staged") == ([], 0)
    repository.stage("charts/new/values.yaml", "devices: all\n")
    repository.write("charts/new/values.yaml", "devices: void\n")
    repository.write("charts/new/templates/pod.yaml", "broken")
    line = TEMPLATE[: TEMPLATE.index("{{")].count("\n") + 1
    place = ("charts/new/templates/pod.yaml", line)
    assert found(repository, "--staged") == ([place], 1)
    assert found(repository, "--staged", "old") == ([], 0)
    absolute = str(repository.folder / "charts")
    inside = (f"../{place[0]}", line)
    assert found(repository, "--staged", absolute, folder="k") == ([inside], 1)
    # A plain manifest is judged as ever, and a values file of the user is the staged one.
    repository.stage("pod.yaml", BAD)
    repository.stage("my.yaml", "devices: void\n")
    repository.write("my.yaml", "broken: [")
    options = ("--staged", "--values", "../my.yaml", "--exclude", "../old", "..")
    assert found(repository, *options, folder="k") == ([("../pod.yaml", 7)], 1)


def test_staged_kustomizations(repository: GitRepository) -> None:
    repository.stage("k/top/gpu.yaml", PATCH % "all")
    assert found(repository, "--staged") == ([("k/top/gpu.yaml", 7)], 1)
    repository.git("commit", "-qam", "x")
    repository.git("rm", "-q", "k/top/gpu.yaml")
    repository.stage("k/top/kustomization.yaml", KUSTOMIZATION.partition("patches")[0])
    repository.stage("k/base/pod.yaml", BAD)
    assert found(repository, "--staged") == ([("k/base/pod.yaml", 7)], 2)


def test_what_a_branch_changed_is_rendered(repository: GitRepository) -> None:
    repository.write("charts/new/ci/gpu-values.yaml", "devices: all\n")
    places, renderings = found(repository, "--changed-since", "main")
    assert (len(places), renderings) == (1, 2)
    repository.git("add", "-A")
    repository.git("commit", "-qm", "x")
    repository.git("branch", "-f", "main")
    assert found(repository, "--changed-since", "main") == ([], 0)
    # What is gone is a change too.
    repository.git("rm", "-q", "old/values.yaml")
    assert found(repository, "--changed-since", "main")[1] == 1
    repository.write("k/base/pod.yaml", BAD)
    places, renderings = found(repository, "--changed-since", "main", "k")
    assert (renderings, places) == (2, [("k/base/pod.yaml", 7)])


def test_a_copy_has_nothing_from_outside(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from an index that no program of Git writes."""
    (repository.folder / "charts/new/passwords.yaml").symlink_to("/etc/passwd")
    (repository.folder / "charts/new/copy.yaml").symlink_to("../../k/base/pod.yaml")
    repository.git("add", "-A")
    monkeypatch.chdir(repository.folder / "k")
    with BlobReader() as blobs:
        entries = index_entries()
        tree = GitTree(str(repository.folder), entries, blobs)
        pod = entries["k/base/pod.yaml"]
        entries |= {"../evil.yaml": pod, "/evil.yaml": pod, "a/../b.yaml": pod}
        with working_copy(tree, list(entries)):
            root = Path.cwd().parent
            copied = {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}
            assert (root / "charts/new/copy.yaml").read_text() == GOOD
            assert not any(file.is_symlink() for file in root.rglob("*"))
            assert not (root.parent / "evil.yaml").exists()
        strange = {"charts/new/passwords.yaml", "../evil.yaml", "/evil.yaml", "a/../b.yaml"}
        assert copied == entries.keys() - strange
        assert (Path.cwd(), root.exists()) == (repository.folder / "k", False)
        monkeypatch.setattr("sources.git.trees.MAX_FILES", 3)
        with pytest.raises(GitError, match="leave --staged out"), working_copy(tree, list(entries)):
            pass
