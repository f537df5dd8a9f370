"""Policies that extend files, and settings for some paths."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from policies.loading import PolicyError, load_policy
from tests.lint.test_nested_policies import levels
from tests.testkit.git_repository import BAD, GitRepository
from tests.testkit.lint_command import LintCommand

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
WARN = POLICY + "rules: {visible-devices-env: {action: warn}}\n"
UP = POLICY + "extends: [../gpuward.yaml]\n"


@pytest.fixture
def team(command: LintCommand) -> LintCommand:
    command.write("gpuward.yaml", WARN)
    command.write("team/gpuward.yaml", UP)
    command.write("team/pod.yaml", BAD)
    return command


def test_a_policy_adds_to_the_one_that_it_extends(team: LintCommand) -> None:
    assert levels(team.json(".")) == {"team/pod.yaml": "warning"}
    team.write("team/gpuward.yaml", UP + "rules: {visible-devices-env: {action: audit}}\n")
    assert levels(team.json(".")) == {"team/pod.yaml": "note"}
    team.write("gpuward.yaml", WARN + "profiles: [gke]\n")
    shown = team.run("policy", "show", "team/gpuward.yaml").out
    assert shown.startswith("team/gpuward.yaml: profiles gke, extends gpuward.yaml\n")


def test_a_later_entry_wins_over_an_earlier_one(team: LintCommand) -> None:
    bundle = "rules: {}\nextends: [strict]\n"
    team.write("gpuward.yaml", POLICY + bundle + "catalog: '0.1'\ncontact: '#gpus'\n")
    for extends, action in (
        ("[../gpuward.yaml, essential]", "off"),
        ("[essential, ../gpuward.yaml]", "deny"),
    ):
        team.write("team/gpuward.yaml", POLICY + f"extends: {extends}\n")
        shown = team.run("policy", "show", "team/gpuward.yaml").out
        line = next(line for line in shown.splitlines() if " zero-gpu " in line)
        assert line.split()[1] == action
        assert "contact: #gpus" in shown


def test_lists_are_added(team: LintCommand) -> None:
    exception = (
        "exceptions:\n  - {rules: [visible-devices-env], match: {namespace: %s}, reason: r}\n"
    )
    team.write("gpuward.yaml", POLICY + exception % "one")
    team.write("team/gpuward.yaml", UP + exception % "two")
    for namespace in ("one", "two", "three"):
        found = levels(team.json("-n", namespace, "team"))
        assert bool(found) is (namespace == "three")


def test_where_a_setting_is_from(team: LintCommand) -> None:
    shown = team.run("policy", "show", "team/gpuward.yaml").out
    line = next(line for line in shown.splitlines() if " visible-devices-env " in line)
    assert line.split() == ["visible-devices-env", "warn", "gpuward.yaml"]
    one = team.run("policy", "show", "-o", "yaml", "team/gpuward.yaml").out
    assert "extends:" not in one
    team.write("one.yaml", one)
    assert team.run("policy", "check", "one.yaml").status == 0


BROKEN = {
    "missing": ("[../none.yaml]", "team/gpuward.yaml:3:11: none.yaml: no such file"),
    "itself": ("[gpuward.yaml]", "team/gpuward.yaml:3:11: team/gpuward.yaml extends itself"),
    "a word": ("[stricter]", 'did you mean "strict"?'),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_extended(team: LintCommand, case: str) -> None:
    extends, message = BROKEN[case]
    team.write("team/gpuward.yaml", POLICY + f"extends: {extends}\n")
    done = team(".")
    assert (done.status, message in done.errors) == (2, True), done.errors


def test_mistakes_in_an_extended_file_have_their_place(team: LintCommand) -> None:
    team.write("gpuward.yaml", POLICY + "rules:\n  no-such-rule: {}\n")
    done = team("team")
    assert done.status == 2
    assert "gpuward.yaml:4:3: there is no rule 'no-such-rule'" in done.errors


def test_a_copy_that_was_changed_is_an_error(team: LintCommand) -> None:
    org = team.write("policies/org.yaml", WARN)
    digest = hashlib.sha256(org.read_bytes()).hexdigest()
    extends = POLICY + f"extends: ['../policies/org.yaml@sha256:{digest}']\n"
    team.write("team/gpuward.yaml", extends)
    assert levels(team.json("team")) == {"team/pod.yaml": "warning"}
    org.write_text(WARN.replace("warn", "audit"))
    done = team("team")
    assert done.status == 2
    assert "policies/org.yaml has another digest, sha256:" in done.errors


def test_the_webhook_reads_no_other_file(team: LintCommand) -> None:
    with pytest.raises(PolicyError, match=r"only the linter reads .*gpuward.yaml: `gpuward policy"):
        load_policy((team.folder / "team" / "gpuward.yaml").read_bytes(), "gpuward.yaml")
    assert team.run("policy", "check", "team/gpuward.yaml").status == 1


def test_a_staged_policy_extends_what_is_staged(tmp_path: Path, git: str) -> None:
    assert git
    repository = GitRepository(tmp_path / "repository")
    repository.stage("gpuward.yaml", WARN)
    repository.stage("team/gpuward.yaml", UP)
    repository.stage("team/pod.yaml", BAD)
    repository.write("gpuward.yaml", POLICY)
    done = repository.gpuward("lint", "--staged", "-o", "concise", folder="team")
    assert "warning visible-devices-env" in done.stdout


PER_PATH = (
    POLICY
    + """\
