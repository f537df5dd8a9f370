"""The policies that `gpuward export` has written: whether API servers do what it wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cluster.api.errors import ClusterError
from cluster.doctor.checks.release import policy_in_force
from cluster.doctor.facts import DoctorFacts, by_name, why_missing
from cluster.doctor.rows import Row, first_few, not_known, ok, wrong
from cluster.source.objects import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    Object,
    Resource,
)
from reports.formats import many
from rules.base.json_values import as_object, as_objects, as_text
from terminal import DOCS_URL, reason_of
from webhook.in_process.exports import EXPORTS, Maker
from webhook.in_process.objects import (
    BINDINGS_ANNOTATION,
    DIGEST_ANNOTATION,
    SPEC_DIGEST_ANNOTATION,
    ExportOptions,
    digest_of,
    spec_digest_of,
)
from webhook.in_process.static_manifests import digests_of_folder

_CHECK = "in process"
_FILES = "files of the API server"
# Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/admission/plugin/manifest/metrics/metrics.go.
_LOADED = re.compile(
    r"^apiserver_manifest_admission_config_controller_last_config_info\{(?P<labels>[^}\n]*)\} 1$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"\n]*)"')


class _Kind(NamedTuple):
    """One kind of export: what writes it, its resources, and how the command calls it."""

    word: str
    policies: Resource
    bindings: Resource
    make: Maker

    @property
    def remedy(self) -> str:
        """Return how to write the objects again."""
        return (
            "export them again, with the options that were used before: "
            f"gpuward export {self.word} --policy FILE | kubectl apply --server-side -f -"
        )


_KINDS = (
    _Kind("vap", VALIDATING_POLICIES, VALIDATING_BINDINGS, EXPORTS["vap"]),
    _Kind("map", MUTATING_POLICIES, MUTATING_BINDINGS, EXPORTS["map"]),
)


def check_in_process(facts: DoctorFacts) -> Iterator[Row]:
    """A row for each exported object that is not as it was written, or one that all are."""
    for kind in _KINDS:
        for resource in (kind.policies, kind.bindings):
            if row := why_missing(facts, _CHECK, resource):
                yield row
                return
    faults: list[Row] = []
    number = 0
    for kind in _KINDS:
        policies = exported_objects(facts, kind.policies)
        bindings = exported_objects(facts, kind.bindings)
        number += len(policies) + len(bindings)
        if policies or bindings:
            expected = _expected_digests(facts, kind)
            faults += _faults_of_policies(kind, policies, bindings, expected)
            faults += _faults_of_bindings(facts, kind, bindings, expected)
    yield from faults
    if number and not faults:
        what = f"{many(number, 'object')}, as gpuward exports them"
        yield ok(_CHECK, "exported policies", what)


def check_static_manifests(facts: DoctorFacts, folder: str) -> Iterator[Row]:
    """A row for each plugin whose files the API server has loaded, or should have.

    `folder` is one that `gpuward export static` has written.
    """
    try:
        wanted = digests_of_folder(Path(folder))
    except OSError as error:
        remedy = "name a folder that `gpuward export static` has written"
        why = reason_of(error)
        yield not_known(_CHECK, _FILES, f"{error.filename or folder}: {why}", remedy)
        return
    if not wanted:
        remedy = f"write it: gpuward export static --folder {folder}"
        yield not_known(_CHECK, _FILES, f"{folder} has no such files", remedy)
        return
    if facts.request is None:
        remedy = "run the command with a connection to the cluster"
        yield not_known(_CHECK, _FILES, "only an API server says what it has loaded", remedy)
        return
    try:
        metrics = facts.metrics if isinstance(facts.metrics, str) else facts.request("/metrics")
    except ClusterError as error:
        remedy = "grant `get` on the nonResourceURL /metrics"
        yield not_known(_CHECK, _FILES, f"its metrics cannot be read: {error}", remedy)
        return
    labels = (dict(_LABEL.findall(found["labels"])) for found in _LOADED.finditer(metrics))
    loaded = {each.get("plugin", ""): each.get("hash", "") for each in labels}
    for plugin in sorted({*wanted, *loaded}):
        yield _row_of_plugin(plugin, wanted.get(plugin), loaded.get(plugin), folder)


def _row_of_plugin(plugin: str, wanted: str | None, loaded: str | None, folder: str) -> Row:
    if wanted == loaded:
        message = (
            f"the API server that answered has loaded the files for {plugin} in {folder}; whether "
            f"they are those of the policy: gpuward export static --check {folder}"
        )
        return ok(_CHECK, _FILES, message)
    if loaded is None:
        message = f"the API server that answered has loaded no files for {plugin}"
    elif wanted is None:
        message = f"the API server that answered has files for {plugin}, and {folder} has none"
    else:
        message = f"the API server that answered has loaded other files for {plugin}: {loaded}"
    remedy = (
        f"copy {folder} to the machines of all API servers, name it in the flag "
        f"--admission-control-config-file, and look into their logs: {DOCS_URL}/static-manifests.md"
    )
    return wrong(_CHECK, _FILES, message, remedy)


def exported_objects(facts: DoctorFacts, resource: Resource) -> Mapping[str, Object]:
    """The objects that `gpuward export` has written, by name. Helm changes their labels."""
    return {
        name: item
        for name, item in by_name(facts.objects(resource))
        if _annotation(item, DIGEST_ANNOTATION)
    }


def _faults_of_policies(
    kind: _Kind,
    policies: Mapping[str, Object],
    bindings: Mapping[str, Object],
    expected: Mapping[str, str] | None,
) -> Iterator[Row]:
    """`expected` has the digests of the policies that should be there, if they are known."""
    bound = {_policy_of(item) for item in bindings.values()}
    for name, item in policies.items():
        subject = f"{kind.policies.kind.lower()}/{name}"
        if expected is not None and name not in expected:
            own = [binding for binding, item in bindings.items() if _policy_of(item) == name]
            remedy = _deletion(kind, [name], own)
            yield wrong(_CHECK, subject, "the policy in force makes no such object", remedy)
            continue
        checked = as_object(as_object(item.get("status")).get("typeChecking"))
        if faulty := as_objects(checked.get("expressionWarnings")):
            message = (
                f"the API server finds faults in the types of {many(len(faulty), 'expression')}"
            )
            yield wrong(_CHECK, subject, message, kind.remedy)
        written = [each for each in _annotation(item, BINDINGS_ANNOTATION).split(",") if each]
        if name not in bound:
            yield wrong(_CHECK, subject, "no binding names it, so it has no effect", kind.remedy)
        elif missing := [each for each in written if each not in bindings]:
            message = f"bindings that were written with it are missing: {first_few(missing)}"
            yield wrong(_CHECK, subject, message, kind.remedy, names=missing)
        if _is_changed(item):
            yield wrong(_CHECK, subject, "its expressions were changed by hand", kind.remedy)
        elif _is_moved(item):
            message = "where it acts, or what it does on a failure, was changed by hand"
            yield wrong(_CHECK, subject, message, kind.remedy)
        elif expected is not None and expected[name] != digest_of(item):
            message = "it was made from another policy, or by another version of gpuward"
            yield wrong(_CHECK, subject, message, kind.remedy)
    if missing := sorted((expected or {}).keys() - policies.keys()):
        message = f"missing: {first_few(missing)}"
        yield wrong(_CHECK, "exported policies", message, kind.remedy, names=missing)


def _faults_of_bindings(
    facts: DoctorFacts,
    kind: _Kind,
    bindings: Mapping[str, Object],
    expected: Mapping[str, str] | None,
) -> Iterator[Row]:
    there = {name for name, _ in by_name(facts.objects(kind.policies))}
    for name, item in bindings.items():
        subject = f"{kind.bindings.kind.lower()}/{name}"
        spec = as_object(item.get("spec"))
        if (policy := _policy_of(item)) not in there:
            is_left_over = expected is not None and policy not in expected
            remedy = _deletion(kind, [], [name]) if is_left_over else kind.remedy
            yield wrong(_CHECK, subject, "its policy does not exist", remedy)
        if _is_changed(item):
            message = "it was changed by hand"
            if isinstance(actions := spec.get("validationActions"), list):
                message = f"its actions were changed by hand: {', '.join(map(str, actions))}"
            yield wrong(_CHECK, subject, message, kind.remedy)
        elif _is_moved(item):
            message = "the namespaces or objects that it is about were changed by hand"
            yield wrong(_CHECK, subject, message, kind.remedy)


def _policy_of(binding: Object) -> str:
    return as_text(as_object(binding.get("spec")).get("policyName"))


def _deletion(kind: _Kind, policies: Iterable[str], bindings: Iterable[str]) -> str:
    """Return how to delete what is left of an earlier export, bindings before their policy."""
    names = [
        *(f"{kind.bindings.kind.lower()}/{name}" for name in bindings),
        *(f"{kind.policies.kind.lower()}/{name}" for name in policies),
    ]
    return f"if it is left of an earlier export, delete it: kubectl delete {' '.join(names)}"


def _is_changed(item: Object) -> bool:
    return _annotation(item, DIGEST_ANNOTATION) != digest_of(item)


def _is_moved(item: Object) -> bool:
    """Return whether an object does what it did when it was written, elsewhere."""
    return _annotation(item, SPEC_DIGEST_ANNOTATION) != spec_digest_of(item)


def _annotation(item: Object, name: str) -> str:
    return as_text(as_object(as_object(item.get("metadata")).get("annotations")).get(name))


def _expected_digests(facts: DoctorFacts, kind: _Kind) -> Mapping[str, str] | None:
    """The digests of the policies that the policy in force makes, by name; None if not known."""
    policy = policy_in_force(facts)
    if policy is None:
        return None
    return {
        made["metadata"]["name"]: made["metadata"]["annotations"][DIGEST_ANNOTATION]
        for made in kind.make(policy, ExportOptions())
        if made["kind"] == kind.policies.kind
    }
