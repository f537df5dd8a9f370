"""The linter and the webhook find the same in random objects, and fix them alike.

The linter reads a text in a random layout, and the webhook a review, without an API server between
them: `tests/cluster/test_lint_admission_parity.py` has one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jsonpatch
import pytest

from kubeyaml import Chunk, read
from lint.evaluation import FixTask
from lint.fix.fixer import FixedText, Fixer
from lint.linter import Linter
from policies.loading import default_policy
from rules.engine.evaluation import pod_from_raw
from rules.finding import Action
from rules.gpu.devices import share_of_unknown_platform
from rules.profile.context import Context
from sources.policy_file import OnePolicy
from sources.sources import Source
from tests.testkit.admission.reviews import Admission
from tests.testkit.cases import TODAY
from tests.testkit.mixed_pods import mixed_object
from tests.testkit.yaml_layouts import Layout
from webhook.admission.enforcement import FIXED_ANNOTATION

SEEDS = range(10)
OBJECTS_FOR_EACH = 40
POLICY = default_policy()
DENYING, AUDITING = Admission(), Admission(mode=Action.AUDIT)
# The API server writes 16000 as 16k, so admission does not know that a user wrote a unit.
TOLD_BY_SPELLING = {"gpu-mem-unit", "memory-exceeds-card"}


def described(findings: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (f.rule, f.container_name, f.message, f.action)
        for f in findings
        if f.rule not in TOLD_BY_SPELLING
    )


def found_in(text: str) -> Counter[tuple[Any, ...]]:
    """Return what `gpuward lint` finds in a text."""
    linter = Linter(OnePolicy(POLICY), Context(TODAY))
    linter.evaluate([Source("mixed.yaml", text)])
    assert not linter.results.not_evaluated
    return described(located.finding for located in linter.results.findings)


def fixed_text(text: str) -> str:
    """Return what `gpuward fix` makes of a text."""
    written: list[FixedText] = []

    def deliver(fixed: FixedText) -> bool:
        written.append(fixed)
        return True

    Linter(OnePolicy(POLICY), Context(TODAY), FixTask(fixer=Fixer(deliver))).evaluate(
        [Source("mixed.yaml", text)]
    )
    return (
        "".join(new for fixed in written for _, new in fixed.old_and_new_pieces)
        if written
        else text
    )


def value_of(text: str) -> Any:
    document = read(Chunk(text))
    assert document is not None
    return document.value


def mutated(pod: Any) -> Any:
    """The pod as the mutating webhook leaves it, without the record of what it has fixed."""
    changed = jsonpatch.apply_patch(pod, list(DENYING.mutate(pod).operations))
    metadata = changed["metadata"]
    metadata.get("annotations", {}).pop(FIXED_ANNOTATION, "")
    if metadata.get("annotations") == {} != pod["metadata"].get("annotations"):
        del metadata["annotations"]  # a fix removes what it has emptied
    return changed


@pytest.mark.parametrize("seed", SEEDS)
def test_random_objects_have_the_same_findings_and_fixes(seed: int) -> None:
    chooser = random.Random(seed)  # noqa: S311  # equal objects in every run
    fixed = 0
    for number in range(OBJECTS_FOR_EACH):
        manifest = mixed_object(chooser)
        # With a comment between brackets, a fix is left to the user.
        text = Layout(chooser, noise=0).text(manifest)
        if manifest["kind"] == "Pod":
            view = pod_from_raw(manifest["spec"], manifest["metadata"], POLICY.profile, None)
            if share_of_unknown_platform(view, Context(TODAY)):
                continue  # in files, no fix hides what another platform may give: docs/fixing.md
            after = fixed_text(text)
            admitted = mutated(manifest)
            fixed += admitted != manifest
            assert value_of(after) == admitted, number
            assert found_in(after) == described(DENYING.validate(admitted).findings), number
        else:
            assert found_in(text) == described(AUDITING.mutate(manifest).findings), number
    assert fixed
