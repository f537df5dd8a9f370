"""The objects that tests submit to the API server: every case, and public manifests."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from policies.loading import default_policy
from rules.base.json_values import Path as JsonPath
from rules.base.json_values import value_at
from rules.engine.fixing import check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Finding, FixScope
from rules.objects.container import POD_SPEC
from rules.objects.kubernetes_objects import DeviceClaim, DeviceSpec, KubernetesObject, Quota
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from sources.manifests import File, UnparsedDocument
from sources.paths import inputs
from sources.sources import InputFile, Source
from tests.testkit.cases import TODAY, cases
from tests.testkit.dry_runs import RESOURCES


class Submission(NamedTuple):
    """One object for the API server: a manifest or a pod in it, in one form, with its findings.

    `subject` names the manifest, and the path of the pod in it. `form` says what was fixed:
    - `input`: nothing
    - `alone`: the findings of the case's own rule
    - `together`: the findings of all rules of the case's policy
    - `everything`: the same, with the fixes that a policy must enable
    - `default`: the findings of the default policy
    - `input-default`: nothing; the findings are those of the default policy
    """

    subject: str
    form: str
    object: Any
    findings: list[Finding]


class SubmissionCollector:
    """Collects the objects that can be submitted, and counts those that cannot."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.skipped: Counter[str] = Counter()

    def add(self, name: str, manifest: Any, forms: Mapping[str, RuleSet], context: Context) -> None:
        """Add `manifest` unfixed, with the findings of the first of `forms`, and fixed by each."""
        rule_sets = iter(forms.values())
        first = next(rule_sets)
        paths = _object_paths(manifest, first, self.skipped)
        self._add(name, "input", paths, manifest, check(manifest, first, context).findings)
        default = forms["default"]
        if default is not first:
            found = check(manifest, default, context).findings
            self._add(name, "input-default", paths, manifest, found)
        for form, rules in forms.items():
            rules_after = default if form == "default" else first
            fixed = fix(manifest, rules, context).manifest
            self._add(name, form, paths, fixed, check(fixed, rules_after, context).findings)

    def _add(
        self, name: str, form: str, paths: list[JsonPath], manifest: Any, found: list[Finding]
    ) -> None:
        for path in paths:
            findings = [f for f in found if f.path[: len(path)] == path]
            subject = "/".join(map(str, (name, *path)))
            self.submissions.append(Submission(subject, form, _object(manifest, path), findings))


@functools.cache
def case_submissions() -> SubmissionCollector:
    """The manifest of every case."""
    subjects = SubmissionCollector()
    default = default_policy().rule_set()
    for case in cases():
        own_rules = case.rules
        forms = {
            "together": own_rules,
            "alone": case.alone,
            "everything": with_all_fixes(own_rules),
        }
        subjects.add(case.name, case.manifest, {**forms, "default": default}, case.context)
    return subjects


def deployment_submissions() -> SubmissionCollector:
    """Every pod of the cases as the template of a Deployment, if it is valid there."""
    subjects = SubmissionCollector()
    default = default_policy().rule_set()
    for case in cases():
        pod = case.manifest
        if pod["kind"] != "Pod" or "pod_only" in case.circumstances:
            continue
        # A pod template may not have ephemeral containers.
        if not pod["spec"].get("ephemeralContainers"):
            forms = {"together": case.rules, "default": default}
            subjects.add(case.name, wrap_in_deployment(pod), forms, case.context)
    return subjects


@functools.cache
def corpus_submissions(corpus: Path) -> SubmissionCollector:
    """Every public manifest in which the rules have something to check."""
    subjects = SubmissionCollector()
    rules = default_policy().rule_set()
    forms = {"default": rules, "everything": with_all_fixes(rules)}
    for name, manifest in public_manifests(corpus):
        if next(find_subjects(manifest, rules.profile), None) is None:
            subjects.skipped["nothing to check"] += 1
        else:
            subjects.add(name, manifest, forms, Context(TODAY))
    return subjects


def with_all_fixes(rules: RuleSet) -> RuleSet:
    """Return `rules` with all their fixes, also those that a policy must enable."""
    active_rules = tuple(active._replace(fix_scope=FixScope.ALL) for active in rules.rules)
    return RuleSet(active_rules, rules.profile, rules.exceptions)


def public_manifests(corpus: Path) -> Iterator[tuple[str, Any]]:
    """Every public manifest, named by its file and its position in the file."""
    for given in inputs([str(corpus)]):
        source = given.read() if isinstance(given, InputFile) else given
        assert isinstance(source, Source), source
        for number, document in enumerate(File(source).manifests()):
            assert not isinstance(document, UnparsedDocument), source.name
            yield f"{Path(source.name).relative_to(corpus)}:{number}", document.value


def _object_paths(manifest: Any, rules: RuleSet, skipped: Counter[str]) -> list[JsonPath]:
    """The paths of the objects to submit: the root, or the pod templates of a custom resource."""
    if (manifest.get("apiVersion"), manifest["kind"]) in RESOURCES:
        return [()]
    found = []
    for pod in find_subjects(manifest, rules.profile):
        if isinstance(pod, DeviceClaim):
            # Old releases do not serve claims, and new ones want a label of their namespace.
            skipped["a claim for devices"] += 1
            continue
        if isinstance(pod, DeviceSpec):
            skipped["a device class"] += 1
            continue
        if isinstance(pod, (KubernetesObject, Quota)):
            continue  # no pod, or the workload around one that is found as well
        assert isinstance(pod, Pod), pod
        if pod.layout is POD_SPEC and _is_template(pod.path):
            found.append(pod.path[:-1])
        else:
            skipped[f"{manifest['kind']}, {'.'.join(map(str, pod.path))}"] += 1
    return found


def _is_template(path: JsonPath) -> bool:
    """Return whether `path` leads to a complete pod spec, and not to a few fields of one."""
    return len(path) > 1 and path[-1] == "spec" and str(path[-2]).lower().endswith("template")


def _object(manifest: Any, path: JsonPath) -> Any:
    return pod_from_template(manifest, path) if path else manifest


def pod_from_template(manifest: Any, path: JsonPath) -> Any:
    """The pod that is created from the template at `path`."""
    template: Any = value_at(manifest, path)
    metadata = template.get("metadata") or {}
    metadata_of_pod = {key: metadata[key] for key in ("annotations", "labels") if key in metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata_of_pod,
        "spec": template["spec"],
    }


def wrap_in_deployment(manifest: Any) -> Any:
    """A Deployment with the pod as its template; a workload as it is."""
    if manifest["kind"] != "Pod":
        return manifest
    metadata = manifest.get("metadata", {})
    kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
    holder = {"name": "holder", "namespace": metadata.get("namespace")}
    template = {"metadata": metadata, "spec": manifest["spec"]}
    return {**kind, "metadata": holder, "spec": {"template": template}}
