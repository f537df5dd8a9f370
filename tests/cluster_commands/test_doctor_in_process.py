"""Tests of `gpuward doctor` about the policies that `gpuward export` has written."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from cluster.api.errors import ClusterError, ForbiddenError
from cluster.doctor.checks.in_process import check_static_manifests
from cluster.doctor.facts import read_facts
from cluster.doctor.rows import State
from cluster.source.objects import ObjectReader
from policies.loading import default_policy, load_policy
from rules.finding import Action
from tests.testkit.cluster_commands.doctor_rows import (
    NO_METRICS,
    Objects,
    in_release,
    installed,
    recorded,
    rows,
)
from tests.testkit.cluster_commands.gpu_objects import Object
from tests.testkit.policy_mistakes import POLICY_HEADER
from webhook.in_process.exports import validating_objects
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.in_process.static_manifests import digests_of_folder, static_files, write_folder
from webhook.registration import RegistrationOptions

CHECK = "in process"
OTHER_POLICY = POLICY_HEADER + "rules: {mig-admin-env: {action: warn}}\n"
NO_FIX = POLICY_HEADER + "rules: {request-only: {fix: false}}\n"
POLICY, BINDING = (
    "validatingadmissionpolicy/gpuward-bypass-deny",
    "validatingadmissionpolicybinding/gpuward-bypass-deny-in-mode-deny",
)


def exported(text: str = POLICY_HEADER) -> list[Object]:
    return copy.deepcopy(_exported(text))


@functools.cache
def _exported(text: str) -> list[Object]:
    return [*policy_objects(load_policy(text, "a test"), ExportOptions(failure_policy="Ignore"))]


def found(*objects: Object, **options: Any) -> dict[str, tuple[State, str]]:
    """State and message by subject."""
    return {
        row.subject: (row.state, row.message) for row in rows(*objects, **options).get(CHECK, ())
    }


def test_without_an_export_nothing_is_said() -> None:
    own = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "theirs"}, "spec": {}}
    assert found(own) == {}


def test_an_export_as_it_was_written_is_ok() -> None:
    """With other options than by default, and with what API servers add."""
    objects = exported()
    for item in objects:
        item["metadata"] |= {"uid": "1", "generation": 1}
        item["status"] = {"typeChecking": {}, "observedGeneration": 1}
    assert found(*objects) == {
        "exported policies": (State.OK, f"{len(objects)} objects, as gpuward exports them")
    }


def test_fixes_as_they_were_written_are_ok_and_stale_ones_are_wrong() -> None:
    """A user who exported nothing that refuses misses nothing of it."""
    fixes = [*fix_objects(default_policy(), ExportOptions())]
    assert found(*fixes) == {"exported policies": (State.OK, "2 objects, as gpuward exports them")}
    ((_, message),) = found(*fixes, policy=load_policy(NO_FIX, "a test")).values()
    assert message == "it was made from another policy, or by another version of gpuward"
    edited = copy.deepcopy(fixes)
    edited[0]["spec"]["mutations"][0]["jsonPatch"]["expression"] = "[]"
    ((state, message),) = found(*edited).values()
    assert (state, message) == (State.WRONG, "its expressions were changed by hand")
    edited = copy.deepcopy(fixes)
    edited[1]["spec"]["policyName"] = "another"
    messages = {message for _, message in found(*edited).values()}
    assert messages == {"it was changed by hand", "no binding names it, so it has no effect"}


def _weaker(objects: dict[str, Object]) -> None:
    objects["gpuward-bypass-deny-in-mode-deny"]["spec"]["validationActions"] = ["Audit"]


def _edited(objects: dict[str, Object]) -> None:
    objects["gpuward-bypass-deny"]["spec"]["validations"][0]["expression"] = "true"


def _unbound(objects: dict[str, Object]) -> None:
    for mode in ("deny", "deny-workloads", "warn", "audit"):
        del objects[f"gpuward-bypass-deny-in-mode-{mode}"]


def _without_a_binding(objects: dict[str, Object]) -> None:
    del objects["gpuward-bypass-deny-in-mode-deny"]


def _without_some_namespaces(objects: dict[str, Object]) -> None:
    resources = objects["gpuward-bypass-deny-in-mode-deny"]["spec"]["matchResources"]
    resources["namespaceSelector"] = {"matchLabels": {"no-namespace": "has-it"}}


def _without_pods(objects: dict[str, Object]) -> None:
    constraints = objects["gpuward-bypass-deny"]["spec"]["matchConstraints"]
    constraints["excludeResourceRules"] = constraints["resourceRules"][:1]


def _tolerant(objects: dict[str, Object]) -> None:
    spec = objects["gpuward-bypass-deny"]["spec"]
    spec["failurePolicy"] = "Fail" if spec["failurePolicy"] == "Ignore" else "Ignore"


def _without_policy(objects: dict[str, Object]) -> None:
    del objects["gpuward-bypass-deny"]


def _ill_typed(objects: dict[str, Object]) -> None:
    warnings = [{"fieldRef": "spec.validations[0]", "warning": "undeclared reference"}]
    objects["gpuward-bypass-deny"]["status"] = {"typeChecking": {"expressionWarnings": warnings}}


@pytest.mark.parametrize(
    ("change", "subject", "message"),
    [
        (_weaker, BINDING, "its actions were changed by hand: Audit"),
        (_edited, POLICY, "its expressions were changed by hand"),
        (_unbound, POLICY, "no binding names it, so it has no effect"),
        (
            _without_a_binding,
            POLICY,
            "bindings that were written with it are missing: gpuward-bypass-deny-in-mode-deny",
        ),
        (
            _without_some_namespaces,
            BINDING,
            "the namespaces or objects that it is about were changed by hand",
        ),
        (_without_pods, POLICY, "where it acts, or what it does on a failure, was changed by hand"),
        (_tolerant, POLICY, "where it acts, or what it does on a failure, was changed by hand"),
        (_without_policy, "exported policies", "missing: gpuward-bypass-deny"),
        (_without_policy, BINDING, "its policy does not exist"),
        (_ill_typed, POLICY, "the API server finds faults in the types of 1 expression"),
    ],
)
def test_what_is_not_as_it_was_written_is_wrong(
    change: Callable[[dict[str, Object]], None], subject: str, message: str
) -> None:
    objects = {item["metadata"]["name"]: item for item in exported()}
    change(objects)
    assert found(*objects.values())[subject] == (State.WRONG, message)


def test_an_export_of_another_policy_is_wrong() -> None:
    """Than that of the release; without a release, than that of the command."""
    message = "it was made from another policy, or by another version of gpuward"
    other = load_policy(OTHER_POLICY, "a test")
    assert found(*exported(), policy=other)[POLICY] == (State.WRONG, message)
    config_map = in_release("ConfigMap", "gpuward-policy", data={"gpuward.yaml": OTHER_POLICY})
    release = (*installed(), recorded(), config_map)
    assert found(*release, *exported())[POLICY] == (State.WRONG, message)
    (row,) = found(*release, *exported(OTHER_POLICY), policy=default_policy()).values()
    assert row[0] is State.OK


def test_what_is_left_of_an_earlier_export_is_to_be_deleted() -> None:
    """With its bindings: nothing that a new export writes replaces or removes it."""
    keys = POLICY_HEADER + "rules: {visible-devices-key: {action: deny}}\n"
    before = [*validating_objects(load_policy(keys, "a test"), ExportOptions())]
    (row,) = rows(*before, policy=default_policy())[CHECK]
    policy = "validatingadmissionpolicy/gpuward-keys-deny"
    assert (row.subject, row.state) == (policy, State.WRONG)
    assert row.message == "the policy in force makes no such object"
    objects = {item["metadata"]["name"]: item for item in before}
    bindings = sorted(
        f"validatingadmissionpolicybinding/{name}"
        for name, item in objects.items()
        if item["spec"].get("policyName") == "gpuward-keys-deny"
    )
    assert bindings
    _, _, deleted = row.remedy.partition("kubectl delete ")
    assert deleted.split() == [*bindings, policy]
    del objects["gpuward-keys-deny"]
    without = rows(*objects.values(), policy=default_policy())[CHECK]
    assert [row.remedy.rpartition(" ")[2] for row in without] == bindings


def test_the_policy_about_keys_is_among_what_is_compared() -> None:
    policy = POLICY_HEADER + "rules: {visible-devices-key: {action: deny}}\n"
    options = (
        POLICY_HEADER + "rules: {visible-devices-key: {action: deny, options: {writers: [a]}}}\n"
    )
    objects = [*validating_objects(load_policy(policy, "a test"), ExportOptions())]
    keys = "validatingadmissionpolicy/gpuward-keys-deny"
    assert found(*objects, policy=load_policy(policy, "a test")).keys() == {"exported policies"}
    message = "it was made from another policy, or by another version of gpuward"
    other = found(*objects, policy=load_policy(options, "a test"))
    assert other == {keys: (State.WRONG, message)}
    without = found(*exported(policy), policy=load_policy(policy, "a test"))
    assert without == {"exported policies": (State.WRONG, "missing: gpuward-keys-deny")}


def test_without_the_right_it_is_not_known() -> None:
    forbidden = ("validatingadmissionpolicies",)
    ((state, message),) = found(*exported(), forbidden=forbidden).values()
    assert state is State.NOT_KNOWN
    assert "validatingadmissionpolicies" in message


LOADED = (
    'apiserver_manifest_admission_config_controller_last_config_info{apiserver_id_hash="sha256:0",'
    'hash="%s",plugin="%s"} 1\n'
)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    options = ExportOptions(RegistrationOptions(default=Action.DENY))
    return static_files(default_policy(), options, None, PurePosixPath("/a"))


@pytest.fixture
def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    write_folder(tmp_path, files)
    return tmp_path


def about_files(folder: Path, metrics: str | ClusterError | None) -> list[tuple[State, str]]:
    def request(_path: str) -> str:
        if isinstance(metrics, str):
            return metrics
        raise metrics or AssertionError

    source = cast("ObjectReader", Objects(is_complete=metrics is not None))
    facts = read_facts(source, default_policy(), request if metrics is not None else None)
    found = [*check_static_manifests(facts, str(folder))]
    assert all(bool(row.remedy) == (row.state is not State.OK) for row in found)
    return [(row.state, row.message) for row in found]


def test_files_that_the_api_server_has_loaded_are_ok(folder: Path) -> None:
    metrics = "".join(LOADED % (d, p) for p, d in digests_of_folder(folder).items())
    assert metrics.count("\n") == 2
    found = about_files(folder, f"{NO_METRICS}{metrics}")
    assert [state for state, _ in found] == [State.OK, State.OK]
    assert f"gpuward export static --check {folder}" in found[0][1]


def test_files_that_it_has_not_or_others_are_wrong(folder: Path) -> None:
    found = about_files(folder, NO_METRICS)
    assert [state for state, _ in found] == [State.WRONG, State.WRONG]
    assert "has loaded no files for MutatingAdmissionPolicy" in found[0][1]
    other = LOADED % ("sha256:1", "ValidatingAdmissionPolicy")
    (state, message) = about_files(folder, other)[1]
    assert (state, "has loaded other files" in message, "sha256:1" in message) == (
        *(State.WRONG, True, True),
    )
    (folder / "mutating-policies" / "gpuward.yaml").unlink()
    kept = LOADED % (
        digests_of_folder(folder)["ValidatingAdmissionPolicy"],
        "ValidatingAdmissionPolicy",
    )
    found = about_files(folder, kept + LOADED % ("sha256:2", "MutatingAdmissionPolicy"))
    assert [state for state, _ in found] == [State.WRONG, State.OK]
    assert "has none" in found[0][1]


def test_what_it_has_loaded_may_not_be_known(folder: Path, tmp_path: Path) -> None:
    for metrics, words in (
        (None, "only an API server says"),
        (ForbiddenError("GET /metrics: 403"), "its metrics cannot be read"),
    ):
        ((state, message),) = about_files(folder, metrics)
        assert (state, words in message) == (State.NOT_KNOWN, True)
    ((state, message),) = about_files(tmp_path / "missing", NO_METRICS)
    assert (state, "has no such files" in message) == (State.NOT_KNOWN, True)