perPath:
  - paths: clusters/gke
    profiles: [gke]
    namespace: ml
  - paths: ["legacy/*", "*-old.yaml"]
    rules: {visible-devices-env: {action: warn}}
  - paths: accepted
    exceptions:
      - {rules: [visible-devices-env], reason: monitoring}
"""
)
GPU = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    "    - {name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}\n"
)


@pytest.fixture
def clusters(command: LintCommand) -> LintCommand:
    command.write("gpuward.yaml", PER_PATH)
    return command


@pytest.mark.parametrize("folder", [".", "legacy", "/"])
def test_settings_are_for_paths(clusters: LintCommand, folder: str) -> None:
    for name in ("legacy/a/pod.yaml", "new/pod-old.yaml", "accepted/pod.yaml", "new/pod.yaml"):
        clusters.write(name, BAD)
    inside = LintCommand.__new__(LintCommand)
    inside.folder, inside.path = clusters.folder / folder, ""
    found = levels(inside.json(str(clusters.folder)), str(clusters.folder / folder))
    assert {Path(file).relative_to(clusters.folder).as_posix(): v for file, v in found.items()} == {
        "legacy/a/pod.yaml": "warning",
        "new/pod-old.yaml": "warning",
        "new/pod.yaml": "error",
    }


def test_each_folder_of_a_cluster_has_its_profile_and_namespace(clusters: LintCommand) -> None:
    clusters.write("clusters/gke/pod.yaml", GPU)
    clusters.write("clusters/other/pod.yaml", GPU)
    found = clusters.json("--notes", ".").report["findings"]
    rules = {
        cluster: {f["rule"] for f in found if f"/{cluster}/" in f["file"]}
        for cluster in ("gke", "other")
    }
    assert "toleration-default" in rules["other"]
    assert "toleration-default" not in rules["gke"]  # GKE adds it itself
    clusters.write("clusters/gke/pod.yaml", BAD)
    assert "Pod ml/x" in clusters("clusters/gke").out
    assert "Pod mine/x" in clusters("-n", "mine", "clusters/gke").out


def test_paths_of_an_extended_policy_are_from_its_own_folder(clusters: LintCommand) -> None:
    clusters.write("accepted/gpuward.yaml", UP)
    clusters.write("accepted/pod.yaml", BAD)
    clusters.write("accepted/legacy/pod.yaml", BAD)
    assert levels(clusters.json(".")) == {}
    clusters.write("new/gpuward.yaml", UP)
    clusters.write("new/legacy/pod.yaml", BAD)
    assert levels(clusters.json(".")) == {"new/legacy/pod.yaml": "error"}


def test_what_nobody_may_suppress_stays_on_every_path(clusters: LintCommand) -> None:
    firm = "rules: {visible-devices-env: {suppressible: false}}\n"
    clusters.write("gpuward.yaml", POLICY + firm)
    clusters.write("team/gpuward.yaml", PER_PATH)
    clusters.write("team/legacy/pod.yaml", BAD)
    assert levels(clusters.json(".")) == {"team/legacy/pod.yaml": "error"}
    clusters.write("team/accepted/pod.yaml", BAD)
    assert "an exception to visible-devices-env, which gpuward.yaml lets" in clusters(".").errors


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{paths: a}", "this must not be empty"),
        ("{paths: a, rules: {zero-gpus: {}}}", 'did you mean "zero-gpu"?'),
        ("{rules: {zero-gpu: {}}}", "the key 'paths' is missing"),
        ("{paths: a, exceptions: [{rules: [zero-gpu], reason: x, expires: 2030-13-01}]}", "date"),
    ],
)
def test_mistakes_in_settings_for_paths(clusters: LintCommand, entry: str, message: str) -> None:
    clusters.write("gpuward.yaml", POLICY + f"perPath:\n  - {entry}\n")
    clusters.write("pod.yaml", BAD)
    done = clusters(".")
    assert done.status == 2
    assert message in done.errors, done.errors


def test_what_holds_for_a_file_and_why(clusters: LintCommand) -> None:
    clusters.write("clusters/gke/pod.yaml", BAD)
    clusters.write("legacy/pod.yaml", BAD)
    shown = clusters.run("policy", "show", "clusters/gke/pod.yaml").out.splitlines()
    assert shown[:4] == [
        "clusters/gke/pod.yaml: gpuward.yaml",
        "perPath 1: clusters/gke: profiles, namespace",
        "namespace: ml",
        "gpuward.yaml: profiles gke",
    ]
    shown = clusters.run("policy", "show", "legacy").out.splitlines()
    assert shown[0] == "legacy: gpuward.yaml"
    clusters.write("team/gpuward.yaml", PER_PATH)
    clusters.write("team/legacy/pod.yaml", BAD)
    firm = "rules: {zero-gpu: {suppressible: false}}\n"
    clusters.write("gpuward.yaml", POLICY + firm)
    shown = clusters.run("policy", "show", "team/legacy/pod.yaml").out.splitlines()
    assert shown[0] == "team/legacy/pod.yaml: team/gpuward.yaml; around it: gpuward.yaml"
    by_rule = {line.split()[0]: line for line in shown if line.startswith("  ")}
    assert by_rule["visible-devices-env"].endswith("warn   team/gpuward.yaml, perPath 2")
    assert "gpuward.yaml (suppressible: false)" in by_rule["zero-gpu"]
    assert clusters.run("policy", "show", "none.yaml").status == 2
