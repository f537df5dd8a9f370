"""Tests of the cache of decisions: it answers as the engine would, and stays within its bounds."""

from __future__ import annotations

import ast
import copy
import datetime
import json
import random
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client import models

from policies.loading import load_policy
from rules.engine.bounds import StepLimit, TooManyStepsError
from rules.engine.fixing import fix
from rules.engine.relevant_names import relevant_keys
from rules.profile.context import Context
from tests.testkit.admission.replicas import ACCOUNT_MOUNT, CONTAINER_LISTS, review_of_replica
from tests.testkit.admission.reviews import container, deployment, gpus, pod, review_body, variable
from tests.testkit.cases import TODAY, Case, cases
from tests.testkit.full_pod import FULL_POD
from tests.testkit.paths import ROOT
from tests.testkit.read_fields import recording
from webhook.admission.answer import Answer, answer
from webhook.admission.decider import Decider
from webhook.decision_cache import new_decision_cache, records
from webhook.decision_cache.cache import MAX_CACHE_BYTES, DecisionCache
from webhook.decision_cache.deciding_texts import BoundedMap, SpecTexts
from webhook.registration import ROUTES
from webhook.server.limits import Limits

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
DECIDER = Decider(load_policy(POLICY, "policy"))
PODS = [case for case in cases() if case.manifest.get("kind") == "Pod"]
SHARE = variable("$(WHICH)", "NVIDIA_VISIBLE_DEVICES")
BYPASS = pod(container(**variable("all")))


def excepting(circumstances: str) -> str:
    """A policy with one exception."""
    exception = f"rules: [visible-devices-env], reason: r, {circumstances}"
    return f"{POLICY}exceptions:\n- {{{exception}}}\n"


def new_cache(**bounds: int) -> DecisionCache:
    given = {"max_objects": Limits().small_review_objects, "max_steps": 60_000, **bounds}
    return DecisionCache(**given)


def seeded(name: str) -> random.Random:
    return random.Random(name)  # noqa: S311


def judged(body: bytes, path: str, decider: Decider = DECIDER) -> Answer:
    """The answer of the engine."""
    return answer(decider, ROUTES[path], body, TODAY)


def encoded(manifest: Any, **circumstances: Any) -> bytes:
    return json.dumps(review_body(manifest, **circumstances), separators=(",", ":")).encode()


def recalled(body: bytes, path: str = "/validate/deny", cache: DecisionCache | None = None) -> bool:
    """Whether the cache answers the review in `body`, as the engine would in any case."""
    found = (cache or new_cache()).answer(DECIDER, TODAY, path, body)
    assert found in (None, judged(body, path))
    return found is not None


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_replicas_get_the_answers_that_the_engine_would_give(case: Case) -> None:
    decider, cache, choices = Decider(case.policy), new_cache(), seeded(case.name)
    manifest = {"apiVersion": "v1", **case.manifest}
    user = case.context.user or "alice"
    namespace = case.context.namespace or "team-vision"
    # The values of all variables matter if a text may refer to one.
    one_decision = "$" not in json.dumps(manifest) and not any(
        exception.names for exception in case.policy.exceptions
    )
    for path in ROUTES:
        before = cache.hits, cache.misses
        for _ in range(3):
            body = review_of_replica(manifest, choices, user=user, namespace=namespace)
            found = cache.answer(decider, TODAY, path, body)
            assert found in (None, judged(body, path, decider))
        if cache.misses > before[1] and one_decision:
            assert (cache.hits - before[0], cache.misses - before[1]) == (2, 1)


def test_nearly_all_cases_are_answered_by_the_cache() -> None:
    cache, choices = new_cache(), seeded("all")
    bodies = [review_of_replica(case.manifest, choices) for case in PODS]
    answered = [cache.answer(DECIDER, TODAY, "/mutate/deny", body) for body in bodies]
    assert answered.count(None) < len(PODS) / 10


def odd_values() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "$(A)", "kube-api-access-?????"])
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
        {"volumes": [token_volume(VOLUME_NAME), token_volume("kube-api-access-bbbbb")]},
        {"volumes": [token_volume(VOLUME_NAME, hostPath={"path": "/dev"})]},
        {"volumes": [token_volume(VOLUME_NAME)], "nodeName": VOLUME_NAME},
        {"volumes": [token_volume(VOLUME_NAME), token_volume("kube-api-access-?????")]},
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


