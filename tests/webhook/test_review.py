"""Tests of decoding and encoding AdmissionReview v1, and of the messages to users."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.engine.evaluation import RuleFailure
from rules.finding import Finding
from rules.objects.object_ref import ObjectRef
from tests.testkit.admission.reviews import pod, response, review, review_body
from webhook.admission.answer import encode
from webhook.admission.decision import Decision
from webhook.admission.messages import (
    MAX_WARNINGS_BYTES,
    denial_message,
    field_path,
    limit_warnings,
    status_causes,
)
from webhook.admission.review import (
    STANDARD_CODEC,
    Codec,
    MalformedReviewError,
    decode,
    fastest_codec,
)

GOOD = review_body(pod())
REF = ObjectRef("Pod", "", "ns", "p")


def changed(**request: Any) -> bytes:
    return json.dumps({**GOOD, "request": {**GOOD["request"], **request}}).encode()


def finding(message: str = "m", path: Any = ("spec",)) -> Finding:
    return Finding(path=path, key="k", message=message, rule="some-rule", object=REF, help="do it")


def test_a_request_is_read() -> None:
    read = review(pod(), pod(), subresource="ephemeralcontainers", user="bob")
    assert (read.uid, read.api_version) == (GOOD["request"]["uid"], "admission.k8s.io/v1")
    assert (read.group, read.kind, read.resource) == ("", "Pod", "pods/ephemeralcontainers")
    assert (read.operation, read.namespace, read.user) == ("UPDATE", "team-vision", "bob")
    assert read.object == read.old == pod()
    assert read.dry_run is False


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"kind": NaN}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "JSON|nested"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "Pod"}', "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview"}', "no apiVersion"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "no request"),
        (changed(uid=""), "no uid"),
        (changed(uid=7), "no uid"),
        (changed(kind="Pod"), "request.kind is not an object"),
        (changed(object=[]), "request.object is not an object"),
        (changed(oldObject="x"), "request.oldObject is not an object"),
        (changed(namespace=1), "request.namespace is not text"),
        (changed(userInfo=[1]), "request.userInfo is not an object"),
    ],
)
def test_a_malformed_review_is_explained(body: bytes, why: str) -> None:
    for codec in (STANDARD_CODEC, fastest_codec()):
        with pytest.raises(MalformedReviewError, match=why):
            decode(body, codec)


@pytest.mark.parametrize("codec", [STANDARD_CODEC, fastest_codec()], ids=lambda codec: codec.name)
def test_deeply_nested_objects_are_read(codec: Codec) -> None:
    # A tenant can write this into managedFields. An error would admit the pod without evaluation.
    deep = b'{"f:a":' * 10_000 + b"1" + b"}" * 10_000
    body = (
        json.dumps(review_body(pod())).encode().replace(b'"name": "trainer"', b'"deep": ' + deep, 1)
    )
    read: Any = decode(body, codec).object
    assert read["spec"] == pod()["spec"]


def test_unknown_fields_are_ignored() -> None:
    assert decode(changed(novelty={"a": 1})).uid == GOOD["request"]["uid"]


def test_version_and_uid_are_echoed() -> None:
    request = review(pod())._replace(api_version="admission.k8s.io/v9", uid="abc")
    sent = json.loads(encode(request, Decision("clean")))
    assert sent == {
        "apiVersion": "admission.k8s.io/v9",
        "kind": "AdmissionReview",
        "response": {"uid": "abc", "allowed": True},
    }


def test_a_patch_comes_with_its_type_and_only_if_there_is_one() -> None:
    operations = [{"op": "add", "path": "/a~1b", "value": "ü\n"}]
    sent = response(review(pod()), Decision("fixed", operations=operations))
    assert sent["patchType"] == "JSONPatch"
    assert sent["patch"] == operations
    assert "patch" not in response(review(pod()), Decision("clean"))


def test_a_denial_is_forbidden_with_its_causes() -> None:
    answer = Decision("denied", allowed=False, message="no", causes=status_causes([finding()]))
    status = response(review(pod()), answer)["status"]
    assert status["code"] == 403
    assert status["reason"] == "Forbidden"
    assert status["message"] == "no"
    assert status["details"]["kind"] == "pods"
    assert status["details"]["name"] == "trainer"
    assert status["details"]["causes"] == [{"reason": "some-rule", "message": "m", "field": "spec"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_a_lone_surrogate_is_encoded() -> None:
    request = decode(json.dumps(review_body(pod(), user="\ud800")).encode())
    answer = Decision("warned", warnings=[request.user])
    assert json.loads(encode(request, answer))["response"]["warnings"] == ["\ud800"]


@given(JSON)
def test_both_codecs_agree(value: Any) -> None:
    fast = fastest_codec()
    assert fast.name == "orjson"
    assert STANDARD_CODEC.loads(fast.dumps(value)) == value
    assert fast.loads(STANDARD_CODEC.dumps(value)) == value
    assert fast.loads(STANDARD_CODEC.dumps(value)) == STANDARD_CODEC.loads(
        STANDARD_CODEC.dumps(value)
    )


@given(st.lists(st.text()))
def test_warnings_fit_whatever_they_say(texts: list[str]) -> None:
    limited = limit_warnings(texts)
    assert all(line.isprintable() and len(line.encode()) <= 1000 for line in limited)
    assert sum(len(line.encode()) for line in limited) <= MAX_WARNINGS_BYTES + 100


def test_too_many_warnings_are_counted() -> None:
    limited = limit_warnings(f"{number} " + "x" * 300 for number in range(40))
    assert limited[-1] == "gpuward: 29 more; `gpuward lint` shows everything"
    assert sum(len(line.encode()) for line in limited) <= 4096


def test_a_long_warning_is_cut_at_a_whole_character() -> None:
    (line,) = limit_warnings(["ü" * 2000])
    assert line.endswith("…")
    assert len(line.encode()) <= 1000
    assert set(line[:-1]) == {"ü"}


def test_characters_that_would_drop_a_warning_are_replaced() -> None:
    assert limit_warnings(["a\nb\tc\x7f\ud800d\u200bé"]) == ["a?b?c??d?é"]


def test_a_denial_lists_at_most_twenty_findings_and_counts_the_rest() -> None:
    message = denial_message(
        [finding(f"m{number}") for number in range(25)], [RuleFailure("r", "secret")]
    )
    lines = message.split("\n")
    assert lines[0] == "gpuward [some-rule] m0; do it; and 25 more faults:"
    assert lines[1] == "- [some-rule] m1; do it"
    assert lines[-1] == "- and 6 more; `gpuward lint` shows everything"
    assert len(lines) == 21
    assert "secret" not in message


def test_the_first_line_of_a_denial_keeps_the_number_of_other_faults() -> None:
    first, second = denial_message([finding("ü" * 900), finding("m1")]).split("\n")
    assert first.startswith("gpuward [some-rule] üüü")
    assert first.endswith("…; and 1 more fault:")
    assert len(first.encode()) <= 1000
    assert second == "- [some-rule] m1; do it"


def test_a_tenant_s_text_stays_on_its_line() -> None:
    message = denial_message([finding("a\n- [forged] b"), finding()])
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("spec", "containers", 0, "env", 1, "value"), "spec.containers[0].env[1].value"),
        (("spec", "limits", "nvidia.com/gpu"), "spec.limits[nvidia.com/gpu]"),
        ((), ""),
    ],
)
def test_fields_are_named_as_kubernetes_names_them(path: Any, field: str) -> None:
    assert field_path(path) == field
