"""Callers who must show a certificate, as an API server can be told to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.testkit.admission.registered_webhook import Server, folder_of
from tests.testkit.admission.reviews import call, container, pod, variable
from tests.testkit.control_plane.pki import Authority, Pair
from tests.testkit.control_plane.processes import Processes


def asked(server: Server, trusted: Path, body: Path, shown: Pair | None) -> dict[str, object]:
    """What curl makes of a review: the answer, or nothing if it got none."""
    command = ["curl", "--silent", "--cacert", str(trusted), "--data-binary", f"@{body}"]
    if shown:
        command += ["--cert", str(shown.certificate), "--key", str(shown.key)]
    done = subprocess.run(
        [*command, f"{server.url}/validate/deny"], capture_output=True, check=False, timeout=30
    )
    answer: dict[str, object] = json.loads(done.stdout or "{}").get("response", {})
    return answer


def test_only_callers_with_a_certificate_are_let_in(processes: Processes, tmp_path: Path) -> None:
    for name in ("ours", "clients", "others"):
        (tmp_path / name).mkdir()
    ours, clients, others = (Authority(tmp_path / name) for name in ("ours", "clients", "others"))
    certificate = folder_of(ours.issue("gpuward", hosts=["127.0.0.1"]), tmp_path / "certificate")
    arguments = ("--client-ca", str(clients.file), "--drain-seconds", "0")
    server = Server(processes, tmp_path, certificate, name="gpuward-mtls", arguments=arguments)
    body = tmp_path / "review.json"
    body.write_text(json.dumps(call(pod(container(**variable("all"))))), encoding="utf-8")
    known = clients.issue("api-server", common_name="kube-apiserver")
    stranger = others.issue("api-server", common_name="kube-apiserver")

    assert asked(server, ours.file, body, known)["allowed"] is False
    assert not asked(server, ours.file, body, stranger)
    assert not asked(server, ours.file, body, None)
    server.stop()
