"""The tools answer as the commands do, and say why when they do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from gpuward.mcp_server import confinement, processes, server, tools
from gpuward.mcp_server.cli import main
from tests.mcp_server.conftest import TAKER, Assistant, Place
from tests.testkit.cluster_commands.gpu_objects import node, pod
from tests.testkit.cluster_commands.paged_server import Listed, paged_server
from tests.testkit.missing_packages import run_without
from tests.testkit.paths import ROOT

CASES = ROOT / "tests" / "cases"
FILES = 1_000
BATCH = 50
CLUSTER = ROOT / "docs" / "example-cluster.yaml"


def gpuward(*arguments: str, folder: Path) -> str:
    """What the command prints, whatever its exit status is."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gpuward", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return done.stdout


def without_time(report: dict[str, Any]) -> dict[str, Any]:
    summary = {name: value for name, value in report["summary"].items() if name != "seconds"}
    return {**report, "summary": summary}


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place with a thousand manifests of the golden cases, in folders of some each."""
    made = Place(tmp_path_factory.mktemp("many"))
    every = sorted(CASES.glob("*/*.yaml"))
    chosen = every[:: len(every) // FILES][:FILES]
    assert len(chosen) == FILES
    for number, file in enumerate(chosen):
        folder = made.folder / f"{number // BATCH:02}"
        folder.mkdir(exist_ok=True)
        shutil.copyfile(file, folder / f"{file.parent.name}.{file.name}")
    return made


@pytest.mark.slow
async def test_lint_finds_in_a_thousand_files_what_the_command_finds(many_files: Place) -> None:
    seen = 0
    async with many_files.serve() as assistant:
        for folder in sorted(os.listdir(many_files.folder)):
            if folder == ".git":
                continue
            report = (await assistant("lint", paths=[folder])).document
            told = json.loads(gpuward("lint", "-o", "json", folder, folder=many_files.folder))
            assert without_time(report) == without_time(told)
            seen += report["summary"]["files"]
            assert report["findings"]
    assert seen == FILES


@pytest.mark.slow
async def test_fix_makes_the_changes_of_the_command(many_files: Place, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(many_files.folder, copy)
    folders = ["02", "14", "17"]
    async with many_files.serve(write=".") as assistant:
        shown = (await assistant("fix", paths=folders, unsafe=True)).document
        assert shown["diff"] == gpuward("fix", "--diff", "--unsafe-fixes", *folders, folder=copy)
        assert "written" not in shown
        done = (await assistant("fix", paths=folders, unsafe=True, write=True)).document
    told = json.loads(gpuward("fix", "-o", "json", "--unsafe-fixes", *folders, folder=copy))
    assert without_time(done["report"]) == without_time(told)
    assert done["not_written"] == []
    assert len(done["written"]) == len({entry["file"] for entry in told["fixed"]}) > 1
    for file in sorted(copy.rglob("*.yaml")):
        assert (many_files.folder / file.relative_to(copy)).read_bytes() == file.read_bytes()


async def test_the_tools_say_what_goes_in_and_whether_they_write(place: Place) -> None:
    async with place.serve() as assistant, place.serve(write=".") as writer:
        reading = {tool.name: tool for tool in (await assistant.client.list_tools()).tools}
        writing = {tool.name: tool for tool in (await writer.client.list_tools()).tools}
    assert [*reading] == ["lint", "fix", "explain", "rules", "why", "gpus"]
    hints = {
        name: tool.annotations.read_only_hint for name, tool in reading.items() if tool.annotations
    }
    assert hints == dict.fromkeys(reading, True)
    assert writing["fix"].annotations
    assert writing["fix"].annotations.read_only_hint is False
    assert reading["lint"].input_schema["additionalProperties"] is False


async def test_a_text_is_linted_as_the_file_that_it_will_be(place: Place) -> None:
    place.write(
        "gpuward.yaml",
        "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {visible-devices-env: {action: 'off'}}\n",
    )
    text = TAKER.replace('"0"', "all")
    async with place.serve() as assistant:
        free = (await assistant("lint", text=text, name="deploy/new.yaml")).document
        outside = await assistant("fix", text=text.replace("all", '"0"'), name="/etc/x.yaml")
    assert free["policy"] == "gpuward.yaml"
    assert "visible-devices-env" not in {finding["rule"] for finding in free["findings"]}
    assert outside.is_error


async def test_fix_shows_the_diff_of_a_text(place: Place) -> None:
    async with place.serve() as assistant:
        answer = (await assistant("fix", text=TAKER, name="pod.yaml")).document
    assert answer["diff"].startswith("--- pod.yaml\n+++ pod.yaml\n")
    assert "-        - {name: NVIDIA_VISIBLE_DEVICES" in answer["diff"]
    assert [entry["rule"] for entry in answer["report"]["fixed"]] == ["visible-devices-env"]


async def test_rules_are_explained_as_by_the_commands(place: Place) -> None:
    async with place.serve() as assistant:
        text = (await assistant("explain", rule="visible-devices-env")).text
        listed = (await assistant("rules")).document
        unknown = await assistant("explain", rule="visible-devices-en")
    assert text == gpuward("explain", "visible-devices-env", folder=place.folder)
    assert listed == json.loads(gpuward("rules", "-o", "json", folder=place.folder))
    assert unknown.is_error
    assert "did you mean" in unknown.text


async def test_a_cluster_in_a_file_answers_why_and_gpus(place: Place) -> None:
    shutil.copyfile(CLUSTER, place.folder / "cluster.yaml")
    place.write("job.yaml", TAKER.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 64"))
    async with place.serve() as assistant:
        gpus = (await assistant("gpus", files=["cluster.yaml"])).document
        why = (await assistant("why", files=["cluster.yaml"])).document
        new = (await assistant("why", files=["cluster.yaml"], manifest="job.yaml")).document
        nothing = await assistant("why")
    options = ("-o", "json", "-f", "cluster.yaml")
    assert gpus == json.loads(gpuward("gpus", *options, folder=place.folder))
    assert why == json.loads(gpuward("why", *options, folder=place.folder))
    assert new["answer"] == "cannot"
    assert nothing.is_error
    assert "--cluster" in nothing.text


async def test_with_the_option_the_cluster_of_the_kubeconfig_is_asked(
    place: Place, tmp_path: Path
) -> None:
    place.write("job.yaml", TAKER.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 64"))
    listed = {
        "/api/v1/nodes": Listed(1, lambda _: node("gpu-1", {"nvidia.com/gpu": "8"}), "Node"),
        "/api/v1/pods": Listed(1, lambda _: pod("notebook", {"nvidia.com/gpu": 1}, on="gpu-1")),
    }
    with paged_server(listed) as served:
        options = (f"--kubeconfig={served.kubeconfig(tmp_path)}",)
        async with place.serve(cluster_arguments=options) as assistant:
            gpus = (await assistant("gpus")).document
            why = (await assistant("why", manifest="job.yaml")).document
            elsewhere = await assistant("why", manifest="../outside/secret.yaml")
        told = json.loads(gpuward("gpus", "-o", "json", *options, folder=place.folder))
        assert served.written == []
    assert gpus == told
    assert [one["name"] for one in gpus["nodes"]] == ["gpu-1"]
    assert why["answer"] == "cannot"
    assert elsewhere.is_error


async def test_a_call_that_does_not_fit_is_refused_with_the_reason(place: Place) -> None:
    place.write("pod.yaml")
    async with place.serve() as assistant:
        for tool, arguments, reason in (
            ("lint", {"path": "pod.yaml"}, "'path' was unexpected"),
            ("lint", {"paths": "pod.yaml"}, "paths: 'pod.yaml' is not of type 'array'"),
            ("lint", {"paths": ["pod.yaml"], "text": TAKER}, "give paths or a text, not both"),
            ("lint", {"name": "pod.yaml"}, "give the text"),
            ("lint", {"paths": ["prod.yaml"]}, "prod.yaml does not exist"),
            ("lint", {"select": ["visible-device"]}, "there is no rule or family"),
            ("fix", {"paths": ["pod.yaml"], "write": True}, "--write FOLDER"),
            ("explain", {}, "'rule' is a required property"),
            ("shell", {"command": "id"}, "there is no tool 'shell'"),
        ):
            reply = await assistant(tool, **arguments)
            assert reply.is_error, tool
            assert reason in reply.text


async def test_what_a_call_may_read_and_answer_is_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(confinement.MAX_FILES + 1):
        place.write(f"many/{number}.yaml", "a: 1\n")
    for number in range(8):
        (place.write(f"big/{number}.json")).write_bytes(b" " * (9 << 20))
    place.write("pod.yaml")
    async with place.serve() as assistant:
        many = await assistant("lint", paths=["many"])
        big = await assistant("lint", paths=["big"])
        long = await assistant("lint", text="a" * (tools.MAX_TEXT_CHARACTERS + 1))
        names = await assistant("lint", paths=["pod.yaml"] * (tools.MAX_PATHS + 1))
        unknown = await assistant("x" * 1_000_000)
        monkeypatch.setattr(processes, "MAX_ANSWER_CHARACTERS", 100)
        answer = await assistant("lint", paths=["pod.yaml"])
        monkeypatch.setattr(processes, "MAX_SECONDS", 0.01)
        slow = await assistant("lint", paths=["pod.yaml"])
    for reply, reason in (
        (many, "a call reads at most 2,000 files and 64 MiB"),
        (big, "a call reads at most 2,000 files and 64 MiB"),
        (long, "text: more than 1,000,000 characters"),
        (names, "paths: more than 500 entries"),
        (unknown, "there is no tool 'xxx"),
        (answer, "at most 100 are sent: name fewer files"),
        (slow, "more than 0.01 seconds"),
    ):
        assert reply.is_error
        assert reason in reply.text
        assert len(reply.text) < 1_000


def stdio(folder: Path, *options: str) -> Any:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpuward", "mcp", "--folder", str(folder), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return stdio_client(parameters)


async def test_the_command_serves_standard_input_and_output(place: Place) -> None:
    place.write("deploy/pod.yaml")
    async with Client(stdio(place.folder, "--write", str(place.folder / "deploy"))) as client:
        assistant = Assistant(client)
        done = (await assistant("fix", paths=["deploy"], write=True)).document
        report = (await assistant("lint")).document
    assert done["written"] == ["deploy/pod.yaml"]
    assert report["summary"]["errors"] == 0
    assert "NVIDIA_VISIBLE_DEVICES" not in (place.folder / "deploy" / "pod.yaml").read_text("utf-8")


def test_a_message_that_is_too_long_does_not_end_the_server(place: Place) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    long = "x" * (server.MAX_MESSAGE_CHARACTERS + 10)
    initialize = {
        **request,
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    lines = [json.dumps(initialize), long, json.dumps(request)]
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "mcp"],
        cwd=place.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"jsonrpc": "2.0", "id": 1, "result": {}} in answers


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--folder", "nowhere"), "nowhere: no such file or directory"),
        (("--write", "/"), "--write: / is no folder in"),
        (("--context", "prod"), "add --cluster"),
        (("--policy", "nowhere.yaml"), "--policy: nowhere.yaml is no file"),
    ],
)
def test_wrong_options_are_refused(
    place: Place,
    options: tuple[str, ...],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place.folder)
    with pytest.raises(SystemExit) as refused:
        main([*options])
    assert refused.value.code == 2
    assert reason in capsys.readouterr().err


def test_without_the_sdk_the_command_says_which_extra_has_it() -> None:
    done = run_without("mcp", "mcp")
    assert done.returncode == 2
    assert "'gpuward[mcp]'" in done.stderr
