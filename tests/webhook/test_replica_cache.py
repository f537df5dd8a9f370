"""Tests of the cache of decisions: it answers as the engine would, and stays within its bounds."""

from __future__ import annotations

import copy
import datetime
import json
import random
import sys
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loading import load_policy
from rules.catalog.index import CATALOG
from rules.engine.bounds import StepLimit, TooManyStepsError
from rules.finding import Finding
from rules.rule import Action, Context, Findings, Pod, define_rule
from tests.testkit.admission.replicas import (
    ACCOUNT_MOUNT,
    MAKERS,
    Maker,
    review_of_replica,
)
from tests.testkit.admission.reviews import (
    container,
    decider_of,
    deployment,
    gpus,
    pod,
    review_body,
    variable,
)
from tests.testkit.cases import TODAY, Case, cases
from tests.testkit.for_every_case import for_every_case
from tests.testkit.full_pod import FULL_POD
from webhook.admission.answer import Answer, answer
from webhook.admission.decider import Decider
from webhook.registration import ROUTES
from webhook.replica_cache import MAX_CACHE_BYTES, ReplicaCache
from webhook.server.handlers import new_replica_cache
from webhook.settings import Limits

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
DECIDER = Decider(load_policy(POLICY, "policy"))
PODS = [case for case in cases() if case.manifest.get("kind") == "Pod"]
SHARE = variable("$(WHICH)", "NVIDIA_VISIBLE_DEVICES")
BYPASS = pod(container(**variable("all")))


def excepting(circumstances: str) -> str:
    """A policy with one exception."""
    exception = f"rules: [visible-devices-env], reason: r, {circumstances}"
    return f"{POLICY}exceptions:\n- {{{exception}}}\n"


def new_cache(**bounds: int) -> ReplicaCache:
    given = {"max_objects": Limits().small_review_objects, "max_steps": 60_000, **bounds}
    return ReplicaCache(**given)


def seeded(name: str) -> random.Random:
    return random.Random(name)  # noqa: S311


def judged(body: bytes, path: str, decider: Decider = DECIDER) -> Answer:
    """The answer of the engine."""
    return answer(decider, ROUTES[path], body, TODAY)


def encoded(manifest: Any, **circumstances: Any) -> bytes:
    return json.dumps(review_body(manifest, **circumstances), separators=(",", ":")).encode()


def recalled(body: bytes, path: str = "/validate/deny", cache: ReplicaCache | None = None) -> bool:
    """Return whether the cache answers the review in `body`, as the engine would in any case."""
    found = (cache or new_cache()).answer(DECIDER, TODAY, path, body)
    assert found in (None, judged(body, path))
    return found is not None


def namespace_of(case: Case) -> str:
    """The namespace of a request, which is that of its pod."""
    metadata = case.manifest.get("metadata")
    written = metadata.get("namespace") if isinstance(metadata, dict) else None
    return written or case.context.namespace or "team-vision"


@for_every_case(PODS)
def test_replicas_get_the_answers_that_the_engine_would_give(case: Case) -> None:
    decider, choices = decider_of(case), seeded(case.name)
    manifest = {"apiVersion": "v1", **case.manifest}
    user = case.context.user or "alice"
    namespace = namespace_of(case)
    for path, maker in zip(ROUTES, cycle(MAKERS), strict=False):
        cache = new_cache()
        for _ in range(2):
            body = review_of_replica(manifest, choices, maker, user=user, namespace=namespace)
            found = cache.answer(decider, TODAY, path, body)
            assert found is None or found == judged(body, path, decider)
        if cache.misses and not decider.depends_on_names(namespace):
            assert (cache.hits, cache.misses) == (1, 1), maker


@pytest.mark.parametrize("maker", MAKERS)
def test_nearly_all_cases_are_answered_by_the_cache(maker: Maker) -> None:
    cache, choices = new_cache(), seeded("all")
    bodies = [
        review_of_replica(case.manifest, choices, maker, namespace=namespace_of(case))
        for case in PODS
    ]
    answered = [cache.answer(DECIDER, TODAY, "/mutate/deny", body) for body in bodies]
    assert answered.count(None) < len(PODS) / 10


@for_every_case(PODS)
def test_no_decision_depends_on_the_name_that_a_case_has(case: Case) -> None:
    """The cache leaves names out. A rule about some names would have a case with such a name."""
    if any(exception.names for exception in case.policy.exceptions):
        return
    decider, namespace = decider_of(case), namespace_of(case)
    user = case.context.user or "alice"

    def decided(name: str) -> Any:
        manifest = copy.deepcopy({"apiVersion": "v1", **case.manifest})
        manifest.setdefault("metadata", {})["name"] = name
        review = review_body(manifest, user=user, namespace=namespace)
        found = judged(json.dumps(review).encode(), "/validate/deny", decider)
        return found.outcome, found.rule_outcomes, found.details

    metadata = case.manifest.get("metadata")
    own = metadata.get("name") if isinstance(metadata, dict) else None
    assert decided(own or "train") == decided("another")


