"""Errors that every gpuward command reports in the same way."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import pytest

from gpuward.__main__ import main
from gpuward.commands import COMMANDS
from gpuward.parsers import command_parser
from tests.testkit.missing_packages import run_without
from tests.testkit.paths import ROOT

CERTS_RUN = ["certs", "run", "--mutating-configuration", "x"]
for _option in ("namespace", "service", "headless-service", "secret", "ca-secret", "lease"):
    CERTS_RUN += [f"--{_option}", "x"]


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("aiohttp", ["serve", "--dev"], "'gpuward[webhook]'"),
        ("aiohttp.web", ["serve", "--dev"], "'gpuward[webhook]'"),
        ("cryptography", ["certs", "check", "."], "'gpuward[certs]'"),
        ("structlog", CERTS_RUN, "'gpuward[certs]'"),
        ("kubernetes", CERTS_RUN, "'gpuward[certs]'"),
        ("kubernetes", ["audit"], "'gpuward[cluster]'"),
        ("yaml", ["lint", "examples"], "gpuward"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    module: str, arguments: list[str], extra: str
) -> None:
    done = run_without(module, *arguments)
    package = module.partition(".")[0]
    hint = f"`pip install {extra}`"
    error = f"gpuward {arguments[0]} needs the package {package}: {hint}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


@pytest.mark.parametrize(
    ("module", "command"),
    [("aiohttp", "serve"), ("aiohttp", "console"), ("structlog", "inventory")],
)
def test_help_needs_no_extra(module: str, command: str) -> None:
    done = run_without(module, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: gpuward {command}")


COMMANDS_WITH_RULES = [
    *("audit", "conformance", "console", "doctor", "gpus", "init", "modes", "serve", "why"),
]


@pytest.mark.parametrize("module", ["rules.catalog.index", "yaml"])
@pytest.mark.parametrize("command", COMMANDS_WITH_RULES)
def test_help_loads_no_rules_and_no_reader_of_yaml(command: str, module: str) -> None:
    done = run_without(module, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "installer"),
    [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install")],
)
def test_a_missing_package_is_installed_by_the_program_that_installed_gpuward(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
    installer: str,
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda *_: None)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "cluster.api.connection", raising=False)
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err.endswith(f": `{installer} 'gpuward[cluster]'`\n")


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"url": "file:///home/a%20b/gpuward", "dir_info": {}}, "/home/a b/gpuward[cluster]"),
        (
            {"url": "file:///tmp/gpuward.whl", "archive_info": {}},
            "gpuward[cluster] @ file:///tmp/gpuward.whl",
        ),
        (
            {
                "url": "https://git.example.com/gpuward",
                "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "4f2c"},
            },
            "gpuward[cluster] @ git+https://git.example.com/gpuward@4f2c",
        ),
        (
            {
                "url": "ssh://git@git.example.com/mirrors",
                "vcs_info": {"vcs": "git", "commit_id": "4f2c"},
                "subdirectory": "gpuward",
            },
            "gpuward[cluster] @ git+ssh://git@git.example.com/mirrors@4f2c#subdirectory=gpuward",
        ),
        ({}, "gpuward[cluster]"),
    ],
    ids=["a clone", "a wheel", "a repository", "a folder of a repository", "not said"],
)
@pytest.mark.skipif(os.name != "posix", reason="paths of Windows are others")
def test_a_missing_package_is_installed_from_where_gpuward_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    origin: dict[str, Any],
    wanted: str,
) -> None:
    text = json.dumps(origin)
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda *_: text)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "cluster.api.connection", raising=False)
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err.endswith(f": `pip install '{wanted}'`\n")


@pytest.mark.parametrize(("word", "meant"), [("lnit", "lint"), ("polcy", "policy"), ("x", "")])
def test_a_misspelt_command_is_named_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], word: str, meant: str
) -> None:
    assert main([word]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gpuward: there is no command '{word}'; ")
    assert ("did you mean" in error) == bool(meant)
    assert f'"{meant}"' in error if meant else "usage: gpuward COMMAND" in error


@pytest.mark.skipif(os.name != "posix", reason="Windows has other errors")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gpus", "--kubeconfig", "folder"], "Kubernetes API: folder: is a directory"),
        (["export", "static", "--folder", "file/x"], "not a directory"),
        (["init", "--directory", "folder", "--kubeconfig", "folder"], "folder: is a directory"),
        (["policy", "check", "folder"], "folder: not a regular file"),
        (["webhooks", "watch", "--expected", "folder"], "no pod of a cluster: name a file with"),
        (["lint", ""], "a path is empty: give a file or folder"),
        (["gpus", "-f", ""], "a path is empty: give a file or folder"),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "",
)
def test_an_error_of_the_system_is_in_words(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert main(arguments) in {1, 2}
    errors = capsys.readouterr().err
    assert error in errors
    assert "Errno" not in errors


HOSTILE = "no-such-file\x1b[2J\x1b]0;owned\x07\r\t\u202e\u009b31m"
CONTROL = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]"
KUBECONFIG = ["--kubeconfig", HOSTILE]
WITH_POLICY = ["run", "--namespace", "x", "--config-map", "x", "--policy", "x"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", HOSTILE],
        ["fix", HOSTILE],
        ["explain", HOSTILE],
        ["baseline", "check", "--baseline", HOSTILE, "."],
        ["policy", "check", HOSTILE],
        ["policy", "show", HOSTILE],
        ["serve", "--dev", "--listen", HOSTILE],
        ["certs", "check", HOSTILE],
        [*CERTS_RUN, *KUBECONFIG],
        ["exceptions", *WITH_POLICY, *KUBECONFIG],
        ["inventory", *WITH_POLICY, *KUBECONFIG],
        ["webhooks", "check", "--mutating-configuration", "x", *KUBECONFIG],
        ["webhooks", "watch", "--expected", "x", *KUBECONFIG],
        ["webhooks", "remove", "--mutating-configuration", "x", *KUBECONFIG],
        [HOSTILE],
    ],
    ids=lambda arguments: ascii(" ".join(arguments[:2])),
)
def test_no_error_line_commands_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    # It would set signal handlers.
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("cluster.control_loop.log_as_json", lambda: None)
    assert main(arguments) in {1, 2, 3}
    captured = capfd.readouterr()
    assert "no-such-file" in captured.err
    assert not re.search(CONTROL, captured.out + captured.err)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["lint", "--stdin-filename", "x.yaml", "examples"], "add - to what is linted"),
        (["lint", "--diff", "--output", "json", "examples"], "leave --output out"),
        (["lint", "--patch", "--statistics", "examples"], "leave --output out"),
        (["lint", "--statistics", "--output", "json", "examples"], "not allowed with"),
        (["lint", "--values", "x.yaml", "examples"], "add --render"),
        (["lint", "--rule", "zero-gpu", "examples"], "add --fix, --diff or --patch"),
        (["serve", "--dev", "--fallback-policy", "x.yaml"], "--policy FILE, which is missing"),
        (["doctor", "-f", "x.json", "--ask-kubelets"], "leave --filename out"),
        (["doctor", "-f", "x.json", "--tls-only"], "leave --filename out"),
        (["doctor", "--image", "x", "--no-dry-run"], "leave --filename and --no-dry-run out"),
        (["gpus", "--output", "cgpu", "--policy", "x.yaml"], "leave --policy out"),
        (["gpus", "-f", "x.json", "--context", "x"], "leave --kubeconfig and --context out"),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "",
)
def test_an_option_that_would_have_no_effect_is_an_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], remedy: str
) -> None:
    try:
        status = main(arguments)
    except SystemExit as end:  # of argparse
        status = int(end.code or 0)
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert remedy in " ".join(captured.err.split())


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_usage_error_commands_the_terminal(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    parser = command_parser(verb)
    assert parser is not None
    for each in (parser, *_parsers_of_verbs(parser)):
        # Through a real command line this is an option, or a value, that no option accepts.
        with pytest.raises(SystemExit) as end:
            each.error(f"unrecognized arguments: --{HOSTILE}")
        errors = capsys.readouterr().err
        assert end.value.code == 2
        assert f"{each.prog}: error: unrecognized arguments: --no-such-file\\u001b[2J" in errors
        assert not re.search(CONTROL, errors)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_error_of_a_value_says_what_is_expected(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """And names no function of ours, as argparse does where a type raises a ValueError."""
    parser = command_parser(verb)
    assert parser is not None
    for each in (parser, *_parsers_of_verbs(parser)):
        for action in each._actions:  # noqa: SLF001  # argparse has no other way to ask
            if action.type in {None, str} or not action.option_strings:
                continue
            for text in ("-1", "0x1", "²", "9" * 5_000, "\n", ""):
                with suppress(SystemExit):
                    each.parse_args([f"{action.option_strings[0]}={text}"])
                kind = getattr(action.type, "__name__", "")
                assert f"invalid {kind}" not in capsys.readouterr().err


def test_an_unknown_option_does_not_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["lint", f"--{HOSTILE}"])
    errors = capsys.readouterr().err
    assert "no-such-file" in errors
    assert not re.search(CONTROL, errors)


def _parsers_of_verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # the same
            yield from action.choices.values()


def test_every_document_installs_extras_in_the_same_way() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"].keys()
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    found = {
        wanted
        for f in files
        for wanted in re.findall(r"pip install ([^-`#\n]+?) *[`#\n]", f.read_text())
    }
    assert "gpuward" in found
    # `'.[webhook]'` is for those who change gpuward, in their clone.
    for wanted in found - {"gpuward", "."}:
        chosen = re.fullmatch(r"'(?:gpuward|\.)\[([a-z,]+)\]'", wanted)
        assert chosen is not None, wanted
        assert set(chosen[1].split(",")) <= extras, wanted


def test_a_missing_module_of_gpuward_is_an_internal_error() -> None:
    done = run_without("rules.catalog", "rules")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_pipe_that_is_closed_between_diffs_is_no_bug() -> None:
    command = f"{sys.executable} -m gpuward fix --diff examples | true"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_closed_output_pipe_is_no_error(verb: str) -> None:
    arguments = {"rules": "", "explain": "visible-devices-env"}.get(verb, "--help")
    command = f"{sys.executable} -m gpuward {verb} {arguments} | true"
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="only Unix has this signal")
@pytest.mark.parametrize(
    "arguments", [["policy", "show"], ["explain", "zero-gpu"], ["lint", "pod.yaml"]]
)
def test_a_closed_output_pipe_is_no_finding(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = run_in(tmp_path, *arguments, out=closed)
    assert (done.returncode, done.stderr) == (141, "")


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
"""


