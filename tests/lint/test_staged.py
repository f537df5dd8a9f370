"""`gpuward lint --staged` and `gpuward fix --staged`: what the next commit would have."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sources.git import command
from sources.git.command import GitError
from tests.testkit.git_repository import BAD, FIXABLE, GOOD, POD, GitRepository

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
LENIENT = POLICY + "rules: {visible-devices-env: {action: warn}}\n"


@pytest.fixture
def repository(tmp_path: Path, git: str) -> GitRepository:
    """A repository with one commit that has a bad pod."""
    assert git
    made = GitRepository(tmp_path / "repository")
    made.commit("old.yaml", BAD)
    return made


def staged(repository: GitRepository, *options: str, folder: str = ".") -> tuple[int, list[str]]:
    """The exit status, and each finding, remark and failure as FILE:LINE: what."""
    done = repository.gpuward("lint", "--staged", "--output=concise", *options, folder=folder)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stdout.splitlines() if re.match(r"\S.*?:\d+:\d+: ", line)]
    return done.returncode, [re.sub(r"^(.*?:\d+):\d+: (\S+).*", r"\1 \2", line) for line in lines]


def test_only_what_is_staged_is_judged(repository: GitRepository) -> None:
    assert staged(repository) == (0, [])
    repository.write("untracked.yaml", BAD)
    repository.write("old.yaml", BAD + "# changed\n")
    assert staged(repository) == (0, [])
    repository.stage("deploy/a pod.yaml", BAD)
    status, found = staged(repository)
    assert (status, len(found)) == (1, 1)
    assert found[0].startswith("deploy/a pod.yaml:7 ")


def test_the_staged_content_counts_not_the_work_tree(repository: GitRepository) -> None:
    repository.stage("good-later.yaml", BAD)
    repository.write("good-later.yaml", GOOD)
    repository.stage("bad-later.yaml", "# a line more\n" + GOOD)
    repository.write("bad-later.yaml", BAD)
    repository.stage("gone-later.yaml", BAD)
    (repository.folder / "gone-later.yaml").unlink()
    status, found = staged(repository)
    assert status == 1
    assert [line.partition(" ")[0] for line in found] == ["gone-later.yaml:7", "good-later.yaml:7"]


def test_renames_deletions_and_intents(repository: GitRepository) -> None:
    repository.git("mv", "old.yaml", "new.yaml")
    repository.write("intended.yaml", BAD)
    repository.git("add", "--intent-to-add", "intended.yaml")
    assert [line.partition(":")[0] for line in staged(repository)[1]] == ["new.yaml"]
    repository.git("rm", "-q", "-f", "new.yaml")
    assert staged(repository) == (0, [])


def test_names_of_any_bytes(repository: GitRepository) -> None:
    for name in (b"a\xff b.yaml", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n.yaml", "-x\n.yaml"):
        repository.write(name, BAD)
    repository.git("add", ".")
    done = repository.gpuward("lint", "--staged", "--output=concise")
    assert done.returncode == 1
    for name in ("a\\udcff b.yaml:7", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n.yaml:7"):
        assert name in done.stdout
    assert "-x\\u000a.yaml:7" in done.stdout


def test_links_are_followed_inside_the_repository(repository: GitRepository) -> None:
    repository.stage("pod.txt", BAD)
    for name, target in (
        ("linked.yaml", "pod.txt"),
        ("sub/up.yaml", "../linked.yaml"),
        ("out.yaml", "/etc/hostname"),
        ("circle.yaml", "circle.yaml"),
    ):
        (repository.folder / name).parent.mkdir(exist_ok=True)
        (repository.folder / name).symlink_to(target)
    repository.git("add", ".")
    report = repository.gpuward("lint", "--staged").stdout
    assert report.count("error[visible-devices-env]") == 2
    assert "linked.yaml:7" in report
    assert "sub/up.yaml:7" in report
    for name in ("out.yaml", "circle.yaml"):
        assert f"not evaluated: {name}: a link that leads to no file of the repository" in report
    repository.git("commit", "-q", "--no-verify", "-m", "all")
    repository.stage("pod.txt", BAD + "# more\n")
    assert [line.partition(":")[0] for line in staged(repository)[1]] == [
        "linked.yaml",
        "sub/up.yaml",
    ]


def test_a_changed_link_on_the_way_counts(repository: GitRepository) -> None:
    repository.git("rm", "-q", "old.yaml")
    for name in ("a/p.txt", "b/p.txt"):
        repository.stage(name, BAD)
    for name, target in (("folder", "a"), ("x.yaml", "folder/p.txt")):
        (repository.folder / name).symlink_to(target)
    repository.git("add", ".")
    repository.git("commit", "-q", "--no-verify", "-m", "links")
    since = ("lint", "--changed-since=HEAD", "--output=concise", ".")
    assert not repository.gpuward(*since).stdout.startswith("x.yaml:7:")
    repository.stage("a/p.txt", BAD + "# more\n")
    assert staged(repository) == (1, ["x.yaml:7 error"])
    assert repository.gpuward(*since).stdout.startswith("x.yaml:7:")
    repository.git("reset", "-q", "--hard")
    (repository.folder / "folder").unlink()
    (repository.folder / "folder").symlink_to("b")
    repository.git("add", ".")
    assert staged(repository) == (1, ["x.yaml:7 error"])
    assert repository.gpuward(*since).stdout.startswith("x.yaml:7:")


def test_changed_submodules_are_named(repository: GitRepository, tmp_path: Path) -> None:
    other = GitRepository(tmp_path / "other")
    other.commit("pod.yaml", BAD)
    allowed = ("-c", "protocol.file.allow=always")
    repository.git(*allowed, "submodule", "add", "-q", str(other.folder), "deploy")
    assert "skipped: deploy: a submodule" in repository.gpuward("lint", "--staged").stdout
    repository.git("commit", "-q", "--no-verify", "-m", "module")
    since = ("lint", "--changed-since=HEAD", "--output=concise", "deploy")
    assert repository.gpuward(*since).returncode == 0
    GitRepository(repository.folder / "deploy").commit("more.yaml", GOOD)
    assert repository.gpuward(*since).stdout.startswith("deploy/pod.yaml:7:")


def test_the_first_commit_and_conflicts(tmp_path: Path, repository: GitRepository) -> None:
    first = GitRepository(tmp_path / "first")
    first.stage("pod.yaml", BAD)
    assert staged(first)[0] == 1
    repository.git("checkout", "-q", "-b", "other")
    repository.commit("old.yaml", GOOD)
    repository.git("checkout", "-q", "main")
    repository.commit("old.yaml", POD % "none")
    assert repository.run("git", "merge", "other").returncode == 1
    report = repository.gpuward("lint", "--staged")
    assert report.returncode == 3
    assert "old.yaml: a merge conflict that is not resolved" in report.stdout


def test_the_staged_policy_counts(repository: GitRepository) -> None:
    repository.stage("pod.yaml", BAD)
    repository.write("gpuward.yaml", LENIENT)
    assert staged(repository)[0] == 1
    repository.git("add", "gpuward.yaml")
    repository.write("gpuward.yaml", "broken")
    assert staged(repository)[0] == 0
    assert staged(repository, "--isolated")[0] == 1
    repository.stage("strict.yaml", POLICY)
    assert staged(repository, "--policy", "strict.yaml")[0] == 1
    repository.git("add", "gpuward.yaml")
    done = repository.gpuward("lint", "--staged")
    assert (done.returncode, done.stderr[:24]) == (2, "gpuward: gpuward.yaml:1:")


def test_isolated_ignores_the_policy_on_disk(repository: GitRepository) -> None:
    repository.write("gpuward.yaml", LENIENT)
    assert repository.gpuward("lint", "old.yaml").returncode == 0
    assert repository.gpuward("lint", "--isolated", "old.yaml").returncode == 1


def test_comments_and_kustomizations_are_the_staged_ones(repository: GitRepository) -> None:
    ignored = BAD.replace("all}]", "all}] # gpuward: ignore[visible-devices-env] reviewed")
    repository.stage("ignored.yaml", ignored)
    repository.write("ignored.yaml", BAD)
    assert staged(repository)[0] == 0

    def notes_about_the_patch() -> list[str]:
        lines = staged(repository, "--notes")[1]
        return [line for line in lines if line.startswith("patch.yaml:") and "note" in line]

    # A patch says nothing about placement; on disk it is no patch any more.
    repository.stage("patch.yaml", FIXABLE.replace("requests", "limits"))
    assert notes_about_the_patch() != []
    repository.stage("kustomization.yaml", "patches: [{path: patch.yaml}]\n")
    repository.write("kustomization.yaml", "")
    assert notes_about_the_patch() == []


def test_paths_restrict_what_is_judged(repository: GitRepository) -> None:
    for name in ("a/x.yaml", "a/b/y.yaml", "ab/z.yaml"):
        repository.stage(name, BAD)
    places = [line.partition(":")[0] for line in staged(repository, "a")[1]]
    assert places == ["a/b/y.yaml", "a/x.yaml"]
    assert [line.partition(":")[0] for line in staged(repository, "b", "../ab", folder="a")[1]] == [
        "b/y.yaml",
        "../ab/z.yaml",
    ]
    assert staged(repository, "--exclude=b", "--exclude=ab/z.yaml")[1] == ["a/x.yaml:7 error"]
    assert repository.gpuward("lint", "--staged", "--changed-since=HEAD").returncode == 2
    done = repository.gpuward("lint", "--staged", "/")
    assert (done.returncode, "outside of the repository" in done.stderr) == (2, True)


def test_outside_of_a_repository(tmp_path: Path, repository: GitRepository) -> None:
    (tmp_path / "empty").mkdir()
    repository.environment["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    done = repository.gpuward("lint", "--staged", folder="../empty")
    assert done.returncode == 2
    assert done.stderr.startswith("gpuward: git rev-parse: not a git repository")


def test_nothing_of_the_repository_executes(repository: GitRepository, tmp_path: Path) -> None:
    program = tmp_path / "program"
    mark = tmp_path / "executed"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv", "filter.x.smudge"):
        repository.git("config", key, str(program))
    hooks = repository.folder / ".git" / "hooks"
    for name in ("post-index-change", "fsmonitor-watchman", "query-watchman", "pre-commit"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    repository.write(".gitattributes", "* diff=x filter=x\n")
    repository.stage("pod.yaml", BAD)
    mark.unlink(missing_ok=True)
    assert staged(repository)[0] == 1
    assert not mark.exists()


def test_a_missing_object_is_not_fetched(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "executed"
    repository.stage("pod.yaml", BAD)
    name = repository.git("rev-parse", ":pod.yaml")
    (repository.folder / ".git/objects" / name[:2] / name[2:]).unlink()
    for key, value in (
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::sh -c touch% {mark}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
    ):
        repository.git("config", key, value)
    # As with a git that does not know the variable.
    monkeypatch.delitem(command.GIT_ENVIRONMENT, "GIT_NO_LAZY_FETCH")
    monkeypatch.chdir(repository.folder)
    with pytest.raises(GitError):
        command.git("cat-file", "blob", name)
    assert not mark.exists()


def test_a_replacement_hides_nothing(repository: GitRepository) -> None:
    repository.stage("pod.yaml", BAD)
    repository.stage("good.yaml", GOOD)
    bad, good = (repository.git("rev-parse", f":{name}.yaml") for name in ("pod", "good"))
    repository.git("replace", bad, good)
    assert staged(repository)[0] == 1


def test_it_works_in_a_linked_work_tree_and_leaves_submodules(
    repository: GitRepository, tmp_path: Path
) -> None:
    repository.git("worktree", "add", "-q", "../linked")
    linked = GitRepository(tmp_path / "linked")
    linked.stage("pod.yaml", BAD)
    assert (staged(linked)[0], staged(repository)[0]) == (1, 0)
    allowed = ("-c", "protocol.file.allow=always")
    repository.git(*allowed, "submodule", "add", "-q", str(tmp_path / "linked"), "module.yaml")
    assert "skipped: module.yaml: a submodule" in repository.gpuward("lint", "--staged").stdout
    inner = GitRepository(repository.folder / "module.yaml")
    inner.stage("pod.yaml", BAD)
    assert staged(inner)[0] == 1


def test_fixes_go_into_files_whose_content_is_staged(repository: GitRepository) -> None:
    repository.stage("pod.yaml", FIXABLE)
    repository.stage("partial.yaml", FIXABLE)
    repository.write("partial.yaml", FIXABLE + "# not staged\n")
    before = repository.git("ls-files", "--stage")
    done = repository.gpuward("fix", "--staged")
    assert done.returncode == 3
    assert "limits" in (repository.folder / "pod.yaml").read_text()
    assert (repository.folder / "partial.yaml").read_text() == FIXABLE + "# not staged\n"
    assert "partial.yaml: the file has changes that are not staged" in done.stdout
    assert "the fixes are not staged: review them, and `git add` them" in done.stderr
    assert repository.git("ls-files", "--stage") == before
    # The commit has to wait for `git add`, also if nothing else is wrong.
    repository.git("rm", "-q", "-f", "partial.yaml")
    repository.write("pod.yaml", FIXABLE)
    assert repository.gpuward("fix", "--staged").returncode == 1
    repository.git("add", ".")
    assert repository.gpuward("fix", "--staged").returncode == 0


@pytest.mark.parametrize("variable", ["GIT_LITERAL_PATHSPECS", "GIT_ICASE_PATHSPECS"])
def test_variables_of_editors_change_nothing(repository: GitRepository, variable: str) -> None:
    repository.stage("pod.yaml", BAD)
    repository.environment[variable] = "1"
    assert staged(repository)[0] == 1


def test_a_large_file_is_not_judged_and_the_next_one_is(repository: GitRepository) -> None:
    repository.stage("large.yaml", "# " + "x" * (10 << 20))
    repository.stage("pod.yaml", BAD)
    done = repository.gpuward("lint", "--staged")
    assert done.returncode == 3
    assert "large.yaml: larger than 10 MiB: split it into several files" in done.stdout
    assert "pod.yaml:7" in done.stdout
    assert os.path.getsize(repository.folder / "large.yaml") > 10 << 20


def test_a_git_lfs_pointer_is_not_evaluated(repository: GitRepository) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"
    older = pointer.replace("git-lfs.github.com", "hawser.github.com")
    texts = {"a.yaml": pointer, "b.json": pointer, "c.yml": f"\n {older}", "d.yaml": f"# {pointer}"}
    for name, text in texts.items():
        repository.stage(name, text)
    for arguments in (("--staged",), (".",), ("-",)):
        done = repository.gpuward("lint", "--exclude=old.yaml", *arguments, stdin=pointer)
        assert done.returncode == 3
        assert done.stdout.count("a Git LFS pointer: its content is not here") == (
            1 if arguments == ("-",) else 3
        )
