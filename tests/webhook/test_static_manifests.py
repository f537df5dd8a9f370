"""`gpuward export static` writes a folder as API servers demand it, and compares one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.loading import default_policy
from rules.finding import Action
from webhook.in_process.cli import main
from webhook.in_process.objects import (
    DIGEST_ANNOTATION,
    ExportOptions,
    digest_of,
    policy_objects,
)
from webhook.in_process.statements import fixing_rules
from webhook.registration import RegistrationOptions

SUFFIX = ".static.k8s.io"
VALIDATING = "validating-policies/gpuward.yaml"
MUTATING = "mutating-policies/gpuward.yaml"


def written(folder: Path, *arguments: str) -> dict[str, list[Any]]:
    assert main(["static", "--folder", str(folder), *arguments]) == 0
    return {
        path.relative_to(folder).as_posix(): list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
        for path in folder.rglob("*.yaml")
    }


def test_the_objects_have_the_form_that_api_servers_demand(tmp_path: Path) -> None:
    """Names with the suffix, no parameters, and bindings of policies in the same folder."""
    files = written(tmp_path / "made", "--mode", "deny")
    assert files.keys() == {"admission.yaml", VALIDATING, MUTATING}
    for path, kind in ((VALIDATING, "Validating"), (MUTATING, "Mutating")):
        kinds = (f"{kind}AdmissionPolicy", f"{kind}AdmissionPolicyBinding")
        names = {k: [o["metadata"]["name"] for o in files[path] if o["kind"] == k] for k in kinds}
        assert sum(map(len, names.values())) == len(files[path])
        for found in names.values():
            assert len(found) == len({*found}) > 0
            assert all(name.endswith(SUFFIX) for name in found)
        for made in files[path]:
            assert made["apiVersion"] == "admissionregistration.k8s.io/v1"
            assert not made["spec"].keys() & {"paramKind", "paramRef"}
            assert made["metadata"]["annotations"][DIGEST_ANNOTATION] == digest_of(made)
            if made["kind"] == kinds[1]:
                assert made["spec"]["policyName"] in names[kinds[0]]


def test_the_configuration_says_where_the_folders_are_on_the_node(tmp_path: Path) -> None:
    (configuration,) = written(tmp_path, "--mode", "deny", "--path-on-node", "/srv/a")[
        "admission.yaml"
    ]
    folders = {
        p["name"]: p["configuration"]["staticManifestsDir"] for p in configuration["plugins"]
    }
    assert folders == {
        "ValidatingAdmissionPolicy": "/srv/a/validating-policies",
        "MutatingAdmissionPolicy": "/srv/a/mutating-policies",
    }


def test_pods_are_judged_as_by_the_policies_in_the_storage_of_the_api_server(
    tmp_path: Path,
) -> None:
    """Those of which a test compares what they say with what the rules say, of all cases."""
    options = ExportOptions(RegistrationOptions(default=Action.DENY))
    stored = {made["metadata"]["name"]: made for made in policy_objects(default_policy(), options)}
    names = []
    for made in written(tmp_path, "--mode", "deny", "--no-guard")[VALIDATING]:
        name, spec = made["metadata"]["name"].removesuffix(SUFFIX), made["spec"]
        names.append(name)
        if "policyName" in spec:
            spec["policyName"] = spec["policyName"].removesuffix(SUFFIX)
        assert spec == stored[name]["spec"]
    assert {name for name in stored if "-deny" in name.partition("-in-mode")[0]} == {*names}


def test_what_an_earlier_policy_left_is_removed(tmp_path: Path) -> None:
    assert MUTATING in written(tmp_path, "--mode", "deny")
    rules = {rule.name: {"fix": False} for rule in fixing_rules(default_policy().rule_set())}
    policy = tmp_path / "policy"
    content = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": rules}
    policy.write_text(yaml.safe_dump(content))
    files = written(tmp_path, "--policy", str(policy), "--mode", "deny")
    assert files.keys() == {"admission.yaml", VALIDATING}
    assert [p["name"] for p in files["admission.yaml"][0]["plugins"]] == [
        "ValidatingAdmissionPolicy"
    ]


def test_users_and_names_that_are_guarded_are_in_the_files(tmp_path: Path) -> None:
    options = ["--namespace", "guards", "--release", "prod", "--break-glass-user", "o'neill"]
    files = written(tmp_path, *options, "--break-glass-group", "platform")
    guards = [o for o in files[VALIDATING] if o["metadata"]["name"].startswith("gpuward-guard")]
    texts = [
        o["spec"]["validations"][0]["expression"] for o in guards if "validations" in o["spec"]
    ]
    assert len(texts) == 4
    for word in ('"system:serviceaccount:guards:"', '"o\'neill"', '"platform"'):
        assert all(word in text for text in texts)
    assert '"prod-"' in texts[0]
    selectors = [
        o["spec"]["matchConstraints"]["namespaceSelector"]
        for o in guards
        if "matchConstraints" in o["spec"]
    ]
    assert selectors[1]["matchExpressions"][0]["values"] == ["guards"]
    bare = written(tmp_path, "--no-guard")[VALIDATING]
    assert not any("guard" in o["metadata"]["name"] for o in bare)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the default policy in mode deny."""
    folder = tmp_path_factory.mktemp("static") / "admission"
    written(folder, "--mode", "deny")
    return folder