def test_managed_fields_do_not_count_as_objects_of_a_pod() -> None:
    cache = new_cache(max_objects=100)
    manifest = pod(container(**variable("all")))
    fields: dict[str, Any] = {f"f:{number}": {} for number in range(200)}
    manager = {"manager": "kubelet", "operation": "Update", "fieldsV1": fields}
    manifest["metadata"]["managedFields"] = [manager]
    for _ in range(2):
        assert recalled(encoded(manifest), cache=cache)
    assert cache.hits == 1


LABEL = "app.kubernetes.io/name"


def warn_without_label(pod: Pod, _context: Context) -> Findings:
    """A rule about something that no other rule reads."""
    if pod.is_complete and {LABEL, "app"}.isdisjoint(pod.labels):
        yield Finding(path=pod.metadata_path, key=LABEL, message="no label says what it is")


def test_a_rule_may_read_whatever_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be told to the cache."""
    rule = define_rule(warn_without_label, action=Action.WARN, since="0.1", needs=())
    monkeypatch.setattr("policies.policy.CATALOG", (*CATALOG, rule))
    decider, cache = Decider(load_policy(POLICY, "policy")), new_cache()
    for labels in ({LABEL: "train"}, {"team": "vision"}, {LABEL: "eval"}, {"team": "audio"}):
        manifest = pod(container(**gpus(limits=1)))
        manifest["metadata"]["labels"] = labels
        for _ in range(2):
            found = cache.answer(decider, TODAY, "/validate/deny", encoded(manifest))
            assert found == judged(encoded(manifest), "/validate/deny", decider)
            assert (b"no label says" in found.body) == ("team" in labels)
    assert (cache.hits, cache.misses) == (4, 4)


def odd_values() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "$(A)", "kube-api-access-aaaaa"])
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in `value`."""
    if not isinstance(value, dict | list):
        return [path]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, item in pairs for place in paths_in(item, (*path, key)))]


PLACES = [path for path in paths_in(FULL_POD) if path]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(PLACES), odd_values(), st.sampled_from([*ROUTES]))
def test_a_broken_pod_is_answered_as_without_the_cache(
    place: tuple[Any, ...], value: Any, path: str
) -> None:
    manifest = copy.deepcopy(FULL_POD)
    parent: Any = manifest
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    review = review_body(FULL_POD)
    review["request"]["object"] = manifest
    recalled(json.dumps(review, separators=(",", ":")).encode(), path)


def token_volume(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, **(source or {"projected": {}})}


VOLUME_NAME = "kube-api-access-aaaaa"
MOUNT = {"name": VOLUME_NAME, "mountPath": ACCOUNT_MOUNT}


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [token_volume(VOLUME_NAME, hostPath={"path": "/dev"})]},
        {"volumes": [token_volume(VOLUME_NAME)], "nodeName": VOLUME_NAME},
        {"volumes": [token_volume("kube-api-access-bbbbb")]},  # and the mount has another name
    ],
)
def test_a_name_like_that_of_a_token_volume_stays_where_it_may_matter(spec: Any) -> None:
    first = pod(container(volumeMounts=[MOUNT], **variable("all")), **spec)
    second = json.loads(json.dumps(first).replace("-aaaaa", "-zzzzz"))
    cache = new_cache()
    assert recalled(encoded(first), cache=cache)
    assert recalled(encoded(second), cache=cache)
    assert (cache.hits, cache.misses) == (0, 2)


def test_replicas_whose_token_volumes_alone_differ_are_decided_once() -> None:
    first = pod(
        container(volumeMounts=[MOUNT], **variable("all")), volumes=[token_volume(VOLUME_NAME)]
    )
    second = json.loads(json.dumps(first).replace("-aaaaa", "-zzzzz"))
    cache = new_cache()
    assert recalled(encoded(first), cache=cache)
    assert recalled(encoded(second), cache=cache)
    assert (cache.hits, cache.misses) == (1, 1)


