"""Tests of --client-ca: callers must show a certificate, as API servers can be configured to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.testkit.admission.reviews import container, pod, review_body, variable
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.pki import Authority, KeyPairFiles
from tests.testkit.control_plane.processes import Processes
from webhook.admission.callers import ASKING_POD


def send_review(
    server: Server, trusted: Path, body: Path, client: KeyPairFiles | None
) -> dict[str, object]:
    """Send a review with curl; the response, or an empty dictionary if there was none."""
    command = ["curl", "--silent", "--cacert", str(trusted), "--data-binary", f"@{body}"]
    if client:
        command += ["--cert", str(client.certificate), "--key", str(client.key)]
    done = subprocess.run(
        [*command, f"{server.url}/validate/deny"], capture_output=True, check=False, timeout=30
    )
    answer: dict[str, object] = json.loads(done.stdout or "{}").get("response", {})
    return answer


def test_only_callers_with_a_certificate_are_let_in(processes: Processes, tmp_path: Path) -> None:
    for name in ("ours", "clients", "others"):
        (tmp_path / name).mkdir()
    authority, clients, others = (
        Authority(tmp_path / name) for name in ("ours", "clients", "others")
    )
    certificate = folder_of(
        authority.issue("gpuward", hosts=["127.0.0.1"]), tmp_path / "certificate"
    )
    arguments = ("--client-ca", str(clients.file), "--drain-seconds", "0")
    server = Server(processes, tmp_path, certificate, name="gpuward-mtls", arguments=arguments)
    body, asking = tmp_path / "review.json", tmp_path / "asking.json"
    review = review_body(pod(container(**variable("all"))))
    body.write_text(json.dumps(review), encoding="utf-8")
    review["request"] |= {"name": ASKING_POD, "dryRun": True}
    asking.write_text(json.dumps(review), encoding="utf-8")
    trusted_client = clients.issue("api-server", common_name="kube-apiserver")
    untrusted_client = others.issue("api-server", common_name="kube-apiserver")

    assert send_review(server, authority.file, body, trusted_client)["allowed"] is False
    assert send_review(server, authority.file, asking, trusted_client)["warnings"] == [
        "gpuward was called from 127.0.0.1 with a client certificate"
    ]
    assert not send_review(server, authority.file, body, untrusted_client)
    assert not send_review(server, authority.file, body, None)
    server.stop()
