"""Tests of the audit of pods that are alike: it reports what it would if it looked at each."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.audit import evaluation
from cluster.audit.evaluation import ObjectEvaluator
from cluster.audit.facts import AuditFacts
from cluster.audit.replicas import replica_key
from policies.loading import default_policy, load_policy
from policies.policy import Policy
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule
from tests.testkit.admission.replicas import MAKERS, Maker, replica
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.cases import TODAY, Case, cases, inventory_of
from tests.testkit.full_pod import FULL_POD

MANIFESTS = [(case, case.manifest) for case in cases()]
PODS = [
    (case, manifest)
    for case, manifest in MANIFESTS
    if manifest.get("kind") == "Pod" and isinstance(manifest.get("spec"), dict)
]
CLEAN_PODS = [(case, manifest) for case, manifest in PODS if case.is_clean]
POLICY = default_policy()
NAMES = st.sampled_from(["", "a-0", "x" * 300, None, 5, ["a"]])


def running(manifest: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """The pod in `manifest` as an API server has it while it runs."""
    made = copy.deepcopy({"apiVersion": "v1", **manifest})
    made["metadata"] = {"name": "train-0", **(made.get("metadata") or {}), "uid": "1"}
    made["spec"] = {"nodeName": "node-1", **made["spec"], **spec}
    return {**made, "status": {"phase": "Running"}}


def new_evaluator(
    policy: Policy | None = None, inventory: Inventory = EMPTY_INVENTORY
) -> ObjectEvaluator:
    evaluator = ObjectEvaluator(policy or POLICY, TODAY)
    evaluator.use(AuditFacts(inventory=inventory))
    return evaluator


def reported(pods: Iterable[Any], case: Case | None = None, *, reuse: bool = True) -> Any:
    """What is reported of the pods, one after the other."""
    of_case = (case.policy, case.context.inventory) if case else ()
    with pytest.MonkeyPatch.context() as patch:
        if not reuse:
            patch.setattr(evaluation, "replica_key", lambda *_: None)
        evaluator = new_evaluator(*of_case)
        found = [evaluator.evaluate(raw).findings for raw in pods]
    results = evaluator.results
    counts = (results.objects, results.pods, results.components, results.other_objects)
    messages = [[(f.object, f.rule, f.path, f.message) for f in findings] for findings in found]
    return messages, counts, results.excepted, results.not_evaluated, evaluator.incomplete


def seeded(name: str) -> random.Random:
    return random.Random(name)  # noqa: S311


def with_other_names(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with other texts for all that is written for each pod alone."""
    other = copy.deepcopy(dict(raw))
    metadata, spec = other["metadata"], other["spec"]
    metadata |= {"name": "other", "uid": "2", "resourceVersion": "7"}
    spec["nodeName"] = "node-2"
    if spec.get("hostname"):
        spec["hostname"] = "other"
    for owner in metadata.get("ownerReferences") or ():
        owner |= {key: "other" for key in ("name", "uid") if owner.get(key)}
    for field in ("labels", "annotations"):
        written = metadata.get(field)
        for key in written if isinstance(written, dict) else ():
            if key.startswith(("batch.kubernetes.io/", "statefulset.kubernetes.io/")):
                written[key] = "other"
    return other


def test_no_finding_depends_on_what_is_written_for_each_pod_alone() -> None:
    """A rule that reads it would have a case that says so."""
    compared = 0
    for case, manifest in PODS:
        raw = running(manifest)
        raw["metadata"].setdefault("resourceVersion", "1")
        other = with_other_names(raw)
        inventory = case.context.inventory
        if replica_key(raw, inventory) == replica_key(other, inventory):
            context = Context(TODAY, inventory=inventory)
            found, found_in_other = (check(each, case.alone, context) for each in (raw, other))
            assert bool(found.findings) == bool(found_in_other.findings), case.name
            compared += 1
    assert compared > 0.9 * len(PODS)


def test_cases_do_not_hide_each_other() -> None:
    pods = [running(manifest) for _, manifest in PODS]
    for each in pods:
        each["metadata"]["namespace"] = "ml"
    findings, *_ = reported(pods, reuse=False)
    order = sorted(range(len(pods)), key=lambda number: len(findings[number]))
    ordered = [pods[number] for number in order]  # the clean ones first
    assert reported(ordered)[0] == [findings[number] for number in order]


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in `value`."""
    if not isinstance(value, dict | list):
        return [path]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, item in pairs for place in paths_in(item, (*path, key)))]


def value_at(value: Any, path: Iterable[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


PARTS = [value_at(FULL_POD, path) for path in paths_in(FULL_POD)]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(PARTS),
    st.sampled_from([None, True, 0, 1.5, "", "all", "kube-api-access-aaaaa", {}, [], "node-2"]),
)
KEYS = sorted({path[-1] for path in paths_in(FULL_POD) if path and isinstance(path[-1], str)})


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(CLEAN_PODS), st.data())
def test_pods_that_differ_in_one_field_are_reported_as_if_each_was_evaluated(
    clean: tuple[Case, Any], data: st.DataObject
) -> None:
    case, manifest = clean
    first = running(manifest)
    second = copy.deepcopy(first)
    place = data.draw(st.sampled_from(paths_in(second)[1:]))
    held = value_at(second, place)
    if isinstance(held, dict) and data.draw(st.booleans()):
        place = (*place, data.draw(st.sampled_from(KEYS)))
    value_at(second, place[:-1])[place[-1]] = copy.deepcopy(data.draw(VALUES))
    pods = [first, second, first]
    assert reported(pods, case) == reported(pods, case, reuse=False)


@settings(deadline=None)
@given(
    st.sampled_from([("metadata", "name"), ("metadata", "uid"), ("spec", "nodeName")]),
    NAMES,
    NAMES,
)
def test_a_name_of_another_type_is_reported(place: tuple[str, str], one: Any, other: Any) -> None:
    pods = []
    for name in (one, other):
        pods.append(running(pod(container(**gpus(limits=1)))))
        pods[-1][place[0]][place[1]] = name
    assert reported(pods) == reported(pods, reuse=False)


CLEAN = pod(container(**gpus(limits=1)), volumes=[{"name": "d", "emptyDir": {}}])


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects for which rules have run."""
    found = []

    def recorded(manifest: Any, *arguments: Any, **options: Any) -> Any:
        found.append(manifest)
        return check(manifest, *arguments, **options)

    monkeypatch.setattr(evaluation, "check", recorded)
    return found


