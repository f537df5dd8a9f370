"""The plugin `kubectl gpuward`, run by a real kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuward import __version__
from tests.testkit.control_plane.cluster import Cluster
from tools.krew_plugin import joined

PROGRAMS = Path(sys.executable).parent


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl with the programs that pip installed on its PATH."""
    return subprocess.run(
        [str(cluster.programs["kubectl"]), *words],
        env={
            "PATH": f"{PROGRAMS}:{os.defpath}",
            "HOME": str(cluster.kubeconfig.parent),
            "KUBECONFIG": str(cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_kubectl_runs_every_command_with_its_own_kubeconfig(api_server: Cluster) -> None:
    listed = run(api_server, "plugin", "list")
    assert str(PROGRAMS / "kubectl-gpuward") in listed.stdout
    assert listed.stderr == ""  # no warning, such as that the plugin overwrites a command
    assert run(api_server, "gpuward", "--version").stdout == f"gpuward {__version__}\n"
    api_server.gpu_node("kubectl-plugin", gpus=3)
    shown = run(api_server, "gpuward", "gpus", "kubectl-plugin")
    api_server.request("DELETE", "/api/v1/nodes/kubectl-plugin")
    assert shown.returncode == 0, shown.stderr
    resource, allocated = shown.stdout.splitlines()[1].split()[3:5]
    # A pod that another test has left pending may have a GPU already.
    assert resource == "nvidia.com/gpu"
    assert allocated.endswith("/3")
    assert run(api_server, "gpuward", "gpus", "--no-such-option").returncode == 2


@pytest.mark.parametrize(
    ("words", "expected", "directive"),
    [
        (["gp"], ["gpus"], 4),
        (["gpus", "--by", ""], ["node", "model", "namespace", "owner"], 4),
        (["gpus", "--pod-"], ["--pod-cpu", "--pod-memory"], 4),
        (["gpus", "--policy", ""], [], 0),  # the shell proposes names of files
        (["certs", "r"], ["run"], 4),
        (["completion", ""], ["bash", "zsh", "fish"], 4),
        (["completion", "bash", ""], [], 4),
        (["no-such-command", ""], [], 4),
    ],
)
def test_kubectl_completes_the_words_of_the_plugin(
    api_server: Cluster, words: list[str], expected: list[str], directive: int
) -> None:
    done = run(api_server, "__complete", "gpuward", *words)
    *proposed, last = done.stdout.splitlines()
    assert [line.partition("\t")[0] for line in proposed] == expected
    assert last == f":{directive}"


def manifest(system: str, version: str = "v1") -> dict[str, Any]:
    return {"spec": {"version": version, "platforms": [{"uri": system}]}}


def test_manifests_of_several_platforms_are_joined() -> None:
    found = joined([manifest("linux"), manifest("darwin")])
    assert found == {"spec": {"version": "v1", "platforms": [{"uri": "linux"}, {"uri": "darwin"}]}}
    with pytest.raises(SystemExit, match="different releases"):
        joined([manifest("linux"), manifest("darwin", "v2")])
