"""Properties of fixed files: every case in random layouts, and public manifests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kubeyaml import Chunk, read
from lint.evaluation import FixTask
from lint.fix.fixer import FixedText, Fixer
from lint.linter import Linter
from policies.loading import default_policy
from reports.results import Results
from rules.profile.context import Context
from sources.paths import inputs
from sources.policy_file import OnePolicy
from sources.sources import InputFile, Source
from tests.testkit.admission.reviews import decider_of, review_body
from tests.testkit.cases import TODAY, Case, cases
from tests.testkit.for_every_case import for_every_case
from tests.testkit.yaml_layouts import Layout
from webhook.admission.answer import answer
from webhook.registration import ROUTES

# Files without an image, which are parts of objects. API servers send none without an image.
PATCHES = ("affinity-default/clean-patch", "toleration-default/clean-patch")
# A pod that was read from a cluster runs already: only one that is created anew is changed.
RUNNING = ("gpu-node-without-request/running",)
# A file does not say which platform the cluster has. To a webhook the policy says it.
OF_ANOTHER_PLATFORM = (
    "image-default-all/fraction-of-an-unchosen-profile",
    "legacy-cuda-version/fraction-of-an-unchosen-profile",
)


def fixed(source: Source, policy: OnePolicy, context: Context) -> tuple[str, Results]:
    """The text of a source after its fixes, and the report."""
    texts: list[str] = []

    def deliver(text: FixedText) -> bool:
        texts.append(text.new)
        return True

    linter = Linter(policy, context, FixTask(fixer=Fixer(deliver)))
    linter.evaluate([source])
    return texts[0], linter.results


def described(results: Results) -> list[Any]:
    """Return the content of a report about findings and remarks, with the places."""
    found = [(f.finding.identity, f.finding.message, f.span) for f in results.findings]
    return [*found, *results.remarks, *results.not_evaluated, results.suppressed, results.pods]


def check_fixed(source: Source, policy: OnePolicy, context: Context) -> tuple[str, Results]:
    """The report is that of the fixed text, and there is nothing more to fix in it."""
    text, results = fixed(source, policy, context)
    assert bool(results.fixed) == (text != source.text)
    if results.fixed:
        again, results_again = fixed(source._replace(text=text), policy, context)
        assert again == text
        assert described(results_again) == described(results)
        assert results_again.fixed == []
    return text, results


@for_every_case(cases())
def test_every_case_is_fixed_in_every_layout(case: Case) -> None:
    """The original file, and one in which each document has another layout."""
    text = case.file.read_text(encoding="utf-8")
    chance = random.Random(case.name)  # noqa: S311  # not for secrets
    manifest = json.loads(json.dumps(case.manifest))
    documents = [Layout(chance, flow, 0.1).text(manifest).rstrip("\n") for flow in (0, 0.5)]
    policy = OnePolicy(case.policy, rules=case.rules)
    for written in (text, "\n---\n".join(documents)):
        new, results = check_fixed(Source("case.yaml", written), policy, case.context)
        if not results.not_fixed:
            assert not [f for f in results.findings if f.finding.fixable]
        assert new.count("\n---\n") == written.count("\n---\n")
        if written is text:
            check_admission_adds_nothing(case, new, results)


def check_admission_adds_nothing(case: Case, text: str, results: Results) -> None:
    """The webhook has nothing to fix in the `text` that the linter has fixed."""
    assert results.not_fixed == []
    if case.name in (*PATCHES, *RUNNING, *OF_ANOTHER_PLATFORM):
        return
    manifest = {"apiVersion": "v1", **manifest_of(text)}
    own_namespace = manifest.get("metadata", {}).get("namespace", "default")
    review = review_body(
        manifest,
        operation=case.context.operation or "CREATE",
        user=case.context.user or "alice",
        namespace=case.context.namespace or own_namespace,
    )
    answered = answer(decider_of(case), ROUTES["/mutate/deny"], json.dumps(review).encode(), TODAY)
    assert "patch" not in json.loads(answered.body)["response"]


def manifest_of(text: str) -> Any:
    document = read(Chunk(text))
    assert document is not None
    return document.value


# Its claims are written as before Kubernetes 1.31: the fix writes their fields elsewhere.
WITH_OLD_CLAIMS = "NVIDIA__k8s-dra-driver-gpu/demo__specs__selectors__pods.yaml"


@pytest.mark.slow
def test_public_manifests_are_fixed_and_lose_no_line(corpus: Path) -> None:
    policy, context = OnePolicy(default_policy()), Context(TODAY)
    changed = 0
    for given in inputs([str(corpus)]):
        source = given.read() if isinstance(given, InputFile) else given
        if isinstance(source, Source):
            text, results = check_fixed(source, policy, context)
            changed += text != source.text
            assert results.not_fixed == [], source.name
            if source.name.endswith(WITH_OLD_CLAIMS):
                continue
            # The default policy only adds to these files.
            lines = iter(text.split("\n"))
            missing = [line for line in source.text.split("\n") if line not in lines]
            assert missing == [], source.name
    assert changed > 100