def numbered(name: str, index: str = "0", **spec: Any) -> dict[str, Any]:
    """A pod of a StatefulSet that is refused."""
    manifest = pod(container(**variable("all")), **spec)
    labels = {"apps.kubernetes.io/pod-index": index}
    manifest["metadata"] = {"name": name, "labels": labels}
    return manifest


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (numbered("a-0", hostname="a-0"), numbered("a-1", hostname="a-0")),
        (numbered("a-0", nodeName="a-0"), numbered("a-1", nodeName="a-1")),
        (
            numbered("a-0", nodeSelector={"hostname": "a-0"}),
            numbered("a-1", nodeSelector={"hostname": "a-1"}),
        ),
        (
            numbered("a-0", hostname="a-0", nodeSelector={"hostname": "a-0"}),
            numbered("a-1", hostname="a-1", nodeSelector={"hostname": "a-1"}),
        ),
        (
            numbered("all", containers=[container(**variable("all"))]),
            numbered("void", containers=[container(**variable("void"))]),
        ),
    ],
)
def test_a_name_stays_where_a_user_may_have_written_it(first: Any, second: Any) -> None:
    cache = new_cache()
    for manifest in (first, second):
        assert recalled(encoded(manifest), cache=cache)
    assert cache.hits == 0


def test_numbered_pods_are_decided_once() -> None:
    cache = new_cache()
    for index in "012":
        name = f"a-{index}"
        claim = {"name": "d", "persistentVolumeClaim": {"claimName": f"d-{name}"}}
        body = encoded(numbered(name, index, hostname=name, volumes=[claim]))
        assert recalled(body, cache=cache)
    assert (cache.hits, cache.misses) == (2, 1)


def test_an_answer_that_names_its_own_pod_serves_for_no_other() -> None:
    cache = new_cache()
    for name in ("trainer-0", "trainer-1"):
        manifest = pod(container("trainer-0", **variable("all")))
        manifest["metadata"]["name"] = name
        assert recalled(encoded(manifest), cache=cache)
    assert (cache.hits, cache.misses) == (0, 2)


def test_a_new_release_is_decided_anew() -> None:
    cache = new_cache()
    for tag in ("v1", "v2", "latest"):
        body = encoded(pod(container(image=f"train:{tag}", **variable("all"))))
        assert recalled(body, cache=cache)
    assert cache.hits == 0


@pytest.mark.parametrize("field", ["deletionTimestamp", "somethingNew"])
def test_a_pod_with_metadata_that_new_pods_have_not_is_decided_without_the_cache(
    field: str,
) -> None:
    manifest = pod(container(**variable("all")))
    manifest["metadata"][field] = "x"
    assert not recalled(encoded(manifest))


def test_an_exception_for_a_pod_that_bears_the_name_of_its_token_volume_holds() -> None:
    text = excepting("match: {namespace: [team-vision], name: [kube-api-access-aaaaa]}")
    manifest = pod(
        container(volumeMounts=[MOUNT], **variable("all")), volumes=[token_volume(VOLUME_NAME)]
    )
    manifest["metadata"]["name"] = VOLUME_NAME
    decider = Decider(load_policy(text, "policy"))
    found = new_cache().answer(decider, TODAY, "/validate/deny", encoded(manifest))
    assert found is not None
    assert found.outcome == "excepted"


def test_a_message_never_names_another_pods_volume() -> None:
    named = container("kube-api-access-aaaaa", **variable("all"))
    volumes = [token_volume("kube-api-access-aaaaa")]
    assert recalled(encoded(pod(named, volumes=volumes)))
    env = [{"name": "CUDA_A", "valueFrom": {"configMapKeyRef": {"name": "kube-api-access-aaaaa"}}}]
    assert recalled(encoded(pod(container(env=env), volumes=volumes)))


def test_a_value_to_which_another_refers_decides() -> None:
    cache = new_cache()
    for value in ("all", "void"):
        env = [{"name": "WHICH", "value": value}, *SHARE["env"]]
        mount = {"name": "d", "mountPath": "/x", "subPathExpr": "$(WHICH)"}
        host = {"name": "d", "hostPath": {"path": "/dev"}}
        body = encoded(pod(container(env=env, volumeMounts=[mount]), volumes=[host]))
        assert recalled(body, cache=cache)
    assert cache.hits == 0


def test_names_decide_if_an_exception_names_names() -> None:
    decider = Decider(load_policy(excepting("match: {namespace: [team-vision], name: [a]}"), "p"))
    cache = new_cache()
    for name, outcome in (("a", "excepted"), ("b", "denied"), ("a", "excepted")):
        manifest = {**BYPASS, "metadata": {"name": name}}
        found = cache.answer(decider, TODAY, "/validate/deny", encoded(manifest))
        assert found is not None
        assert found.outcome == outcome


def test_the_names_of_pods_decide_by_the_exceptions_of_the_namespace_that_they_name() -> None:
    """API servers let a pod name no other namespace than that of the request."""
    decider = Decider(load_policy(excepting("match: {namespace: [ml], name: [a]}"), "p"))
    cache, path = new_cache(), "/validate/deny"
    for name in "ab":
        body = encoded({**BYPASS, "metadata": {"name": name, "namespace": "ml"}})
        assert cache.answer(decider, TODAY, path, body) in (None, judged(body, path, decider))
    assert cache.hits == 0


