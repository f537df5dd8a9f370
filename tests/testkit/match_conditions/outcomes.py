"""What became of pods at webhooks that were registered under conditions, and who misses them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rules.catalog import CATALOG
from rules.engine.fixing import check
from rules.finding import Action
from rules.policy import Policy, RuleSet, RuleSettings
from rules.profile.context import Context
from rules.profile.profile import Profile
from tests.testkit.admission.lint_admission_parity import pod_of
from tests.testkit.api_subjects import Sent
from tests.testkit.cases import TODAY, asking_all, cases
from tests.testkit.control_plane.client import Answer
from tests.testkit.dry_runs import UNREADABLE, DryRuns
from tests.testkit.match_conditions.recorder import Recorder

UNTOLD = ("creationTimestamp", "managedFields", "name", "namespace", "uid")


class Asked(NamedTuple):
    """What was asked about, what the API server said, and what has come of it by which way."""

    subjects: dict[str, str]
    answers: dict[str, Answer]
    recorder: Recorder

    def unsent(self, registration: str) -> dict[str, tuple[str, Any]]:
        """Each object that some call of that registration has spared us, with its subjects."""
        seen = self.recorder.calls[registration]
        spared = [call for call in self.recorder.calls["everything"] if call not in seen]
        found = {}
        for call in spared:
            if call.name in self.subjects:
                told = _told(self.recorder.calls["everything"][call])
                found[json.dumps(told, sort_keys=True)] = self.subjects[call.name], told
        return found

    @property
    def readable(self) -> set[str]:
        """The names of the objects that the API server could decode."""
        return {name for name, answer in self.answers.items() if answer.status != UNREADABLE}


def asked_about(runs: DryRuns, recorder: Recorder, prefix: str, sent: Iterable[Sent]) -> Asked:
    """Ask about each object once, as a Pod if it makes any."""
    texts: dict[str, str] = {}
    for one in sent:
        whole = one.object if one.object["kind"] == "ResourceQuota" else pod_of(one.object)
        texts.setdefault(json.dumps(whole), f"{one.subject} {one.form}")
    subjects = {f"{prefix}-{n}": subject for n, subject in enumerate(texts.values())}
    answers = runs.ask_by_name((n, json.loads(t)) for n, t in zip(subjects, texts, strict=True))
    return Asked(subjects, answers, recorder)


def _told(manifest: Any) -> Any:
    """An object without what makes each different."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in UNTOLD}
    return {**manifest, "metadata": metadata}


def own_profiles() -> Iterator[tuple[Profile, list[Any]]]:
    """Each choice of profiles of the cases in which there is one of their own."""
    known = set()
    for case in cases():
        chosen = case.circumstances.get("policy", {}).get("profiles", [])
        own = [profile for profile in chosen if isinstance(profile, dict)]
        if own and json.dumps(own) not in known:
            known.add(json.dumps(own))
            yield case.policy.profile, own


def _strictest(profile: Profile) -> RuleSet:
    """Every rule, asked about everything."""
    settings = {rule.name: RuleSettings(action=Action.DENY) for rule in CATALOG}
    return asking_all(Policy(profile=profile, rules=settings).rule_set())


def concerned(
    unsent: dict[str, tuple[str, Any]], profiles: Iterable[Profile]
) -> dict[str, set[str]]:
    """Subjects that were not sent, and the rules that would have spoken of them."""
    # On an update some rules are silent, and as a component's maker alice is unknown.
    context = Context(TODAY, "team-a", user="alice", operation="CREATE")
    found: dict[str, set[str]] = {}
    for rules in map(_strictest, profiles):
        for subject, manifest in unsent.values():
            if spoken := {f.rule for f in check(manifest, rules, context).findings}:
                found.setdefault(subject, set()).update(spoken)
    return found
