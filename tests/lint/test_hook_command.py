"""`gpuward hook`: the pre-commit hook in real repositories, and pushes to a real server."""

from __future__ import annotations

import os
import shlex
import sys
from collections import deque
from pathlib import Path

import pytest

from sources.git.command import GitError, git_records
from tests.testkit.git_repository import BAD, FIXABLE, GOOD, POD, GitRepository

FOREIGN = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def repository(tmp_path: Path, git: str) -> GitRepository:
    """A repository with one commit that has a bad pod, and the folder deploy."""
    assert git
    made = GitRepository(tmp_path / "it's a repository")
    made.commit("deploy/old.yaml", BAD)
    return made


def install(repository: GitRepository, *options: str, folder: str = ".") -> Path:
    """Install the hook; its path."""
    done = repository.gpuward("hook", "install", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    path, _, what = done.stdout.rpartition(": ")
    assert what == "written\n"
    return Path(path)


def commit(repository: GitRepository, *options: str, folder: str = ".") -> str:
    """Commit; why it is refused, or an empty text."""
    done = repository.run("git", "commit", "-qm", "x", *options, folder=folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_hook_judges_what_is_committed(repository: GitRepository) -> None:
    hook = install(repository, folder="deploy")
    assert hook == repository.folder / ".git" / "hooks" / "pre-commit"
    repository.stage("new.yaml", BAD)
    repository.write("new.yaml", GOOD)
    assert "error[visible-devices-env]" in commit(repository)
    # `git commit -a` and `git commit FILE` have an index of their own.
    assert commit(repository, "-a") == ""
    repository.write("new.yaml", BAD)
    repository.write("deploy/old.yaml", POD % "none")
    assert "new.yaml:7" in commit(repository, "-a", folder="deploy")
    assert commit(repository, "old.yaml", folder="deploy") == ""
    repository.stage("text.txt", "no manifest")
    done = repository.run("git", "commit", "-qm", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_hook_has_options_of_lint(repository: GitRepository) -> None:
    install(repository, "--", "--exclude", "it's/*")
    repository.stage("it's/new.yaml", BAD)
    assert commit(repository) == ""
    done = repository.gpuward("hook", "install", "--", "--no-such")
    assert (done.returncode, "--no-such" in done.stderr) == (2, True)
    assert repository.gpuward("hook", "uninstall", "--", "--notes").returncode == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--no-such",), "--no-such"),
        (("--profile", "gkee"), 'did you mean "gke"?'),
        (("--select", "zero-gpuu"), 'did you mean "zero-gpu"?'),
        (("--policy", "missing.yaml"), "missing.yaml: no such file or directory"),
        (("--changed-since", "HEAD"), "--changed-since"),
        (("--also", "shell"), "leave --staged out"),
        (("-",), "leave - out"),
    ],
)
def test_options_that_every_commit_would_refuse_are_refused_at_once(
    repository: GitRepository, options: tuple[str, ...], error: str
) -> None:
    done = repository.gpuward("hook", "install", "--", *options)
    assert (done.returncode, error in done.stderr) == (2, True), done.stderr
    assert repository.gpuward("hook", "uninstall").stdout == "there is no hook of gpuward\n"


def test_the_hook_can_fix(repository: GitRepository) -> None:
    install(repository, "--fix")
    repository.stage("new.yaml", FIXABLE)
    assert "the fixes are not staged" in commit(repository)
    repository.git("add", "new.yaml")
    assert commit(repository) == ""
    assert "limits" in repository.git("show", "HEAD:new.yaml")


def test_the_hook_survives_the_python_that_wrote_it(repository: GitRepository) -> None:
    hook = install(repository)
    script = hook.read_text().replace(shlex.quote(sys.executable), "/no/such/python")
    assert script != hook.read_text()
    hook.write_text(script)
    command = repository.folder / "bin" / "gpuward"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m gpuward "$@"\n')
    command.chmod(0o755)
    repository.environment["PATH"] = f"{command.parent}:{os.environ['PATH']}"
    repository.stage("new.yaml", BAD)
    assert "error[visible-devices-env]" in commit(repository)


def test_a_foreign_hook_stays(repository: GitRepository) -> None:
    hook = repository.folder / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(FOREIGN)
    done = repository.gpuward("hook", "install")
    assert (done.returncode, hook.read_text()) == (1, FOREIGN)
    line = done.stderr.splitlines()[-1].strip()
    assert line == "gpuward lint --staged --quiet || exit $?"
    assert repository.gpuward("hook", "uninstall").returncode == 1
    assert hook.read_text() == FOREIGN
    hook.unlink()
    hook.symlink_to(repository.folder / "nowhere")
    assert repository.gpuward("hook", "install").returncode == 1


def test_a_hook_of_gpuward_is_replaced_and_removed(repository: GitRepository) -> None:
    install(repository, "--fix")
    hook = install(repository)
    assert "fix" not in hook.read_text()
    assert repository.gpuward("hook", "uninstall").stdout == f"{hook}: removed\n"
    assert not hook.exists()
    done = repository.gpuward("hook", "uninstall")
    assert (done.returncode, done.stdout) == (0, "there is no hook of gpuward\n")


@pytest.mark.parametrize("where", [".githooks", "absolute", "~/hooks"])
def test_core_hooks_path_is_honoured(repository: GitRepository, tmp_path: Path, where: str) -> None:
    wanted = {
        "absolute": tmp_path / "elsewhere",
        "~/hooks": repository.folder / "hooks",  # the home of the test
        ".githooks": repository.folder / ".githooks",
    }[where]
    repository.git("config", "core.hooksPath", str(wanted) if where == "absolute" else where)
    assert install(repository, folder="deploy") == wanted / "pre-commit"
    repository.stage("new.yaml", BAD)
    assert "error[visible-devices-env]" in commit(repository)


def test_work_trees_and_submodules(repository: GitRepository, tmp_path: Path) -> None:
    repository.git("worktree", "add", "-q", "../linked")
    linked = GitRepository(tmp_path / "linked")
    install(linked)
    for one in (repository, linked):
        one.stage("new.yaml", BAD)
        assert "new.yaml:7" in commit(one)
    allowed = ("-c", "protocol.file.allow=always")
    repository.git(*allowed, "submodule", "add", "-q", str(linked.folder), "module")
    inner = GitRepository(repository.folder / "module")
    assert install(inner) == repository.folder / ".git" / "modules" / "module" / "hooks/pre-commit"
    inner.stage("inner.yaml", BAD)
    assert "inner.yaml:7" in commit(inner)


def test_outside_of_a_repository(repository: GitRepository) -> None:
    repository.environment["GIT_CEILING_DIRECTORIES"] = str(repository.folder.parent)
    done = repository.gpuward("hook", "install", folder="..")
    assert (done.returncode, done.stderr[:43]) == (
        2,
        "gpuward: git rev-parse: not a git repositor",
    )


class Server:
    """A bare repository whose pre-receive hook is gpuward, and a clone of it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.bare = GitRepository(folder / "server.git", "--bare")
        hook = self.bare.folder / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        words = [sys.executable, "-P", "-m", "gpuward", "hook", "pre-receive", *options]
        hook.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        hook.chmod(0o755)
        self.clone = GitRepository(folder / "clone")
        self.clone.git("remote", "add", "origin", str(self.bare.folder))

    def push(self, *refs: str) -> str:
        """Push; why it is refused, or an empty text."""
        done = self.clone.run("git", "push", "-q", "origin", *refs)
        assert "Traceback" not in done.stderr
        return "" if done.returncode == 0 else done.stderr


def test_a_push_is_judged_by_what_it_changes(tmp_path: Path, git: str) -> None:
    assert git
    server = Server(tmp_path)
    clone = server.clone
    clone.commit("old.yaml", BAD)
    refused = server.push("main")
    assert "remote: gpuward: refs/heads/main:" in refused
    assert "error[visible-devices-env]" in refused
    assert server.bare.run("git", "rev-parse", "-q", "--verify", "main").returncode == 1
    # A user who changes another file need not repair what is in the repository already.
    hook = server.bare.folder / "hooks" / "pre-receive"
    hook.chmod(0o644)
    assert server.push("main") == ""
    hook.chmod(0o755)
    clone.commit("new.yaml", GOOD)
    assert server.push("main") == ""
    clone.git("checkout", "-q", "-b", "topic")
    clone.commit("gpuward.yaml", "apiVersion: gpuward.io/v1\nkind: Policy\n"
                 "rules: {visible-devices-env: {action: warn}}\n")  # fmt: skip
    assert server.push("topic") == ""
    clone.commit("sub/topic.yaml", BAD)
    refused = server.push("topic", "topic:refs/tags/v1", "main:refs/heads/copy")
    assert refused.count("sub/topic.yaml:7") == 2
    assert "gpuward: refs/tags/v1:" in refused
    assert "old.yaml" not in refused
    clone.git("rm", "-q", "sub/topic.yaml")
    clone.git("commit", "-qm", "removed")
    assert server.push("topic", "main:refs/heads/copy") == ""
    assert server.push(":refs/heads/copy") == ""
    blob = clone.git("rev-parse", "HEAD:new.yaml")
    assert server.push(f"{blob}:refs/tags/file") == ""


def test_a_push_hides_nothing_in_the_folder_of_a_tool(tmp_path: Path, git: str) -> None:
    assert git
    server = Server(tmp_path)
    server.clone.commit(".cache/hidden.yaml", BAD)
    assert ".cache/hidden.yaml:7" in server.push("main")


def test_the_policy_of_the_server_counts(tmp_path: Path, git: str) -> None:
    assert git
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: gpuward.io/v1\nkind: Policy\n"
                      "rules: {visible-devices-env: {action: warn}}\n")  # fmt: skip
    server = Server(tmp_path, "--policy", str(policy))
    server.clone.commit("pod.yaml", BAD)
    assert server.push("main") == ""
    policy.write_text("broken")
    server.clone.commit("pod.yaml", BAD + "# more\n")
    assert "policy.yaml:1:1" in server.push("main")


def test_a_hostile_push_is_refused(tmp_path: Path, git: str) -> None:
    """A tree that no `git add` makes: its names lead out of the repository."""
    assert git
    server = Server(tmp_path)
    clone = server.clone
    (tmp_path / "secret.yaml").write_text(BAD)
    blob = clone.run("git", "hash-object", "-w", "--stdin", stdin=GOOD).stdout.strip()
    listing = f"100644 blob {blob}\tsecret.yaml"
    for _ in range(2):
        tree = clone.run("git", "mktree", stdin=listing).stdout.strip()
        listing = f"040000 tree {tree}\t.."
    tree = clone.run("git", "mktree", stdin=listing).stdout.strip()
    assert "secret.yaml: no such file" in server.push(commit_of(clone, tree))


def test_what_a_link_leads_to_is_judged(tmp_path: Path, git: str) -> None:
    """The link stays as it is, and the file that it leads to is no manifest by its name."""
    assert git
    server = Server(tmp_path)
    clone = server.clone
    (clone.folder / "pod.yaml").symlink_to("text")
    clone.git("add", "pod.yaml")
    clone.commit("text", GOOD)
    assert server.push("main") == ""
    clone.commit("text", BAD)
    assert "--> pod.yaml:" in server.push("main")


def test_a_replacement_hides_nothing(tmp_path: Path, git: str) -> None:
    """Git shows the replacement to a program that does not ask it for the real object."""
    assert git
    server = Server(tmp_path)
    clone = server.clone
    clone.commit("pod.yaml", GOOD)
    assert server.push("main") == ""
    good = clone.git("rev-parse", "HEAD")
    clone.commit("pod.yaml", BAD)
    bad = clone.git("rev-parse", "HEAD")
    clone.git("replace", bad, good)
    assert server.push(f"refs/replace/{bad}") == ""
    assert "--> pod.yaml:" in server.push("+main")


def test_a_tree_with_billions_of_files_is_not_read_to_its_end(
    tmp_path: Path, git: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git
    clone = GitRepository(tmp_path / "clone")
    blob = clone.run("git", "hash-object", "-w", "--stdin", stdin=GOOD).stdout.strip()
    tree = clone.run("git", "mktree", stdin=f"100644 blob {blob}\tf.yaml\n").stdout.strip()
    for _ in range(8):
        listing = "".join(f"040000 tree {tree}\t{number}\n" for number in range(20))
        tree = clone.run("git", "mktree", stdin=listing).stdout.strip()
    monkeypatch.chdir(clone.folder)
    with pytest.raises(GitError, match="lists more than 1 MiB of names"):
        deque(git_records("ls-tree", "-r", "-z", tree, limit=1 << 20), maxlen=0)


def test_a_push_that_takes_too_long_is_refused(tmp_path: Path, git: str) -> None:
    """Git never comes to the end of a tree of 10 ** 15 empty folders, and never lists anything."""
    assert git
    server = Server(tmp_path, "--timeout", "2")
    clone = server.clone
    tree = clone.run("git", "mktree").stdout.strip()
    for _ in range(15):
        listing = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
        tree = clone.run("git", "mktree", stdin=listing).stdout.strip()
    refused = server.push(commit_of(clone, tree))
    assert (
        "refs/heads/main: not evaluated: evaluating this push took more than 2 seconds" in refused
    )
    assert "raise --timeout in the server's hook" in refused


def commit_of(repository: GitRepository, tree: str) -> str:
    """A commit of the tree, as the main branch to push."""
    return repository.git("commit-tree", "-m", "x", tree) + ":refs/heads/main"


def test_what_no_server_writes_is_wrong_usage(tmp_path: Path, git: str) -> None:
    assert git
    bare = GitRepository(tmp_path / "server.git", "--bare")
    bare.environment["GIT_DIR"] = "."
    for line in ("x", "0 1 refs/heads/main", f"{'0' * 40} --output=x refs/heads/main"):
        done = bare.gpuward("hook", "pre-receive", stdin=line)
        assert (done.returncode, "OLD NEW REF" in done.stderr) == (2, True)
    many = f"{'0' * 40} {'0' * 40} refs/heads/x\n" * 101
    assert "more than 100 refs" in bare.gpuward("hook", "pre-receive", stdin=many).stderr
    unknown = f"{'0' * 40} {'1' * 40} refs/heads/x\n"
    assert bare.gpuward("hook", "pre-receive", stdin=unknown).returncode == 3
    del bare.environment["GIT_DIR"]
    assert bare.gpuward("hook", "pre-receive", stdin=unknown).returncode == 2
