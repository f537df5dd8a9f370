"""Tests of the bounds within which `--render` runs programs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from sources.rendering.programs import ProgramError, find_program, run_program, stop_all
from tests.testkit.skipping import skip_missing


def shell(script: str, **options: float) -> str:
    return run_program(["/bin/sh", "-c", script], **options)


def test_a_program_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(ProgramError, match=r"sh was stopped: it took more than 0.5 seconds"):
        shell(f"/bin/sleep 1000 & echo $! > {file}; wait", max_seconds=0.5)
    pid = int(file.read_text())
    while Path(f"/proc/{pid}").exists() and "Z" not in state(pid):
        time.sleep(0.01)  # until the kernel has ended it; the test run ends it otherwise


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_all_programs_of_a_run_have_a_common_bound() -> None:
    with pytest.raises(ProgramError, match=r"it took more than 0.1 seconds"):
        shell("/bin/sleep 1000", deadline=time.monotonic() - 1)


def test_a_program_that_closes_its_output_and_stays_is_stopped() -> None:
    with pytest.raises(ProgramError, match="it does not end"):
        shell("exec >&- 2>&-; /bin/sleep 1000", max_seconds=0.5)


def test_the_output_is_bounded_and_the_errors_too() -> None:
    with pytest.raises(ProgramError, match="it writes more than 10 MiB"):
        shell("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
    with pytest.raises(ProgramError, match="a reason") as caught:
        shell("echo a reason >&2; /usr/bin/head -c 1000000 /dev/zero >&2; exit 3")
    assert len(str(caught.value)) < 200_000


def test_it_gets_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.setenv("KUBECONFIG", "/home/user/.kube/config")
    monkeypatch.setenv("HELM_PLUGINS", "/home/user/plugins")
    given = dict(line.partition("=")[::2] for line in shell("/usr/bin/env").splitlines())
    assert "TOKEN" not in given
    assert given["KUBECONFIG"] == os.devnull
    assert given["HELM_PLUGINS"] == given["HOME"] == given["PATH"]
    assert not Path(given["HOME"]).exists()
    assert given["HTTPS_PROXY"] == given["http_proxy"] == "http://127.0.0.1:9"
    assert shell("read line || echo nothing") == "nothing\n"


def test_it_gets_no_network() -> None:
    devices = shell("/bin/cat /proc/net/dev").splitlines()[2:]
    if not can_unshare():
        skip_missing("this system forbids network namespaces")
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


def can_unshare() -> bool:
    command = ["unshare", "--map-root-user", "--net", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_what_it_writes_must_be_text() -> None:
    with pytest.raises(ProgramError, match=r"not UTF-8 \(byte 1\)"):
        shell(r"printf 'a\377'")


def test_relative_folders_in_path_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "helm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f".:{tmp_path}/none"):
        monkeypatch.setenv("PATH", path)
        with pytest.raises(ProgramError, match="helm is not in PATH"):
            find_program("helm")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("none", "helm") == str(program)


def test_a_program_without_memory_is_named_in_one_line() -> None:
    with pytest.raises(ProgramError, match=r"^sh was stopped: it needs more than 4 GiB of memory$"):
        shell("echo 'fatal error: runtime: out of memory' >&2; echo 'goroutine 1' >&2; exit 2")


def test_all_programs_can_be_stopped_at_once() -> None:
    results: list[str] = []

    def wait() -> None:
        try:
            shell("/bin/sleep 1000")
        except ProgramError as error:
            results.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stop_all()  # a program may not have begun yet
        time.sleep(0.01)
    assert len(results) == 2
