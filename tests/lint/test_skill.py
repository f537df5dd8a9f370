"""The skill for assistants: a client that knows nothing but docs/skills/gpu-manifests/SKILL.md."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.lint_command import LintCommand
from tests.testkit.paths import ROOT

SKILL = ROOT / "docs" / "skills" / "gpu-manifests" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
# Each with the remedies of what is found in it, errors and warnings alone.
BROKEN = {
    "claim-layout/flat": {"fix"},
    "gpu-container-hidden/void-beside-a-gpu": {"fix"},
    "invalid-claim-reference/source": {"fix"},
    "legacy-cuda-version/prefix": {"fix"},
    "request-only/request-alone": {"fix"},
    "toleration-mismatch/plural-key": {"fix"},
    "visible-devices-env/all-beside-a-request": {"fix"},
    "cdi-annotation/beside-a-request": {"unsafe-fix"},
    "core-percentage-step/several-cards": {"unsafe-fix"},
    "device-injector-annotation/json": {"unsafe-fix"},
    "device-list-mount/beside-a-gpu": {"unsafe-fix"},
    "device-plugin-priority/class-of-users": {"unsafe-fix"},
    "mig-admin-env/void-beside-a-request": {"fix", "unsafe-fix"},
    "swarm-resource-env/behind-a-prefix": {"fix", "unsafe-fix"},
    "gated-device-env/legacy": {"fix", "unsafe-fix"},
    "share-without-card/cores-and-no-cards": {"fix", "unsafe-fix", "by-hand"},
    "visible-devices-envfrom/beside-a-gpu": {"fix", "by-hand"},
    "request-ne-limit/request-above-limit": {"unsafe-fix", "by-hand"},
    "init-and-app-gpu/both": {"by-hand"},
    "memory-exceeds-card/hami-mebibytes": {"by-hand"},
}
MOST_ROUNDS = 5


def words_of(line: str, file: str) -> list[str]:
    """The arguments of a command of the skill, for a file."""
    program, *words = shlex.split(line)
    assert program == "gpuward"
    return [file if word == "FILE" else word for word in words]


def lint_line() -> str:
    """The command by which the skill begins."""
    (line,) = re.findall(r"^ *\$ (gpuward lint .+)$", TEXT, re.MULTILINE)
    return str(line)


def command_by_remedy() -> dict[str, str]:
    """The first command that the skill has for each remedy; empty where a person decides."""
    _, *rows = re.findall(r"^ *\| `([\w-]+)` \| (.+) \|$", TEXT, re.MULTILINE)
    return {name: (re.findall(r"^`(gpuward [^`]+)`", cell) or [""])[0] for name, cell in rows}


class Client:
    """Does what the skill says with a file, and knows nothing of the example."""

    def __init__(self, command: LintCommand, file: str) -> None:
        self._command = command
        self._file = file

    def lint(self) -> list[dict[str, Any]]:
        """The findings that the skill wants to be worked on."""
        verb, *words = words_of(lint_line(), self._file)
        report = json.loads(self._command.run(verb, *words).out)
        return [one for one in report["findings"] if one["level"] in {"error", "warning"}]

    def repair(self) -> list[dict[str, Any]]:
        """Follow the remedies until no command changes the file; what remains."""
        path, commands = self._command.folder / self._file, command_by_remedy()
        for _ in range(MOST_ROUNDS):
            before = path.read_bytes()
            for line in dict.fromkeys(commands[one["remedy"]] for one in self.lint()):
                if line:
                    verb, *words = words_of(line, self._file)
                    self._command.run(verb, *words)
            if path.read_bytes() == before:
                return self.lint()
        raise AssertionError("the remedies never end")


def test_the_skill_has_the_form_of_skills() -> None:
    _, head, body = TEXT.split("---\n", 2)
    facts = yaml.safe_load(head)
    assert facts["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", facts["name"])
    assert len(facts["name"]) <= 64
    assert 0 < len(facts["description"]) <= 1024
    assert len(facts["compatibility"]) <= 500
    assert len(body.splitlines()) < 100


def test_the_skill_knows_every_remedy() -> None:
    assert {*command_by_remedy()} == {"fix", "unsafe-fix", "by-hand"}
    assert command_by_remedy()["by-hand"] == ""


@pytest.mark.parametrize("name", BROKEN)
def test_a_client_that_follows_the_skill_repairs_a_manifest(
    command: LintCommand, name: str
) -> None:
    shutil.copyfile(ROOT / "tests" / "cases" / f"{name}.yaml", command.folder / "pod.yaml")
    client = Client(command, "pod.yaml")
    found = client.lint()
    assert {one["remedy"] for one in found} == BROKEN[name]
    remaining = client.repair()
    # What remains is what a person decides, and each says what to write.
    assert {one["remedy"] for one in remaining} <= {"by-hand"}
    assert all(one["help"] for one in remaining)
    assert bool(remaining) == ("by-hand" in BROKEN[name])
    identities = {one["identity"] for one in found if one["remedy"] == "by-hand"}
    assert {one["identity"] for one in remaining} <= identities


def test_a_fix_that_a_policy_forbids_stays_for_a_person(as_program: LintCommand) -> None:
    case = Path(ROOT, "tests", "cases", "device-injector-annotation", "json.yaml")
    shutil.copyfile(case, as_program.folder / "pod.yaml")
    rules = "{device-injector-annotation: {fix: false}}"
    policy = f"apiVersion: gpuward.io/v1\nkind: Policy\nrules: {rules}\n"
    as_program.write("gpuward.yaml", policy)
    assert Client(as_program, "pod.yaml").repair()
