"""Every patch is applied by a real API server, and comes out as `jsonpatch` applies it.

Each pod of the cases is judged by the policy of its case, with the fixes that are made
unasked and then with all of them, as the API server sends it: completed with defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonpatch
import pytest

from registration.configurations import RegistrationOptions
from rules.catalog import CATALOG
from rules.finding import Action
from rules.policy import Policy, RuleSettings
from tests.testkit.admission.evaluating_webhook import Judging, Seen, content, judging
from tests.testkit.admission.registered_webhook import by_url, registered
from tests.testkit.cases import Case, cases
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import DryRuns, minor, objections
from webhook.admission.decider import Decider

# Older releases drop a pod's claims once they have asked the mutating webhooks.
CLAIMS_ARE_KEPT = 34
PODS = [case for case in cases() if case.manifest["kind"] == "Pod"]


def asked_for(policy: Policy) -> Policy:
    """The same policy with every fix asked for."""
    rules = {
        rule.name: policy.rules.get(rule.name, RuleSettings())._replace(fix=True)
        for rule in CATALOG
    }
    return policy._replace(rules=rules)


def named(case: Case, scope: str) -> str:
    return f"{scope}-{PODS.index(case)}"


@pytest.fixture(scope="module")
def before(plane: ControlPlane) -> dict[str, Answer]:
    """What the API server says of the pods while nobody changes them: the control."""
    runs = DryRuns(plane)
    return runs.ask_by_name((named(c, s), c.manifest) for c in PODS for s in ("safe", "all"))


@pytest.fixture(scope="module")
def after(plane: ControlPlane) -> Iterator[tuple[Judging, dict[str, Answer]]]:
    """The calls that the webhook got, and what has become of each pod."""
    judges = {}
    for case in PODS:
        judges[named(case, "safe")] = Decider(case.policy)
        judges[named(case, "all")] = Decider(asked_for(case.policy))
    runs = DryRuns(plane)
    pair = plane.authority.issue("judging", hosts=["127.0.0.1"])
    with judging({**judges, "probe": Decider(PODS[0].policy)}, pair) as webhook:
        config = by_url(webhook.url, plane.authority.bundle)
        everywhere = RegistrationOptions(default=Action.DENY, failure_policy="Fail")
        with registered(plane, config, everywhere, name="laws", only=runs.namespace):
            eventually(lambda: _is_called(runs, webhook), what="the webhook is called")
            yield webhook, runs.ask_by_name((n, _manifest(n)) for n in judges)


def test_every_patch_comes_out_as_offline(
    plane: ControlPlane, after: tuple[Judging, dict[str, Answer]]
) -> None:
    webhook, answers = after
    different = {}
    for name, seen in _accepted(webhook, answers).items():
        patched = jsonpatch.apply_patch(seen.review.object, list(seen.answer.operations))
        offline, stored = content(patched), content(answers[name].body)
        if "resourceClaims" in offline["spec"] and minor(plane) < CLAIMS_ARE_KEPT:
            continue
        if offline != stored:
            different[BY_NAME[name].name] = jsonpatch.make_patch(offline, stored).patch
    assert different == {}


def test_no_patch_makes_the_api_server_refuse(
    before: dict[str, Answer], after: tuple[Judging, dict[str, Answer]]
) -> None:
    _, answers = after
    new = {BY_NAME[n].name: objections(a) - objections(before[n]) for n, a in answers.items()}
    assert {name: objected for name, objected in new.items() if objected} == {}


def test_patches_make_acceptable_what_was_refused(
    before: dict[str, Answer], after: tuple[Judging, dict[str, Answer]]
) -> None:
    """The control of the test above: doing nothing would pass it too."""
    healed = {n for n, a in after[1].items() if objections(before[n]) and not objections(a)}
    rules = {BY_NAME[name].rule for name in healed if name.startswith("safe-")}
    assert {"fractional-gpu", "request-ne-limit", "request-only", "zero-gpu"} <= rules


def test_the_patches_of_every_fixing_rule_were_applied(
    after: tuple[Judging, dict[str, Answer]],
) -> None:
    webhook, answers = after
    applied = {f.rule for seen in _accepted(webhook, answers).values() for f in seen.answer.fixed}
    findings = [(case.rule, f) for case in PODS for f in case.expected["findings"]]
    # Which requests their owner has repeated, nobody can see once defaults are filled in.
    fixing = {rule for rule, finding in findings if "fix" in finding} - {"redundant-request"}
    assert applied == fixing


def _accepted(webhook: Judging, answers: dict[str, Answer]) -> dict[str, Seen]:
    """The last call about each pod that the API server took; of a debugged one, about that."""
    last = {name: seen for (name, _), seen in webhook.seen.items()}
    return {n: seen for n, seen in last.items() if n in answers and not objections(answers[n])}


def _is_called(runs: DryRuns, webhook: Judging) -> bool:
    runs.ask_by_name([("probe", PODS[0].manifest)])
    return ("probe", "pods") in webhook.seen


BY_NAME = {named(case, scope): case for case in PODS for scope in ("safe", "all")}


def _manifest(name: str) -> Any:
    return BY_NAME[name].manifest
