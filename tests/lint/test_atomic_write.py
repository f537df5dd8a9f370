"""Tests of writing files: all or nothing, whatever goes wrong, and with the attributes they had."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lint.fix.fixer import FixedText, WriteError
from lint.fix.output import write_file
from sources.sources import Source
from tests.testkit.fix_texts import FIXED, REQUEST
from tests.testkit.lint_command import LintCommand
from tests.testkit.paths import ROOT


def text(file: Path, old: str = "old\r\n", new: str = "new\r\n") -> FixedText:
    return FixedText(Source(str(file), old), [("", ""), (old, new)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_bytes(b"old\r\n")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_has_the_new_text_and_nothing_else_is_left(file: Path) -> None:
    assert write_file(text(file))
    assert file.read_bytes() == b"new\r\n"
    assert names(file.parent) == ["pod.yaml"]


def test_mode_owner_and_attributes_stay(file: Path) -> None:
    file.chmod(0o2750)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
        file.chmod(0o2750)
    has_attributes = hasattr(os, "setxattr")
    try:
        os.setxattr(file, "user.note", b"kept")
    except OSError:  # not on every file system
        has_attributes = False
    before = file.stat()
    write_file(text(file))
    after = file.stat()
    assert stat.S_IMODE(after.st_mode) == 0o2750
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    if has_attributes:
        assert os.getxattr(file, "user.note") == b"kept"


def become_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def become_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda file: file.chmod(0o444), "the file is read-only"),
        (lambda file: file.write_text("changed"), "the file has changed meanwhile"),
        (Path.unlink, "no such file"),
        (become_pipe, "not a regular file"),
        (become_loop, "symbolic links"),
    ],
)
def test_a_file_that_cannot_be_written_stays(
    file: Path, prepare: Callable[[Path], object], reason: str
) -> None:
    prepare(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(WriteError, match=reason):
        write_file(text(file))
    assert (file.read_bytes() if file.is_file() else None) == before
    assert names(file.parent) in (["pod.yaml"], [])


def test_a_link_is_followed_only_inside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    for name in ("inside.yaml", "../outside.yaml"):
        Path(name).write_bytes(b"old\r\n")
    Path("sub/a.yaml").symlink_to("../inside.yaml")
    Path("sub/b.yaml").symlink_to("../../outside.yaml")
    write_file(text(Path("sub/a.yaml")))
    assert Path("sub/a.yaml").is_symlink()
    assert Path("inside.yaml").read_bytes() == b"new\r\n"
    with pytest.raises(WriteError, match="leads out of"):
        write_file(text(Path("sub/b.yaml")))
    assert Path("../outside.yaml").read_bytes() == b"old\r\n"


@pytest.mark.parametrize("function", ["fchmod", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_no_other(
    file: Path, function: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else WriteError):
        write_file(text(file))
    assert file.read_bytes() == b"old\r\n"
    assert names(file.parent) == ["pod.yaml"]


@pytest.mark.parametrize("function", ["fchmod", "fsync", "replace"])
def test_a_killed_process_leaves_the_old_file(file: Path, function: str) -> None:
    """Before the renaming the file is the old one; what is left beside it is not linted."""
    program = (
        "import os, signal\n"
        "from tests.lint.test_atomic_write import text, write_file, Path\n"
        f"os.{function} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_file(text(Path({str(file)!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert file.read_bytes() == b"old\r\n"
    assert all(name == "pod.yaml" or name.startswith(".gpuward-") for name in names(file.parent))


def test_a_full_disk_is_reported_and_loses_nothing(command: LintCommand) -> None:
    """A limit on the size of files stands for the disk: the system refuses the same call."""
    file = command.write("pod.yaml", REQUEST)
    program = (
        "import resource, signal, sys\n"
        "from gpuward.__main__ import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))\n"
        "sys.exit(main(['fix', 'pod.yaml']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=command.folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert "not written: pod.yaml: file too large\n" in done.stdout
    assert "error[request-only]" in done.stdout
    assert file.read_text() == REQUEST
    assert names(command.folder) == [".git", "pod.yaml"]


def test_other_files_are_written_if_one_cannot_be(command: LintCommand) -> None:
    read_only, other = command.write("a.yaml", REQUEST), command.write("b.yaml", REQUEST)
    read_only.chmod(0o444)
    outcome = command.run("fix", ".")
    assert outcome.status == 3
    assert "not written: a.yaml: the file is read-only\n" in outcome.out
    assert "fixed: b.yaml: request-only\n" in outcome.out
    assert (read_only.read_text(), other.read_text()) == (REQUEST, FIXED)


def test_a_loop_of_links_is_named(command: LintCommand) -> None:
    (command.folder / "a.yaml").symlink_to("b.yaml")
    (command.folder / "b.yaml").symlink_to("a.yaml")
    outcome = command.run("fix", ".")
    assert outcome.status == 3
    assert "a.yaml: too many levels of symbolic links" in outcome.out


def test_a_folder_that_cannot_be_synchronised_fails_no_write(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", only_files)
    assert write_file(text(file))
    assert file.read_bytes() == b"new\r\n"


def test_an_interrupt_after_the_renaming_stays_an_interrupt(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def interrupted(source: str, target: str) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(text(file))
