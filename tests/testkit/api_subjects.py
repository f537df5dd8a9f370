"""What the laws about the API server are asserted of: every case, and public manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lint.manifests import File, UnparsedDocument
from lint.sources import Source, sources
from policies.loading import default_policy
from rules.base.json_patch import Path as Place
from rules.base.json_patch import value_at
from rules.engine.fixing import check, fix
from rules.finding import Finding, FixScope
from rules.objects.layout import POD_SPEC
from rules.objects.pod import Pod
from rules.policy import RuleSet
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import TODAY, cases
from tests.testkit.dry_runs import RESOURCES


class Sent(NamedTuple):
    """One object for the API server: a manifest or a pod in it, in one form, with its findings.

    The forms are `input` and, named by what was fixed: `alone` by the case's own rule,
    `together` by all rules of its policy, `everything` with the fixes that are not made unasked,
    and `default`, fixed and judged by the default policy, as is `input-default`, unfixed.
    """

    subject: str
    form: str
    object: Any
    findings: list[Finding]


class Subjects:
    """Gathers what can be sent, and counts what cannot."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.skipped: Counter[str] = Counter()

    def add(self, name: str, manifest: Any, forms: Mapping[str, RuleSet], context: Context) -> None:
        """Add `manifest` as it is, judged by the first of `forms`, and fixed by each."""
        judges = iter(forms.values())
        first = next(judges)
        places = _places(manifest, first, self.skipped)
        self._add(name, "input", places, manifest, check(manifest, first, context).findings)
        default = forms["default"]
        if default is not first:
            found = check(manifest, default, context).findings
            self._add(name, "input-default", places, manifest, found)
        for form, rules in forms.items():
            judge = default if form == "default" else first
            fixed = fix(manifest, rules, context).manifest
            self._add(name, form, places, fixed, check(fixed, judge, context).findings)

    def _add(
        self, name: str, form: str, places: list[Place], manifest: Any, found: list[Finding]
    ) -> None:
        for place in places:
            inside = [f for f in found if f.path[: len(place)] == place]
            which = "/".join(map(str, (name, *place)))
            self.sent.append(Sent(which, form, _object(manifest, place), inside))


def of_the_cases() -> Subjects:
    """Every case."""
    subjects = Subjects()
    default = default_policy().rule_set()
    for case in cases():
        own = case.policy.rule_set()
        forms = {"together": own, "alone": case.alone, "everything": unasked(own)}
        subjects.add(case.name, case.manifest, {**forms, "default": default}, case.context)
    return subjects


def of_the_cases_in_deployments() -> Subjects:
    """Every pod of the cases as the template of a Deployment, where it makes sense there."""
    subjects = Subjects()
    default = default_policy().rule_set()
    for case in cases():
        pod = case.manifest
        if pod["kind"] != "Pod" or "pod_only" in case.circumstances:
            continue
        # A template may have none, whatever is in them.
        if not pod["spec"].get("ephemeralContainers"):
            forms = {"together": case.policy.rule_set(), "default": default}
            subjects.add(case.name, in_a_deployment(pod), forms, case.context)
    return subjects


def of_the_corpus(corpus: Path) -> Subjects:
    """Every public manifest that holds something to judge."""
    subjects = Subjects()
    rules = default_policy().rule_set()
    forms = {"default": rules, "everything": unasked(rules)}
    for name, manifest in public(corpus):
        if next(find_subjects(manifest, rules.profile), None) is None:
            subjects.skipped["holds nothing to judge"] += 1
        else:
            subjects.add(name, manifest, forms, Context(TODAY))
    return subjects


def unasked(rules: RuleSet) -> RuleSet:
    """The same rules with all their fixes, also those that must be asked for."""
    eager = tuple(active._replace(scope=FixScope.ALL) for active in rules.rules)
    return RuleSet(eager, rules.profile, rules.exceptions)


def public(corpus: Path) -> Iterator[tuple[str, Any]]:
    """Every public manifest, named by its file and its number there."""
    for source in sources([str(corpus)]):
        assert isinstance(source, Source), source
        for number, document in enumerate(File(source).manifests()):
            assert not isinstance(document, UnparsedDocument), source.name
            yield f"{Path(source.name).relative_to(corpus)}:{number}", document.value


def _places(manifest: Any, rules: RuleSet, skipped: Counter[str]) -> list[Place]:
    """Where the objects to send are: the manifest itself or, in a custom one, its templates."""
    if (manifest.get("apiVersion"), manifest["kind"]) in RESOURCES:
        return [()]
    found = []
    for pod in find_subjects(manifest, rules.profile):
        assert isinstance(pod, Pod), pod
        if pod.layout is POD_SPEC and _is_template(pod.path):
            found.append(pod.path[:-1])
        else:
            skipped[f"{manifest['kind']}, {'.'.join(map(str, pod.path))}"] += 1
    return found


def _is_template(path: Place) -> bool:
    """Whether a whole pod spec is there, and not a few of its fields."""
    return len(path) > 1 and path[-1] == "spec" and str(path[-2]).lower().endswith("template")


def _object(manifest: Any, place: Place) -> Any:
    return template_of(manifest, place) if place else manifest


def template_of(manifest: Any, place: Place) -> Any:
    """The pod that is made from the template at `place`."""
    template: Any = value_at(manifest, place)
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("annotations", "labels") if key in metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": template["spec"]}


def in_a_deployment(manifest: Any) -> Any:
    """A pod as the template of a Deployment; a workload as it is."""
    if manifest["kind"] != "Pod":
        return manifest
    metadata = manifest.get("metadata", {})
    whole = {"apiVersion": "apps/v1", "kind": "Deployment"}
    holder = {"name": "holder", "namespace": metadata.get("namespace")}
    template = {"metadata": metadata, "spec": manifest["spec"]}
    return {**whole, "metadata": holder, "spec": {"template": template}}