def test_replicas_whose_token_volumes_alone_differ_are_read_and_decided_once() -> None:
    first = pod(
        container(volumeMounts=[MOUNT], **variable("all")), volumes=[token_volume(VOLUME_NAME)]
    )
    second = json.loads(json.dumps(first).replace("-aaaaa", "-zzzzz"))
    cache = new_cache()
    assert recalled(encoded(first), cache=cache)
    assert recalled(encoded(second), cache=cache)
    assert (cache.hits, cache.misses) == (1, 1)
    texts = SpecTexts(DECIDER, 1 << 20)
    specs = [json.dumps(manifest["spec"]).encode() for manifest in (first, second)]
    text, kept = texts.deciding_text(specs[0], ()), texts.kept_bytes
    assert kept > 0
    assert texts.deciding_text(specs[1], ()) == text
    assert texts.kept_bytes == kept


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


def test_a_pod_with_an_escaped_dollar_is_decided_without_the_cache() -> None:
    """It would be a reference, which API servers write as it is."""
    body = encoded(pod(container(args=["$(WHICH)"], **variable("x", "WHICH"))))
    assert recalled(body)
    assert not recalled(body.replace(b'"$(WHICH)', b'"\\u0024(WHICH)'))


def test_a_message_never_names_the_placeholder() -> None:
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
        assert cache.answer(decider, TODAY, path, body) == judged(body, path, decider)
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


def test_the_name_of_an_owner_counts_as_what_it_takes() -> None:
    cache, name = new_cache(), "\N{OK HAND SIGN}" + "x" * 9_000
    manifest = pod(container())
    manifest["metadata"]["ownerReferences"] = [{"kind": "Job", "name": name, "controller": True}]
    assert cache.answer(DECIDER, TODAY, "/validate/deny", encoded(manifest)) is not None
    assert cache.kept_bytes > sys.getsizeof(name)


def test_the_bounded_map_counts_what_it_holds() -> None:
    values: BoundedMap[bytes, int] = BoundedMap(100)
    for number in range(50):
        values.put(b"%d" % number, number, 10)
        assert values.kept_bytes <= 100
        assert values.get(b"%d" % number) == number
    assert values.get(b"1") is None
    assert sum(values.get(b"%d" % n) is not None for n in range(50)) * 10 == values.kept_bytes


def test_a_bug_is_left_to_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> Any:
        raise KeyError

    monkeypatch.setattr(DECIDER, "validate", broken)
    assert new_cache().answer(DECIDER, TODAY, "/validate/deny", encoded(BYPASS)) is None


def test_without_msgspec_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "webhook.decision_cache.cache", None)
    assert new_decision_cache(1, 1) is None


def test_the_cache_has_room_for_a_thousand_templates() -> None:
    cache, count = new_cache(max_bytes=MAX_CACHE_BYTES), 1_000
    bodies = [encoded(pod(container(f"c{number}"))) for number in range(count)]
    for body in (*bodies, *bodies):
        cache.answer(DECIDER, TODAY, "/validate/deny", body)
    assert (cache.hits, cache.misses) == (count, count)


def test_a_whole_cache_takes_a_sixth_of_the_memory_that_the_server_may_take() -> None:
    assert MAX_CACHE_BYTES <= (100 << 20) / 6


RECORDS: dict[str, type[msgspec.Struct]] = {
    "": records.Pod,
    "/metadata": records.ReadMetadata,
    "/metadata/ownerReferences[]": records.OwnerReference,
    "/spec": records.PodSpec,
    **{f"/spec/{name}[]": records.Container for name in CONTAINER_LISTS},
    **{f"/spec/{name}[]/env[]": records.Variable for name in CONTAINER_LISTS},
    **{f"/spec/{name}[]/volumeMounts[]": records.VolumeMount for name in CONTAINER_LISTS},
    "/spec/volumes[]": records.Volume,
}
# The engine asks for it to tell a running pod in a file.
ASKED_BY_THE_ENGINE = {("", "status")}


