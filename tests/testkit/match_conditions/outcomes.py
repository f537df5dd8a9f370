"""Submits pods to webhooks with match conditions, and finds rules that miss a pod."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from policies.policy import Policy, RuleSettings
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.engine.rule_set import RuleSet
from rules.finding import Action
from rules.profile.context import Context
from rules.profile.profile import Profile
from tests.testkit.admission.lint_admission_parity import pod_of
from tests.testkit.api_subjects import Submission
from tests.testkit.cases import TODAY, cases, without_needs
from tests.testkit.control_plane.client import Response
from tests.testkit.dry_runs import UNREADABLE, DryRuns
from tests.testkit.match_conditions.recorder import Recorder
from webhook.match_conditions import is_about_every_pod

IDENTITY_FIELDS = ("creationTimestamp", "managedFields", "name", "namespace", "uid")


NO_RUNTIME_CLASS = "pod rejected: RuntimeClass"


class SubmittedPods(NamedTuple):
    """The submitted objects by name, the responses, and the requests that the webhooks got."""

    subjects: dict[str, str]
    answers: dict[str, Response]
    recorder: Recorder

    def not_sent(self, registration: str) -> dict[str, tuple[str, Any]]:
        """Each object of a request that the registration did not send, with its subject."""
        sent_keys = self.recorder.requests[registration]
        not_sent_keys = [
            key for key in self.recorder.requests["everything"] if key not in sent_keys
        ]
        found = {}
        for key in not_sent_keys:
            if key.name in self.subjects:
                manifest = _without_identity(self.recorder.requests["everything"][key])
                found[json.dumps(manifest, sort_keys=True)] = self.subjects[key.name], manifest
        return found

    @property
    def readable(self) -> set[str]:
        """The names of the objects that reach webhooks.

        Others cannot be decoded, or name a runtime class that does not exist.
        """
        return {name for name, answer in self.answers.items() if not _is_stopped(answer)}


def _is_stopped(answer: Response) -> bool:
    """Return whether the API server refused the object before it called webhooks."""
    return answer.status == UNREADABLE or NO_RUNTIME_CLASS in answer.body.get("message", "")


def submit_pods(
    runs: DryRuns, recorder: Recorder, prefix: str, sent: Iterable[Submission]
) -> SubmittedPods:
    """Submit each object once: workloads as the Pods that are created from them."""
    texts: dict[str, str] = {}
    for submission in sent:
        manifest = pod_of(submission.object)
        texts.setdefault(json.dumps(manifest), f"{submission.subject} {submission.form}")
    subjects = {f"{prefix}-{n}": subject for n, subject in enumerate(texts.values())}
    answers = runs.submit_by_name((n, json.loads(t)) for n, t in zip(subjects, texts, strict=True))
    return SubmittedPods(subjects, answers, recorder)


def _without_identity(manifest: Any) -> Any:
    """An object without the metadata that differs between equal objects."""
    metadata = {
        key: value for key, value in manifest["metadata"].items() if key not in IDENTITY_FIELDS
    }
    return {**manifest, "metadata": metadata}


def custom_profiles() -> Iterator[tuple[Profile, list[Any]]]:
    """The combined profile, and its custom profiles, of each case that defines custom ones."""
    seen_profiles = set()
    for case in cases():
        chosen = case.circumstances.get("policy", {}).get("profiles", [])
        own = [profile for profile in chosen if isinstance(profile, dict)]
        if own and json.dumps(own) not in seen_profiles:
            seen_profiles.add(json.dumps(own))
            yield case.policy.profile, own


def _every_rule(profile: Profile) -> RuleSet:
    """Every rule with action deny, run on every pod.

    But for those about every pod: where one is on, there is no condition.
    """
    settings = {
        rule.name: RuleSettings(action=Action.DENY)
        for rule in CATALOG
        if not is_about_every_pod(rule)
    }
    return without_needs(Policy(profile=profile, rules=settings).rule_set())


def missed_rules(
    not_sent: dict[str, tuple[str, Any]], profiles: Iterable[Profile]
) -> dict[str, set[str]]:
    """Subjects that were not sent, with the rules that report them."""
    # Some rules check no updates, and some trust the users who create GPU components.
    context = Context(TODAY, "team-a", user="alice", operation="CREATE")
    found: dict[str, set[str]] = {}
    for rules in map(_every_rule, profiles):
        for subject, manifest in not_sent.values():
            if rule_names := {f.rule for f in check(manifest, rules, context).findings}:
                found.setdefault(subject, set()).update(rule_names)
    return found
