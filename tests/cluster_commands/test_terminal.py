"""The output to a terminal of the commands that look at a cluster."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.audit import cli as audit
from cluster.audit import service
from cluster.doctor import cli as doctor
from cluster.gpus import cli as gpus
from cluster.gpus.tables import Cell, Table, render
from cluster.init import cli as init
from tests.testkit.cluster_commands.gpu_objects import listed, node, pod

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\t\u202e\u009b31m"
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
GPU, MEMORY = "nvidia.com/gpu", "aliyun.com/gpu-mem"


def hostile_cluster() -> dict[str, Any]:
    """Objects whose every text tries to command the terminal, also where no API server lets it."""
    labels = {"nvidia.com/gpu.product": HOSTILE, "nvidia.com/gpu.present": HOSTILE, HOSTILE: "x"}
    register = f"{HOSTILE},10,16380,{HOSTILE},true,hami-core:"
    server = node(
        f"gpu-1{HOSTILE}",
        {GPU: 8, MEMORY: 30, "aliyun.com/gpu-count": 1, f"nvidia.com/{HOSTILE}": 1},
        labels=labels,
        annotations={"volcano.sh/node-vgpu-register": register},
        spec={"taints": [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]},
    )
    server["status"]["addresses"] = [{"type": "InternalIP", "address": HOSTILE}]
    user = pod(
        f"user{HOSTILE}",
        {GPU: 1, MEMORY: 3, f"nvidia.com/{HOSTILE}": 1},
        on=server["metadata"]["name"],
        namespace=f"team{HOSTILE}",
        owner=("Job", HOSTILE),
        annotations={"gpu-fraction": "0.5", "volcano.sh/vgpu-ids-new": f"{HOSTILE},NVIDIA,1,1:"},
        labels={"runai-gpu-group": HOSTILE},
        schedulerName=HOSTILE,
        runtimeClassName=HOSTILE,
    )
    user["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": HOSTILE}]
    namespace = {"metadata": {"name": HOSTILE, "labels": {"gpuward.io/mode": HOSTILE}}}
    plugin = {"metadata": {"name": HOSTILE, "namespace": HOSTILE}, "spec": {"template": user}}
    webhooks = {"metadata": {"name": HOSTILE}, "webhooks": [{"name": HOSTILE}]}
    kinds: dict[str, dict[str, Any]] = {
        "Namespace": namespace,
        "MutatingWebhookConfiguration": webhooks,
    }
    others = [{"kind": kind, "apiVersion": "v1", **found} for kind, found in kinds.items()]
    daemon_set = {"kind": "DaemonSet", "apiVersion": "apps/v1", **plugin}
    return listed(server, user, daemon_set, *others)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (gpus.main, []),
        (gpus.main, ["-o", "wide"]),
        (gpus.main, ["-d"]),
        (gpus.main, ["--by", "owner"]),
        (gpus.main, ["--by", "model", "--color", "always"]),
        (gpus.main, ["-o", "json"]),
        (gpus.main, ["-o", "yaml"]),
        (gpus.main, ["--output", "cgpu"]),
        (gpus.main, ["--output", "cgpu", "-d"]),
        (gpus.main, [HOSTILE]),
        (doctor.main, ["--color", "never"]),
        (doctor.main, ["-o", "json"]),
        (audit.main, ["--color", "never"]),
        (audit.main, ["--color", "never", "-n", HOSTILE]),
        (init.main, []),
    ],
)
def test_no_text_of_a_cluster_commands_the_terminal(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[list[str]], int],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(hostile_cluster()), encoding="utf-8")
    assert command(["-f", str(file), *arguments]) in {0, 1, 3}
    captured = capsys.readouterr()
    written = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.yaml")]
    for text in (captured.out, captured.err, *written):
        assert not _CONTROL.search(text)
    assert captured.out or written or HOSTILE in arguments


def test_an_error_that_quotes_a_file_commands_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (gpus.main, doctor.main, audit.main, init.main):
        assert command(["-f", f"no-such-file{HOSTILE}"]) in {2, 3}
    captured = capsys.readouterr()
    text = captured.err + captured.out
    assert text.count("no-such-file") >= 4
    assert not _CONTROL.search(text)


def test_an_error_of_a_service_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    file = f"no-such-file{HOSTILE}"
    options = argparse.Namespace(kubeconfig=file, context=None, status_port=0, interval=1.0)
    options.counted_namespaces = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("signal.signal", lambda *_: None)
        patched.setattr("cluster.control_loop.log_as_json", lambda: None)
        assert service.run(options) == 2
    text = capsys.readouterr().err
    assert "no-such-file" in text
    assert not _CONTROL.search(text)


def two_nodes(folder: Path) -> list[str]:
    user = pod("a", {GPU: 2}, on="gpu-1")
    nodes = (node(name, {GPU: 8}) for name in ("gpu-1", "gpu-2"))
    file = folder / "cluster.json"
    file.write_text(json.dumps(listed(*nodes, user)), encoding="utf-8")
    return ["-f", str(file)]


@pytest.mark.parametrize(
    ("environment", "is_terminal", "has_bars"),
    [
        ({"COLUMNS": "120"}, True, True),
        ({"COLUMNS": "60"}, True, False),
        ({"COLUMNS": "120", "NO_COLOR": "1"}, True, False),
        ({"COLUMNS": "120", "TERM": "dumb"}, True, False),
        ({"COLUMNS": "120"}, False, False),
        ({"COLUMNS": "60", "FORCE_COLOR": "1"}, False, True),
    ],
)
def test_bars_where_a_terminal_has_room_for_them(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    is_terminal: bool,  # noqa: FBT001  # a case of the table
    has_bars: bool,  # noqa: FBT001  # the same
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert gpus.main(two_nodes(tmp_path)) == 0
    out = capsys.readouterr().out
    assert ("░ 2/8" in out) == has_bars
    assert ("█ allocated" in out) == has_bars
    assert "2/16" in out


def test_a_long_text_does_not_widen_every_row() -> None:
    rows: list[tuple[Cell, ...]] = [("x" * 500_000, "a"), ("\x1b" * 500_000, "b"), ("y", "c")]
    lines = render(Table(("OWNER", "X"), rows)).splitlines()
    assert {len(line) for line in lines} == {317 + 3 + 1}
    assert lines[1].endswith("x...   a")


def test_wide_and_combining_characters_keep_columns_aligned() -> None:
    rows: list[tuple[Cell, ...]] = [("显卡", "a"), ("e\u0301e", "b"), ("four", "c")]
    lines = render(Table(("MODEL", "X"), rows)).splitlines()
    assert lines == ["MODEL   X", "显卡    a", "e\u0301e      b", "four    c"]
