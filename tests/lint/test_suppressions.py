"""Tests of comments that suppress a rule, and of text that only looks like one."""

from __future__ import annotations

import pytest

from lint.evaluation import FixTask
from lint.linter import Linter
from policies.loading import default_policy, load_policy
from rules.profile.context import Context
from sources.policy_file import OnePolicy
from sources.sources import Source
from tests.testkit.cases import TODAY

POD = """\
apiVersion: v1 {object}
kind: Pod
metadata:
  name: taker
spec:
  containers:
    {above}
    - name: main {container}
      image: example.com/app:1
      args: ["{text}"]
      env:
        - name: NVIDIA_VISIBLE_DEVICES {entry}
          value: all {field}
    - name: other
      env:
        - {{name: NVIDIA_VISIBLE_DEVICES, value: all}}
"""
IGNORE = "# gpuward: ignore[visible-devices-env] it is the monitoring agent"


def lint(text: str, policy: str = "") -> Linter:
    loaded = load_policy(policy, "gpuward.yaml") if policy else default_policy()
    linter = Linter(OnePolicy(loaded), Context(TODAY))
    linter.evaluate([Source("pod.yaml", text)])
    return linter


def pod_with(**parts: str) -> str:
    names = ("object", "above", "container", "entry", "field", "text")
    return POD.format(**{name: parts.get(name, "") for name in names})


def errors(linter: Linter) -> list[str]:
    return [f.finding.container_name for f in linter.results.findings if f.level == "error"]


@pytest.mark.parametrize("place", ["above", "container", "entry", "field"])
def test_a_comment_silences_what_begins_on_its_line(place: str) -> None:
    linter = lint(pod_with(**{place: IGNORE}))
    assert errors(linter) == ["other"]
    assert linter.results.suppressed == 1
    assert linter.results.remarks == []


def test_a_comment_on_the_first_line_covers_the_object() -> None:
    linter = lint(pod_with(object=IGNORE))
    assert errors(linter) == []
    assert linter.results.suppressed == 2


def test_a_suppressed_finding_is_not_fixed() -> None:
    policy = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {visible-devices-env: {fix: true}}\n"
    linter = Linter(OnePolicy(load_policy(policy, "p")), Context(TODAY), FixTask(preview=True))
    linter.evaluate([Source("pod.yaml", pod_with(field=IGNORE))])
    (preview,) = linter.previews
    assert {o["path"].rsplit("/", 2)[0] for o in preview.operations} == {"/spec/containers/1"}


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        ("# gpuward: ignore[visible-devices-env]", "write it as"),
        ("# gpuward: ignore because I say so", "write it as"),
        ("# gpuward: ignore[] nothing", "write it as"),
        (
            "# gpuward: ignore[visible-device-env] a typing error",
            "there is no rule 'visible-device-env'; did you mean \"visible-devices-env\"?",
        ),
        ("# gpuward: ignore[privileged-gpu] not what is wrong here", "finds nothing here"),
    ],
)
def test_comments_that_do_nothing_are_reported(comment: str, complaint: str) -> None:
    linter = lint(pod_with(field=comment))
    assert len(errors(linter)) == 2
    (remark,) = linter.results.remarks
    assert complaint in remark.message
    assert (remark.level, remark.line) == ("warning", 13)


def test_text_that_looks_like_a_comment_is_none() -> None:
    linter = lint(pod_with(text=" " + IGNORE))
    assert len(errors(linter)) == 2
    assert linter.results.remarks == []


@pytest.mark.parametrize(
    "text",
    [
        '"# gpuward: ignore[visible-devices-env] a key": x',
        "x # gpuward: ignore[visible-devices-env] a key: y",
    ],
)
def test_a_key_is_no_comment(text: str) -> None:
    inside = pod_with().replace("  name: taker\n", f"  name: taker\n  annotations: {{{text}}}\n")
    linter = lint(inside if text.startswith('"') else pod_with())
    assert len(errors(linter)) == 2


def test_a_comment_ends_with_its_line() -> None:
    text = pod_with().replace(
        "    - name: main",
        "    - #\n      gpuward: ignore[visible-devices-env] data\n      name: main",
    )
    assert len(errors(lint(text))) == 2


def test_an_unsuppressible_rule_is_not_silenced_through_another() -> None:
    policy = (
        "apiVersion: gpuward.io/v1\nkind: Policy\n"
        "rules: {visible-devices-env: {suppressible: false}}\n"
    )
    comment = "# gpuward: ignore[share-visible-devices] nothing to see"
    shared = pod_with(field=comment).replace(
        "      args:", "      resources: {limits: {nvidia.com/gpu.shared: 1}}\n      args:"
    )
    assert errors(lint(shared, policy)) == ["main", "other"]


def test_many_comments_in_a_long_object() -> None:
    container = "    - {{name: c{0}, env: [{{name: NVIDIA_VISIBLE_DEVICES, value: all}}]}} {1}\n"
    lines = "".join(container.format(n, IGNORE) for n in range(1_000))
    text = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n{lines}"
    assert lint(text).results.suppressed == 1_000


def test_a_policy_may_forbid_comments_for_a_rule() -> None:
    policy = (
        "apiVersion: gpuward.io/v1\nkind: Policy\n"
        "rules: {visible-devices-env: {suppressible: false}}\n"
    )
    linter = lint(pod_with(field=IGNORE), policy)
    assert len(errors(linter)) == 2
    (remark,) = linter.results.remarks
    assert "does not allow" in remark.message


def test_annotations_silence_nothing() -> None:
    text = pod_with().replace(
        "  name: taker\n",
        "  name: taker\n  annotations: {gpuward.io/ignore: visible-devices-env}\n",
    )
    assert len(errors(lint(text))) == 2


def test_a_comment_of_one_document_does_not_reach_the_next() -> None:
    linter = lint(pod_with() + f"{IGNORE}\n---\n" + pod_with())
    assert len(errors(linter)) == 4
    assert len(linter.results.remarks) == 1


def test_a_comment_beside_another_field_is_told_the_line_of_the_finding() -> None:
    (remark,) = lint(pod_with().replace("app:1", f"app:1 {IGNORE}")).results.remarks
    assert remark.line == 9
    assert "finds nothing here, but on the lines 13, 16: write the comment there" in remark.message


@pytest.mark.parametrize(
    "text",
    [
        f"{IGNORE}\n---\n{{pod}}",
        f"{{pod}}---\n{IGNORE}\n",
        f"a: 1\n{IGNORE}\n---\n{{pod}}",
        f"{{pod}}---\napiVersion: v1\nkind: ConfigMap\ndata:\n  script: |\n    {IGNORE}\n",
    ],
    ids=["above the separator", "after the object", "in another document", "in a text"],
)
def test_a_comment_outside_of_every_object_is_reported(text: str) -> None:
    text = text.format(pod=pod_with())
    (remark,) = lint(text).results.remarks
    line = text.splitlines().index(next(t for t in text.splitlines() if IGNORE in t)) + 1
    assert (
        "suppresses nothing, because it is outside of every object or in a text" in remark.message
    )
    assert (remark.level, remark.line) == ("warning", line)


@pytest.mark.parametrize("name", ["compose.yaml", "kustomization.yaml"])
def test_a_comment_for_another_reading_of_the_file_is_not_reported(name: str) -> None:
    text = f"{IGNORE}\nservices: {{}}\n"
    if name.startswith("kust"):
        kind = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        text = f"{kind}patches:\n- patch: |\n    {IGNORE}\n    a: 1\n"
    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    linter.evaluate([Source(name, text)])
    assert linter.results.remarks == []