def test_the_cache_keeps_every_field_that_rules_read() -> None:
    reads: set[tuple[str, str]] = set()
    for case in PODS:
        manifest = recording(case.manifest, "", reads)
        user = case.context.user or "alice"
        fix(manifest, case.rules, Context(TODAY, "team-vision", user, "CREATE"))
    kept = {(place, field) for place, record in RECORDS.items() for field in fields_of(record)}
    read = {(place, field) for place, field in reads if place in RECORDS}
    missing = read - kept - ASKED_BY_THE_ENGINE
    assert not missing, "a rule reads them: add them to webhook/decision_cache/records.py"
    fields = {(RECORDS[place], field) for place, field in read}
    superfluous = {(place, field) for place, field in kept if (RECORDS[place], field) not in fields}
    assert superfluous <= {
        ("/metadata", "generateName"),  # for pods without a name
        ("/metadata/ownerReferences[]", "name"),  # for the log
    }


# Fields of a pod in Kubernetes' API that the texts of rules name and the cache leaves out, and why.
NAMED_FOR_SOMETHING_ELSE = {
    "activeDeadlineSeconds": "of a Job",
    "restartPolicy": "of a Job, and of an init container, where the cache keeps it",
    "ephemeral": "a role of containers",
    "image": "of a container, where the cache keeps it",
}


def test_the_cache_keeps_every_field_that_a_rule_names() -> None:
    """A field that no case reads is missed by the test above."""
    kinds = (
        (models.V1PodSpec, records.PodSpec),
        (models.V1Container, records.Container),
        (models.V1EnvVar, records.Variable),
        (models.V1Volume, records.Volume),
        (models.V1VolumeMount, records.VolumeMount),
    )
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "rules").rglob("*.py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    named = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    for kubernetes, record in kinds:
        lacking = named.intersection(kubernetes.attribute_map.values()).difference(
            fields_of(record)
        )
        assert lacking <= NAMED_FOR_SOMETHING_ELSE.keys(), (
            f"add them to {record.__name__} in webhook/decision_cache/records.py: without that, a "
            "rule finds nothing in new pods. Or say above what else is called so"
        )


def fields_of(record: type[msgspec.Struct]) -> tuple[str, ...]:
    return record.__struct_fields__


@pytest.mark.parametrize("part", ["annotations", "labels"])
def test_the_cache_keeps_every_key_that_rules_ask_for(part: str) -> None:
    for case in PODS:
        reads: set[tuple[str, str]] = set()
        manifest = recording(case.manifest, "", reads)
        context = Context(TODAY, "team-vision", "alice", "CREATE")
        fix(manifest, case.rules, context)
        kept = relevant_keys(case.policy.profile)
        present = (case.manifest.get("metadata") or {}).get(part) or {}
        asked = {key for place, key in reads if place == f"/metadata/{part}"} - {*present, ""}
        missing = [key for key in asked if not kept[key]]
        assert missing == [], "rules/engine/relevant_names.py does not know these keys"


def test_owners_of_the_log_are_those_of_each_pod() -> None:
    cache, names = new_cache(), ("trainer-a", "trainer-b")
    for name in names:
        manifest = copy.deepcopy(BYPASS)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
        manifest["metadata"]["ownerReferences"] = [owner]
        found = cache.answer(DECIDER, TODAY, "/validate/deny", encoded(manifest))
        assert found is not None
        assert (found.envelope.owner_kind, found.envelope.owner_name) == ("Job", name)
    assert (cache.misses, cache.hits) == (1, 1)


@pytest.mark.parametrize(
    "written",
    [
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        {"managedFields": [{"manager": "kubectl", "operation": "Apply"}]},
    ],
    ids=["client-side", "server-side"],
)
def test_pods_that_a_user_applied_are_decided_without_the_cache(written: dict[str, Any]) -> None:
    """Their warnings say what a second apply would do."""
    applied = copy.deepcopy(BYPASS)
    applied["metadata"] |= written
    assert not recalled(encoded(applied))
    created = copy.deepcopy(BYPASS)
    created["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update"}]
    assert recalled(encoded(created))