@pytest.mark.parametrize("maker", MAKERS)
def test_replicas_are_evaluated_once(maker: Maker, evaluated: list[Any]) -> None:
    choices = seeded(maker)
    evaluator = new_evaluator()
    for number in range(4):
        made = replica(CLEAN, choices, maker)
        # The claim that a StatefulSet makes for a pod may be any.
        volumes = [v for v in made["spec"]["volumes"] if "persistentVolumeClaim" not in v]
        made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"j{number}"}]
        made["spec"] |= {"nodeName": f"node-{number}", "volumes": volumes}
        evaluator.evaluate({**made, "status": {"phase": "Running", "podIP": f"10.0.0.{number}"}})
    assert (len(evaluated), evaluator.results.pods) == (1, 4)


VOLUME_NAME = "kube-api-access-aaaaa"


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": VOLUME_NAME},
        {"containers": [container(**variable(VOLUME_NAME))]},
        {
            "volumes": [
                {"name": VOLUME_NAME, "projected": {}},
                {"name": "d", "configMap": {"name": VOLUME_NAME}},
            ]
        },
    ],
)
def test_a_name_like_that_of_a_token_volume_stays_where_it_may_matter(spec: Any) -> None:
    volumes = [{"name": VOLUME_NAME, "projected": {}}]
    first = running(CLEAN, **{"volumes": volumes, **spec})
    second = json.loads(json.dumps(first).replace("-aaaaa", "-zzzzz"))
    assert replica_key(first, EMPTY_INVENTORY) is None
    assert replica_key(second, EMPTY_INVENTORY) is None


def test_a_mount_of_another_volume_than_the_token_counts() -> None:
    mounts = [{"name": VOLUME_NAME, "mountPath": "/a"}, {"name": "kube-api-access-bbbbb"}]
    volumes = [
        {"name": VOLUME_NAME, "projected": {}},
        {"name": "kube-api-access-bbbbb", "emptyDir": {}},
    ]
    first = running(pod(container(volumeMounts=mounts[:1]), volumes=volumes))
    second = running(pod(container(volumeMounts=mounts[1:]), volumes=volumes))
    keys = {replica_key(each, EMPTY_INVENTORY) for each in (first, second)}
    assert len(keys - {None}) == 2


def warn_without_label(pod: Pod, _context: Context) -> Findings:
    """A rule about something that no other rule reads."""
    if "team" not in pod.labels:
        yield Finding(path=pod.metadata_path, key="team", message="no label says whose it is")


def test_a_rule_may_read_what_no_other_rule_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = define_rule(warn_without_label, action=Action.WARN, since="0.1", needs=())
    monkeypatch.setattr("policies.policy.CATALOG", (*CATALOG, rule))
    policy = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "policy")
    evaluator = new_evaluator(policy)
    found = []
    for labels in ({"team": "vision"}, {"app": "vision"}, {"team": "vision"}):
        made = running(CLEAN)
        made["metadata"]["labels"] = labels
        found.append(len(evaluator.evaluate(made).findings))
    assert found == [0, 1, 0]


def test_a_pod_that_an_exception_names_excuses_no_replica() -> None:
    text = """\
apiVersion: gpuward.io/v1
kind: Policy
exceptions:
- {rules: [visible-devices-env], match: {namespace: ml, name: allowed-*}, reason: it may}
"""
    evaluator = new_evaluator(load_policy(text, "policy"))
    found = []
    for name in ("allowed-0", "other-0", "allowed-1", "other-1"):
        made = running(pod(container(**variable("all"))))
        made["metadata"] |= {"name": name, "namespace": "ml"}
        found.append([finding.rule for finding in evaluator.evaluate(made).findings])
    assert found == [[], ["visible-devices-env"]] * 2
    assert evaluator.results.excepted == 2


def test_few_clean_pods_are_remembered(
    evaluated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rules.base.caching.MAX_ENTRIES", 3)
    evaluator = new_evaluator()
    for number in (0, 0, 1, 2, 3, 0):
        made = running(CLEAN)
        made["metadata"]["namespace"] = f"team-{number}"
        evaluator.evaluate(made)
    namespaces = [each["metadata"]["namespace"] for each in evaluated]
    assert namespaces == ["team-0", "team-1", "team-2", "team-3", "team-0"]


def test_facts_that_are_learned_later_count() -> None:
    evaluator = ObjectEvaluator(POLICY, TODAY)
    metadata = {"name": "settings", "namespace": "ml"}
    settings_of_team = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"NVIDIA_VISIBLE_DEVICES": "all"},
    }
    made = running(pod(container(envFrom=[{"configMapRef": {"name": "settings"}}])))
    made["metadata"]["namespace"] = "ml"
    assert not evaluator.evaluate(made).findings
    evaluator.use(AuditFacts(inventory=inventory_of([settings_of_team], POLICY.profile)))
    assert evaluator.evaluate(made).findings