def test_a_new_policy_or_day_makes_new_decisions() -> None:
    text = excepting(f"match: {{namespace: [team-vision]}}, expires: {TODAY.isoformat()}")
    other = Decider(load_policy(text, "policy"))
    cache, body = new_cache(), encoded(BYPASS)
    outcomes = []
    tomorrow = TODAY + datetime.timedelta(days=1)
    for decider, day in ((DECIDER, TODAY), (other, TODAY), (other, tomorrow)):
        found = cache.answer(decider, day, "/validate/deny", body)
        assert found is not None
        outcomes.append(found.outcome)
    assert outcomes == ["denied", "excepted", "denied"]
    assert cache.hits == 0


@pytest.mark.parametrize(
    "body",
    [
        encoded(BYPASS, old=BYPASS),
        encoded(BYPASS, operation="DELETE"),
        encoded(BYPASS, subresource="ephemeralcontainers"),
        encoded(deployment(container())),
        encoded({"apiVersion": "example.com/v1", "kind": "Pod", "spec": BYPASS["spec"]}),
        encoded(BYPASS)[:-1],
        encoded({**BYPASS, "items": [BYPASS]}),
        encoded(BYPASS).replace(b"team-vision", b"\xff", 1),
        encoded(pod(container(args=["x" * 70_000]))),
        b"[" * 100_000,
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
    ],
)
def test_the_cache_knows_nothing_but_new_pods(body: bytes) -> None:
    assert new_cache().answer(DECIDER, TODAY, "/validate/deny", body) is None


def test_the_bounds_hold_for_decisions_that_the_cache_makes() -> None:
    many = pod(*(container(f"c{n}", **variable("all")) for n in range(20)))
    cache = new_cache(max_steps=100)
    for _ in range(2):
        with pytest.raises(TooManyStepsError):
            cache.answer(DECIDER, TODAY, "/mutate/deny", encoded(many))
    with pytest.raises(TooManyStepsError):
        answer(DECIDER, ROUTES["/mutate/deny"], encoded(many), TODAY, StepLimit(100))
    assert new_cache(max_objects=20).answer(DECIDER, TODAY, "/mutate/deny", encoded(many)) is None


def test_ever_new_pods_fill_no_memory_and_push_out_no_pod_in_use() -> None:
    cache = new_cache(max_bytes=200_000)
    in_use = encoded(pod(container(**gpus(limits=1))))
    for number in range(500):
        cache.answer(DECIDER, TODAY, "/validate/deny", encoded(pod(container(f"c{number}"))))
        cache.answer(DECIDER, TODAY, "/validate/deny", in_use)
        assert cache.kept_bytes <= 200_000
    assert (cache.hits, cache.misses) == (499, 501)


def test_a_bug_is_left_to_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise KeyError

    monkeypatch.setattr(DECIDER, "validate", broken)
    assert new_cache().answer(DECIDER, TODAY, "/validate/deny", encoded(BYPASS)) is None


def test_without_msgspec_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webhook.replica_cache", None)
    assert new_replica_cache(Limits()) is None


def test_the_cache_has_room_for_a_thousand_templates() -> None:
    cache, count = new_cache(max_bytes=MAX_CACHE_BYTES), 1_000
    bodies = [encoded(pod(container(f"c{number}"))) for number in range(count)]
    for body in (*bodies, *bodies):
        cache.answer(DECIDER, TODAY, "/validate/deny", body)
    assert (cache.hits, cache.misses) == (count, count)


def test_a_whole_cache_takes_a_sixth_of_the_memory_that_the_server_may_take() -> None:
    assert MAX_CACHE_BYTES <= (100 << 20) / 6


def test_owners_of_the_log_are_those_of_each_pod() -> None:
    cache, names = new_cache(), ("trainer-a", "trainer-b")
    for name in names:
        manifest = copy.deepcopy(BYPASS)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
        manifest["metadata"]["ownerReferences"] = [owner]
        found = cache.answer(DECIDER, TODAY, "/validate/deny", encoded(manifest))
        assert found is not None
        assert (found.envelope.owner_kind, found.envelope.owner_name) == ("Job", name)
    assert (cache.misses, cache.hits) == (2, 0)


@pytest.mark.parametrize(("operation", "is_decided"), [("Apply", False), ("Update", True)])
def test_pods_that_a_user_applied_are_decided_without_the_cache(
    operation: str,
    *,
    is_decided: bool,
) -> None:
    """Their warnings say what a second apply would do."""
    manifest = copy.deepcopy(BYPASS)
    manifest["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": operation}]
    assert recalled(encoded(manifest)) == is_decided