def run_in(folder: Path, *arguments: str, out: int | IO[bytes]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuward", *arguments],
        cwd=folder,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full disk to try")
@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", "-o", "sarif", "pod.yaml"],
        ["lint", "pod.yaml"],
        ["rules"],
        ["policy", "show"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_an_error_without_a_traceback(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    with open("/dev/full", "wb") as full:
        done = run_in(tmp_path, *arguments, out=full)
    assert done.returncode == 2
    assert done.stderr == "gpuward: cannot write: no space left on device\n"


CLOSED_INPUT = "gpuward: standard input is closed: open it, as by </dev/null\n"
CLOSED_OUTPUT = "gpuward: standard output is closed: open it, as by >/dev/null\n"


@pytest.mark.skipif(os.name != "posix", reason="only a shell of Unix closes streams")
@pytest.mark.parametrize(
    ("closed", "errors"),
    [
        ("<&-", CLOSED_INPUT),
        (">&-", CLOSED_OUTPUT),
        ("<&- >&-", CLOSED_OUTPUT),
        (">&- 2>&-", ""),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        *("lint", "lint -", "fix -", "fix --diff -", "audit -f -", "gpus -f -", "report -"),
        *("lsp", "mcp"),
    ],
)
def test_a_closed_stream_is_an_error_without_a_traceback(
    tmp_path: Path, arguments: str, closed: str, errors: str
) -> None:
    assert run_with_closed(tmp_path, closed, arguments) == (2, errors)


NO_MESSAGE = "gpuward: a message is none of the protocol: "
NO_EDITOR = "gpuward: standard input is not in the Language Server Protocol: "


def framed(*messages: str) -> str:
    """Return messages as the Language Server Protocol sends them."""
    return "".join(f"Content-Length: {len(text)}\r\n\r\n{text}" for text in messages)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", []),
        (POD, [NO_EDITOR]),
        (framed("{{"), [NO_MESSAGE, NO_EDITOR]),
        (framed("[]"), [NO_MESSAGE, NO_EDITOR]),
        (framed('{"jsonrpc": "2.0", "id": 1, "method": "initialize"}'), [NO_MESSAGE, NO_EDITOR]),
    ],
    ids=["nothing", "a manifest", "no JSON", "no message", "no parameters"],
)
def test_input_from_no_editor_is_an_error_without_a_traceback(
    tmp_path: Path, text: str, errors: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "lsp"],
        cwd=tmp_path,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == (2 if errors else 0)
    lines = done.stderr.splitlines()
    assert all(line.startswith(start) for line, start in zip(lines, errors, strict=True))


def test_a_bug_in_the_language_server_is_not_hidden() -> None:
    program = (
        "from lint.language_server import cli, server\n"
        "server.GpuwardServer.evaluate_later = None\n"
        "cli.main([])"
    )
    document = {"uri": "file:///pod.yaml", "languageId": "yaml", "version": 0, "text": POD}
    initialize = {"method": "initialize", "id": 1, "params": {"capabilities": {}}}
    opened = {"method": "textDocument/didOpen", "params": {"textDocument": document}}
    messages = [json.dumps({"jsonrpc": "2.0", **each}) for each in (initialize, opened)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        input=framed(*messages),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Error in server: TypeError" in done.stdout  # which the editor shows


@pytest.mark.skipif(os.name != "posix", reason="only a shell of Unix closes streams")
@pytest.mark.parametrize(
    ("closed", "arguments", "status"),
    [
        ("<&-", "lint pod.yaml", 1),  # which reads no standard input
        ("2>&-", "lint pod.yaml", 1),
        ("2>&-", "lint missing.yaml", 2),
        ("2>&-", "lint --no-such-option", 2),
        (">&-", "--version", 2),
    ],
)
def test_a_closed_stream_does_not_change_the_status(
    tmp_path: Path, closed: str, arguments: str, status: int
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    found, errors = run_with_closed(tmp_path, closed, arguments)
    assert (found, "Traceback" in errors) == (status, False)


def run_with_closed(folder: Path, closed: str, arguments: str) -> tuple[int, str]:
    """The status and the errors of gpuward after a shell has closed streams, such as `>&-`."""
    command = ["sh", "-c", f'exec "$@" {arguments} {closed}', "sh", sys.executable, "-m", "gpuward"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps the folder of a process")
@pytest.mark.parametrize("arguments", [["lint", "."], ["lint", "/"], ["policy", "show"]])
def test_a_removed_folder_is_an_error_without_a_traceback(
    tmp_path: Path, arguments: list[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "gpuward", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=gone, capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpuward: the working folder is gone: change to another folder\n"