@pytest.fixture
def folder(made_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy of it, which the test may change."""
    copy = shutil.copytree(made_once, tmp_path / "admission")
    capsys.readouterr()
    return copy


def check(folder: Path, *options: str) -> int:
    return main(["static", "--check", str(folder), "--mode", "deny", *options])


def test_a_folder_of_the_policy_is_accepted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(folder) == 0
    captured = capsys.readouterr()
    assert captured.out.count("sha256:") == 2


def test_a_folder_of_another_policy_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(folder, "--break-glass-user", "alice") == 1
    assert f"{folder}: {VALIDATING} differs" in capsys.readouterr().err


def test_missing_and_foreign_files_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / MUTATING).unlink()
    (folder / "validating-policies" / "other.yml").write_text("kind: List")
    (folder / "validating-policies" / "README").write_text("API servers do not read this")
    (folder / "validating-policies" / "linked.yaml").symlink_to(folder)
    assert check(folder) == 1
    errors = capsys.readouterr().err
    assert f"{MUTATING} is missing" in errors
    assert "validating-policies/other.yml is not of this policy" in errors
    assert "validating-policies/linked.yaml is not of this policy" in errors
    assert "README" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["static"], "static needs --folder or --check"),
        (["static", "vap", "--folder", "a"], "name it alone"),
        (["static", "--folder", "a", "--check", "b"], "not allowed with"),
        (["static", "--folder", "a", "--path-on-node", "here"], "no absolute path"),
        (["static", "--folder", "a", "--release", ""], "--release: '' is no name"),
        (["static", "--folder", "a", "--namespace", "Gpu"], "--namespace: 'Gpu' is no name"),
        (["vap", "--folder", "a"], "--folder is an option of static"),
    ],
)
def test_wrong_usage_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_user_who_may_change_anything_it_says_what_that_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    assert "nobody can upgrade or uninstall" in capsys.readouterr().err
    for option in (("--break-glass-group", "platform"), ("--no-guard",)):
        written(tmp_path, *option)
        assert capsys.readouterr().err == ""


def test_a_configuration_may_have_more_plugins(folder: Path) -> None:
    file = folder / "admission.yaml"
    configuration = yaml.safe_load(file.read_text())
    configuration["plugins"].insert(0, {"name": "PodSecurity", "configuration": {}})
    file.write_text(yaml.safe_dump(configuration))
    assert check(folder) == 0
    configuration["plugins"].pop()
    file.write_text(yaml.safe_dump(configuration))
    assert check(folder) == 1
    file.write_text("plugins: {")
    assert check(folder) == 1


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    folder = tmp_path / "made"
    (folder / "validating-policies").mkdir(parents=True)
    (folder / VALIDATING).symlink_to(victim)
    assert VALIDATING in written(folder)
    assert victim.read_text() == "untouched"
    assert not (folder / VALIDATING).is_symlink()
    assert (folder / VALIDATING).stat().st_mode & 0o777 == 0o644


def test_a_policy_that_refuses_and_fixes_nothing_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    active = default_policy().rule_set().rules
    rules = {each.rule.name: {"action": "audit", "fix": False} for each in active}
    policy = tmp_path / "policy.yaml"
    content = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": rules}
    policy.write_text(yaml.safe_dump(content))
    arguments = ["static", "--folder", str(tmp_path / "made"), "--policy", str(policy)]
    assert main([*arguments, "--no-guard"]) == 2
    assert "nothing that can be exported" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    assert main([*arguments, "--break-glass-user", "alice"]) == 0


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["static", "--folder", str(tmp_path / "file" / "a")]) == 2
    assert f"{tmp_path / 'file'}" in capsys.readouterr().err


def test_explain_lists_what_both_kinds_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["static", "--explain"]) == 0
    whole = capsys.readouterr().out
    assert main(["vap", "map", "--explain"]) == 0
    assert whole == capsys.readouterr().out
