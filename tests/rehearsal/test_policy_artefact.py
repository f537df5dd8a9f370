"""A policy of an organisation in a registry, and its copy in the repository of a team."""

from __future__ import annotations

import re
from pathlib import Path

from tests.testkit.git_repository import BAD
from tests.testkit.paths import DOCS
from tests.testkit.release.new_user import NewUser
from tests.testkit.release.programs import ORAS, program
from tests.testkit.release.servers import Registry
from tests.testkit.release.signing import Signer

PAGE = (DOCS / "fleet.md").read_text(encoding="utf-8")
HEAD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
LENIENT = f'{HEAD}rules: {{visible-devices-env: {{action: "off"}}}}\n'


def test_a_team_takes_the_policy_by_its_digest(
    user: NewUser, registry: Registry, tmp_path: Path
) -> None:
    (block,) = re.findall(r"```console\n(\$ oras push .*?)```", PAGE, re.DOTALL)
    # oras uses no TLS with a registry that is called localhost.
    address = registry.address.replace("localhost", "127.0.0.1")
    lines = block.replace("registry.example.com", address).splitlines()
    commands = [line[2:].partition(" #")[0].rstrip() for line in lines if line.startswith("$ ")]
    said = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
    push, pull, vendor = commands
    user.environment["SSL_CERT_FILE"] = str(registry.authority)
    user.succeeds("python3 -m venv .venv && .venv/bin/pip install --quiet gpuward")
    user.environment["PATH"] = f"{user.folder}/.venv/bin:{user.environment['PATH']}"
    (user.bin / "oras").symlink_to(program(ORAS))
    user.write("organisation.yaml", LENIENT)
    (digest,) = re.findall(r"^Digest: sha256:(\w+)$", user.succeeds(push), re.MULTILINE)
    signer = Signer(tmp_path, registry)
    signer.sign(f"{registry.address}/platform/policy@sha256:{digest}")
    assert signer.verify(f"{registry.address}/platform/policy@sha256:{digest}") == ""
    (user.folder / "organisation.yaml").unlink()
    user.write("gpuward.yaml", f"{HEAD}extends: [./organisation.yaml]\n")
    user.write("pod.yaml", BAD)
    user.succeeds(pull.replace("DIGEST", digest))
    assert user.succeeds(vendor) == said
    user.succeeds("gpuward lint pod.yaml")
    # What the user changes afterwards is no longer that policy.
    user.write("organisation.yaml", LENIENT.replace("visible-devices-env", "zero-gpu"))
    done = user.run("gpuward lint pod.yaml")
    assert done.returncode == 2
    assert "organisation.yaml has another digest" in done.stderr
    assert user.run(pull.replace("DIGEST", "0" * 64)).returncode != 0
