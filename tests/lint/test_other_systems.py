"""The differences of Windows and macOS: code pages, drives, line breaks, how processes start.

Each is simulated here. On those systems themselves, the same tests meet the real thing.
"""

from __future__ import annotations

import codecs
import datetime
import multiprocessing
import ntpath
import os
import posixpath
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lint import processes
from lint.hooks import pre_commit
from lint.linter import Linter
from policies.loading import PolicyError, default_policy, load_policy
from rules.profile.context import Context
from sources.containment import is_inside, relative_path_inside, root_and_parts
from sources.git import changes, trees
from sources.git.trees import BlobReader, GitTree, TreeEntry
from sources.paths import inputs
from sources.policy_file import OnePolicy
from sources.sources import UsageError
from tests.lint.test_many_files import OWNER, POD
from tests.testkit.git_repository import BAD, FIXABLE, GitRepository
from tests.testkit.lint_command import LintCommand
from tests.testkit.missing_packages import run_without
from tests.testkit.paths import ROOT

NAME = "Ω, ä and 😀.yaml"


@pytest.fixture
def odd(command: LintCommand) -> LintCommand:
    """A folder with a bad pod, in a file whose name few code pages can write."""
    command.write(NAME, BAD)
    return command


def lint(command: LintCommand, code_page: str, *arguments: str) -> bytes:
    """Return what `gpuward lint` writes into a pipe on a system with this code page."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lint", *arguments],
        cwd=command.folder,
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": code_page,
            "PYTHONUTF8": "0",
        },
    )
    assert done.returncode == 1, done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.parametrize("code_page", ["cp437", "cp1252"])
@pytest.mark.parametrize("form", ["text", "concise", "html", "markdown"])
def test_a_pipe_gets_utf_8_whatever_the_code_page(
    odd: LintCommand, code_page: str, form: str
) -> None:
    text = lint(odd, code_page, "-o", form, ".").decode("utf-8")
    assert NAME in text
    assert "\r" not in text


def test_a_diff_in_a_pipe_keeps_line_breaks_and_characters(odd: LintCommand) -> None:
    (odd.folder / NAME).write_bytes(FIXABLE.replace("\n", "\r\n").encode())
    done = odd.run_raw("fix", "--diff", ".", stdin=b"")
    assert f"--- {NAME}\n".encode() in done.stdout
    assert b"limits" in done.stdout
    assert b"\r\r\n" not in done.stdout
    (odd.folder / "fixes.diff").write_bytes(done.stdout)
    applied = subprocess.run(["git", "apply", "-p0", "fixes.diff"], cwd=odd.folder, check=False)
    assert applied.returncode == 0
    assert b"limits" in (odd.folder / NAME).read_bytes()


def test_a_terminal_shows_escapes_for_what_it_lacks(odd: LintCommand) -> None:
    program = (
        "import sys\n"
        "from gpuward.__main__ import main\n"
        "import io\n"
        "class Terminal(io.TextIOWrapper):\n"
        "    def isatty(self): return True\n"
        "sys.stdout = Terminal(sys.stdout.buffer, encoding='cp437')\n"
        "status = main(['lint', '--color=never', '.'])\n"
        "sys.stdout.flush()\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=odd.folder,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done.stderr
    assert "Ω, ä and \\U0001f600.yaml:" in done.stdout.decode("cp437")


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("C:\\Users\\me\\repo\\a\\b.yaml", "C:\\Users\\me\\repo", "a/b.yaml"),
        ("c:\\users\\ME\\repo\\a.yaml", "C:/Users/me/repo", "a.yaml"),
        ("C:\\Users\\me\\repo", "C:\\Users\\me\\repo", ""),
        ("C:\\Users\\me\\repository", "C:\\Users\\me\\repo", None),
        ("D:\\repo\\a.yaml", "C:\\repo", None),
        ("\\\\server\\share\\a.yaml", "C:\\repo", None),
        ("C:\\a.yaml", "C:\\", "a.yaml"),
    ],
)
def test_paths_of_windows_are_in_their_folder(path: str, folder: str, expected: str | None) -> None:
    assert is_inside(path, folder, ntpath) is (expected is not None)
    assert relative_path_inside(path, folder, ntpath) == expected


def test_case_counts_where_it_does_on_disk() -> None:
    assert not is_inside("/Repo/a", "/repo", posixpath)
    assert relative_path_inside("/repo/a/b", "/repo", posixpath) == "a/b"
    assert relative_path_inside("/a", "/", posixpath) == "a"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("C:\\Users\\me", ("C:\\", ["Users", "me"])),
        ("C:/Users/me", ("C:\\", ["Users", "me"])),
        ("\\\\?\\C:\\Users", ("C:\\", ["Users"])),
        ("..\\base", ("", ["..", "base"])),
    ],
)
def test_parts_of_paths_of_windows(path: str, expected: tuple[str, list[str]]) -> None:
    assert root_and_parts(path, ntpath) == expected


class Windows:
    """The module `os` as it is on Windows, in the folder `here`."""

    path = ntpath
    sep, altsep, linesep, devnull, curdir = "\\", "/", "\r\n", "nul", "."
    fsdecode, fsencode = staticmethod(os.fsdecode), staticmethod(os.fsencode)

    def __init__(self, here: str) -> None:
        self.here = here

    def getcwd(self) -> str:
        """The working folder."""
        return self.here


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    """The modules about Git, on Windows, in a folder of a repository that git writes with /."""
    made = Windows("C:\\Users\\me\\repo\\deploy")
    for module in (changes, trees):
        monkeypatch.setattr(module, "os", made)
    monkeypatch.setattr(ntpath, "realpath", ntpath.normpath)
    monkeypatch.setattr("sources.containment.os", made)
    functions: dict[str, Callable[..., Any]] = {
        "is_inside": is_inside,
        "relative_path_inside": relative_path_inside,
        "root_and_parts": root_and_parts,
    }
    for name, function in functions.items():
        for module in (changes, trees):
            monkeypatch.setattr(module, name, _on_windows(function), raising=False)
    return made


def _on_windows(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *paths: function(*paths, ntpath)


def test_changed_files_are_found_on_windows(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert windows.sep == "\\"
    answers = {
        "diff": [b"deploy/a.yaml", b"other/b.yaml"],
        "ls-files": [b"deploy/new/"],
        "config": [],
    }

    def records(*arguments: str, **_: object) -> list[bytes]:
        return next(answers[word] for word in arguments if word in answers)

    monkeypatch.setattr(changes, "git_records", records)
    monkeypatch.setattr(changes, "git", lambda *_: b"")
    monkeypatch.setattr(changes, "git_line", lambda *_: "0" * 40)
    root = ntpath.normpath("C:/Users/me/repo")
    monkeypatch.setattr(changes, "repository_root", lambda: root)
    changed = changes.changed_since("main", ["C:\\Users\\me\\repo\\deploy"])
    assert changed.is_changed("a.yaml")
    assert changed.is_changed("..\\other\\b.yaml")
    assert changed.is_changed("C:\\Users\\me\\repo\\deploy\\a.yaml")
    assert changed.is_changed("new\\c.yaml")
    assert not changed.is_changed("b.yaml")
    with pytest.raises(UsageError, match="outside of the repository"):
        changes.changed_since("main", ["D:\\elsewhere"])


def test_staged_files_are_found_on_windows(windows: Windows) -> None:
    assert windows.getcwd().endswith("deploy")
    entries = {"deploy/a.yaml": TreeEntry("100644", "1"), "base/b.yaml": TreeEntry("100644", "2")}
    tree = GitTree("C:\\Users\\me\\repo", entries, BlobReader())
    assert tree.is_file("a.yaml")
    assert tree.path_without_links("..\\base\\b.yaml") == "base/b.yaml"
    assert tree.exists("C:\\users\\me\\repo\\base\\b.yaml".replace("users", "Users"))
    assert tree.path_without_links("D:\\b.yaml") is None


def test_a_hook_is_a_shell_script_also_where_lines_end_otherwise(
    tmp_path: Path, git: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git
    repository = GitRepository(tmp_path / "repository")
    monkeypatch.chdir(repository.folder)
    # Python's own implementation of text files asks `os` for the line break.
    monkeypatch.setattr(os, "linesep", "\r\n")
    fake = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})
    fake.fdopen = import_module("_pyio").open
    monkeypatch.setattr(pre_commit, "os", fake)
    hook = pre_commit.install(["lint", "--staged"])
    assert b"\r" not in Path(hook).read_bytes()


@pytest.fixture
def crlf(tmp_path: Path, git: str) -> GitRepository:
    """A repository as Git for Windows makes it: line breaks are CR and LF on disk, LF in Git."""
    assert git
    made = GitRepository(tmp_path / "repository")
    made.git("config", "core.autocrlf", "true")
    made.commit("README", "text\n")
    return made


def test_staged_files_with_other_line_breaks_on_disk_are_fixed(crlf: GitRepository) -> None:
    crlf.stage("pod.yaml", FIXABLE.replace("\n", "\r\n"))
    assert "\r" not in crlf.git("show", ":pod.yaml")
    done = crlf.gpuward("fix", "--staged")
    assert "not staged: `git add`" not in done.stdout
    assert "not fixed" not in done.stdout + done.stderr
    content = (crlf.folder / "pod.yaml").read_bytes()
    assert b"limits" in content
    assert content.count(b"\r\n") == content.count(b"\n")
    crlf.git("add", "pod.yaml")
    assert crlf.gpuward("fix", "--staged").returncode == 0


def test_other_changes_that_are_not_staged_still_prevent_a_fix(crlf: GitRepository) -> None:
    crlf.stage("pod.yaml", FIXABLE.replace("\n", "\r\n"))
    more = FIXABLE.replace("\n", "\r\n") + "# more\r\n"
    crlf.write("pod.yaml", more)
    done = crlf.gpuward("fix", "--staged")
    assert "changes that are not staged" in done.stdout
    assert (crlf.folder / "pod.yaml").read_bytes() == more.encode()


def test_line_breaks_that_the_user_changed_are_a_change(tmp_path: Path, git: str) -> None:
    assert git
    repository = GitRepository(tmp_path / "repository")
    repository.stage("pod.yaml", FIXABLE)
    repository.write("pod.yaml", FIXABLE.replace("\n", "\r\n"))
    done = repository.gpuward("fix", "--staged")
    assert "changes that are not staged" in done.stdout


def test_without_libyaml_an_error_says_what_to_install() -> None:
    done = run_without("yaml._yaml", "lint", "examples")
    assert done.returncode == 2
    assert "gpuward lint needs PyYAML's extension for libyaml" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF16_LE + BAD.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + BAD.encode("utf-16-be"),
        BAD.encode("utf-16-le"),
    ],
)
def test_utf_16_is_called_by_its_name(command: LintCommand, content: bytes) -> None:
    file = command.folder / "pod.yaml"
    file.write_bytes(content)
    outcome = command(".")
    assert outcome.status == 3
    assert "UTF-16, as `>` of Windows PowerShell writes it" in outcome.out
    with pytest.raises(PolicyError, match="UTF-16"):
        load_policy(content, str(file))
    piped = command.run_raw("lint", "-", stdin=content)
    assert b"UTF-16" in piped.stdout


def test_what_git_crypt_has_encrypted_is_called_by_its_name(command: LintCommand) -> None:
    (command.folder / "secret.yaml").write_bytes(b"\0GITCRYPT\0" + bytes(range(256)))
    done = command(".")
    assert done.status == 3
    assert "secret.yaml: encrypted by git-crypt: git-crypt unlock decrypts it" in done.out


def test_processes_that_are_no_copies_report_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        text = POD.format(n=n, value="all" if n % 3 else "void", owner=OWNER)
        (tmp_path / f"{n:03}.yaml").write_text(text, encoding="utf-8")
    found = {}
    for platform, method in (("linux", "fork"), ("darwin", "spawn")):
        monkeypatch.setattr(sys, "platform", platform)
        assert processes.start_method() == method
        if method not in multiprocessing.get_all_start_methods():
            continue
        linter = Linter(OnePolicy(default_policy()), Context(datetime.date(2026, 1, 1)))
        processes.evaluate_many(linter, [*inputs([str(tmp_path)])], 2)
        linter.finish()
        assert not linter.results.not_evaluated
        found[method] = [(f.file, f.finding) for f in linter.results.findings]
    assert len(found["spawn"]) > 50
    assert len({repr(findings) for findings in found.values()}) == 1
