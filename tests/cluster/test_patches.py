"""A real API server applies every patch with the same result as `jsonpatch`.

Each pod of the cases is evaluated with the policy of its case: once with the default fixes, once
with all fixes. The webhook gets it with the default values that the API server adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonpatch
import pytest

from policies.policy import Policy, RuleSettings
from rules.catalog.index import CATALOG
from rules.finding import Action
from tests.testkit.admission.evaluating_webhook import (
    EvaluatingWebhook,
    RecordedRequest,
    content,
    evaluating_webhook,
)
from tests.testkit.admission.registered_webhook import by_url, registered
from tests.testkit.cases import Case, cases
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import DryRuns, minor_version, refusal_causes
from webhook.admission.decider import Decider
from webhook.registration import RegistrationOptions

# Older releases remove a pod's resource claims after the mutating webhooks.
CLAIMS_ARE_KEPT = 34
PODS = [case for case in cases() if case.manifest["kind"] == "Pod"]


def with_all_fixes(policy: Policy) -> Policy:
    """Return `policy` with `fix: true` for every rule."""
    rules = {
        rule.name: policy.rules.get(rule.name, RuleSettings())._replace(fix=True)
        for rule in CATALOG
    }
    return policy._replace(rules=rules)


def name_of(case: Case, scope: str) -> str:
    return f"{scope}-{PODS.index(case)}"


@pytest.fixture(scope="module")
def before(plane: ControlPlane) -> dict[str, Response]:
    """The responses to the pods without a webhook: the control."""
    runs = DryRuns(plane)
    return runs.submit_by_name((name_of(c, s), c.manifest) for c in PODS for s in ("safe", "all"))


@pytest.fixture(scope="module")
def after(plane: ControlPlane) -> Iterator[tuple[EvaluatingWebhook, dict[str, Response]]]:
    """The requests that the webhook got, and the response to each pod."""
    deciders = {}
    for case in PODS:
        deciders[name_of(case, "safe")] = Decider(case.policy)
        deciders[name_of(case, "all")] = Decider(with_all_fixes(case.policy))
    runs = DryRuns(plane)
    pair = plane.authority.issue("evaluating", hosts=["127.0.0.1"])
    with evaluating_webhook({**deciders, "probe": Decider(PODS[0].policy)}, pair) as webhook:
        config = by_url(webhook.url, plane.authority.bundle)
        options = RegistrationOptions(
            default=Action.DENY, failure_policy="Fail", timeout_seconds=30
        )
        with registered(plane, config, options, name="gpuward-patches", only=runs.namespace):
            eventually(lambda: _is_called(runs, webhook), what="the webhook is called")
            yield webhook, runs.submit_by_name((n, _manifest(n)) for n in deciders)


def test_every_patch_has_the_same_result_as_jsonpatch(
    plane: ControlPlane, after: tuple[EvaluatingWebhook, dict[str, Response]]
) -> None:
    webhook, answers = after
    different = {}
    for name, recorded in _accepted(webhook, answers).items():
        patched = jsonpatch.apply_patch(recorded.review.object, list(recorded.decision.operations))
        offline, stored = content(patched), content(answers[name].body)
        if "resourceClaims" in offline["spec"] and minor_version(plane) < CLAIMS_ARE_KEPT:
            continue
        if offline != stored:
            different[BY_NAME[name].name] = jsonpatch.make_patch(offline, stored).patch
    assert different == {}


def test_no_patch_makes_the_api_server_refuse(
    before: dict[str, Response], after: tuple[EvaluatingWebhook, dict[str, Response]]
) -> None:
    _, answers = after
    new = {
        BY_NAME[n].name: refusal_causes(a) - refusal_causes(before[n]) for n, a in answers.items()
    }
    assert {name: causes for name, causes in new.items() if causes} == {}


def test_patches_make_acceptable_what_was_refused(
    before: dict[str, Response], after: tuple[EvaluatingWebhook, dict[str, Response]]
) -> None:
    """The control of the test above, which patches without effect would pass too."""
    accepted_when_patched = {
        n for n, a in after[1].items() if refusal_causes(before[n]) and not refusal_causes(a)
    }
    rules = {BY_NAME[name].rule for name in accepted_when_patched if name.startswith("safe-")}
    assert {"fractional-gpu", "request-ne-limit", "request-only", "zero-gpu"} <= rules


def test_the_patches_of_every_fixing_rule_were_applied(
    after: tuple[EvaluatingWebhook, dict[str, Response]],
) -> None:
    webhook, answers = after
    applied = {
        f.rule for recorded in _accepted(webhook, answers).values() for f in recorded.decision.fixed
    }
    alone = [case for case in PODS if "inventory" not in case.circumstances]
    findings = [(case.rule, f) for case in alone for f in case.expected["findings"]]
    # The API server copies limits to requests, so a repeated request cannot be recognized. It drops
    # fields that it does not know before it calls a webhook.
    unseen = {"redundant-request", "invalid-claim-reference", "misplaced-gpu"}
    fixing = {rule for rule, finding in findings if "fix" in finding} - unseen
    assert applied == fixing


def _accepted(
    webhook: EvaluatingWebhook, answers: dict[str, Response]
) -> dict[str, RecordedRequest]:
    """The last request about each pod that was accepted."""
    last = {name: recorded for (name, _), recorded in webhook.requests.items()}
    return {
        n: recorded
        for n, recorded in last.items()
        if n in answers and not refusal_causes(answers[n])
    }


def _is_called(runs: DryRuns, webhook: EvaluatingWebhook) -> bool:
    runs.submit_by_name([("probe", PODS[0].manifest)])
    return ("probe", "pods") in webhook.requests


BY_NAME = {name_of(case, scope): case for case in PODS for scope in ("safe", "all")}


def _manifest(name: str) -> Any:
    return BY_NAME[name].manifest
