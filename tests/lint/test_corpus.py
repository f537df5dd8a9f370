"""Tests of the linter with public GPU manifests: exactly the reviewed errors and warnings.

`corpus_review.csv` lists each of them with the reason why it is right. The corpus itself is not
part of this repository.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

from lint.linter import Linter
from policies.loading import default_policy, load_policy
from rules.catalog.index import CATALOG
from rules.gpu.devices import pod_requests_gpu
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from sources.manifests import File, UnparsedDocument
from sources.paths import inputs
from sources.policy_file import OnePolicy
from sources.sources import Source
from tests.testkit.cases import TODAY
from tests.testkit.paths import DATA, ROOT

# The index counts every mention of a GPU; an empty or zero quantity requests none.
WITHOUT_GPU = {
    "4.validation_and_observability/5.nsight/EKS/fsdp.yaml": 1,
    "other/check-nvidia-gpu/.chainsaw-test/pods-good.yaml": 1,
}
REVIEW = DATA / "corpus_review.csv"
FIXTURES = "kubernetes__pod-security-admission"


# What the bundle strict shows besides, and the rule that is off there too.
STRICT = """\
apiVersion: gpuward.io/v1
kind: Policy
extends: [strict]
rules: {idle-gpu-holder: {action: audit}}
"""
COUNTS = re.compile(r"^\| \[`(\S+)`\]\(rules/.*\) \| (\d+) \|$", re.MULTILINE)


@cache
def linted(corpus: Path, policy: str = "") -> Linter:
    linter = Linter(
        OnePolicy(load_policy(policy, "p") if policy else default_policy()), Context(TODAY)
    )
    linter.evaluate(inputs([str(corpus)]))
    return linter


def reviews() -> list[dict[str, str]]:
    with REVIEW.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def reviewed() -> Counter[tuple[str, ...]]:
    """Level, rule, file, and object with container of every reviewed finding."""
    return Counter((row["level"], row["rule"], row["file"], row["where"]) for row in reviews())


def found(corpus: Path) -> Counter[tuple[str, ...]]:
    return Counter(
        (
            located.level,
            located.finding.rule,
            str(Path(located.file).relative_to(corpus)),
            f"{located.finding.object} {located.finding.container_name}".strip(),
        )
        for located in linted(corpus).results.findings
        if located.level != "note"
    )


def test_every_error_and_warning_is_reviewed_and_no_other_is_found(corpus: Path) -> None:
    assert found(corpus) == reviewed()


def test_every_review_gives_a_reason() -> None:
    for row in reviews():
        assert len(row["reason"].split()) > 3, row


def test_everything_is_read(corpus: Path) -> None:
    assert linted(corpus).results.not_evaluated == []


def test_fewer_than_one_warning_per_ten_gpu_pods(corpus: Path) -> None:
    pods = sum(int(row["gpu_pod_specs"]) for row in index(corpus))
    warnings = sum(n for (level, *_), n in found(corpus).items() if level == "warning")
    assert warnings * 10 < pods


def test_the_manual_says_how_often_public_manifests_have_each_fault(corpus: Path) -> None:
    families = {rule.name: rule.family for rule in CATALOG}
    found_in = {
        (located.finding.rule, located.file, located.finding.object, located.finding.stable_path)
        for located in linted(corpus, STRICT).results.findings
    }
    measured = Counter(rule for rule, *_ in found_in if families.get(rule) == "hygiene")
    page = (ROOT / "docs" / "public-manifests.md").read_text(encoding="utf-8")
    stated = {rule: int(count) for rule, count in COUNTS.findall(page)}
    assert {rule: measured[rule] for rule in families if families[rule] == "hygiene"} == stated


def test_pod_security_fixtures_concern_no_rule(corpus: Path) -> None:
    linter = linted(corpus).results
    names = {f.file for f in linter.findings}
    assert not [name for name in names if FIXTURES in name]
    assert any(FIXTURES in str(file) for file in corpus.rglob("*.yaml"))


def index(corpus: Path) -> list[dict[str, str]]:
    with (corpus / "INDEX.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_pod_is_found(corpus: Path) -> None:
    """Another program made the index, so its counts are an independent check."""
    profile = default_policy().profile
    for row in index(corpus):
        name = f"{row['repository'].replace('/', '__')}/{row['path'].replace('/', '__')}"
        file = File(Source(name, (corpus / name).read_text(encoding="utf-8")))
        pods = [
            subject
            for document in file.manifests()
            if not isinstance(document, UnparsedDocument)
            for subject in find_subjects(document.value, profile)
            if isinstance(subject, Pod)
        ]
        assert len(pods) == int(row["pod_specs"]), name
        gpu_pods = sum(pod_requests_gpu(pod) for pod in pods)
        assert gpu_pods == int(row["gpu_pod_specs"]) - WITHOUT_GPU.get(row["path"], 0), name
