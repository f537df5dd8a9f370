"""The page of the decisions: what the webhook has done of late, and the state that it is in."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from cluster.source.objects import Object
from cluster.source.registered import registered_mode, webhooks_for_pods
from cluster.webhooks.decision_log import OUTCOMES, LoggedDecision, Replica
from policies.policy import Policy
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.rule_set import PolicyException
from terminal import DOCS_URL

PAGE = 50
"""Decisions on one page."""
NOT_SENT = "not sent"
"""Stands for a mode where API servers send nothing of a namespace."""
LEVEL_BY_OUTCOME = {"denied": "error", "not-evaluated": "error", "warned": "warning"}
"""The levels of outcomes on a page; all others are notes."""
_SOON = 14  # days
_MAX_ROWS = 200  # of namespaces, and of exceptions


class Exempted(NamedTuple):
    """An exception: of the policy, or a GpuException. `ends` is its last day, if it has one."""

    where: str
    rules: tuple[str, ...]
    reason: str
    ends: datetime.date | None
    state: str = ""
    namespace: str = ""


class WebhookFacts(NamedTuple):
    """The facts about the webhook.

    - `modes`: the mode of each namespace, empty if nothing of it is sent.
    - `failure_policies`: what API servers do with a pod while gpuward does not answer.
    - `others`: how many namespaces, decisions and exceptions the viewer must not see, by mode and
      by these words.
    """

    is_registered: bool
    failure_policies: tuple[str, ...]
    modes: Mapping[str, str]
    decisions: tuple[LoggedDecision, ...]
    replicas: tuple[Replica, ...]
    exceptions: tuple[Exempted, ...]
    missing: tuple[str, ...]
    read_at: datetime.datetime
    others: Mapping[str, int] = Counter[str]()

    def visible(self, seen: frozenset[str]) -> WebhookFacts:
        """Return the facts for a viewer who sees these namespaces alone."""
        hidden = Counter(mode or NOT_SENT for name, mode in self.modes.items() if name not in seen)
        decisions = tuple(one for one in self.decisions if one.namespace in seen)
        exceptions = tuple(one for one in self.exceptions if one.namespace in seen)
        hidden["decisions"] = len(self.decisions) - len(decisions)
        hidden["exceptions"] = len(self.exceptions) - len(exceptions)
        # These texts name the webhook's own pods, and what a policy says.
        replicas = (
            one._replace(pod=f"pod {number}", problem=one.problem.partition(":")[0])
            for number, one in enumerate(self.replicas, 1)
        )
        return self._replace(
            modes={name: mode for name, mode in self.modes.items() if name in seen},
            decisions=decisions,
            exceptions=exceptions,
            replicas=tuple(replicas),
            missing=("not all could be read",) if self.missing else (),
            others=hidden,
        )

    @property
    def namespaces(self) -> frozenset[str]:
        """All namespaces that something here is about."""
        of_decisions = {one.namespace for one in self.decisions}
        return frozenset({*self.modes, *of_decisions, *(e.namespace for e in self.exceptions)})


class Filter(NamedTuple):
    """The choice of the viewer; an empty text is no filter. `page` counts from 1."""

    namespace: str = ""
    rule: str = ""
    outcome: str = ""
    page: int = 1

    @property
    def is_empty(self) -> bool:
        """Return whether it leaves nothing out."""
        return not (self.namespace or self.rule or self.outcome)

    def query(self, **changes: str | int) -> dict[str, str]:
        """The query of the address with these changes; only what is not the default."""
        wanted = self._replace(**changes)._asdict()  # type: ignore[arg-type]  # fields by name
        return {
            name: str(value)
            for name, value in wanted.items()
            if value != Filter._field_defaults[name]
        }


class Certificate(NamedTuple):
    """Until when a replica's certificate is valid, and in how many days that is."""

    ends: str
    days: int
    is_soon: bool


class DecisionsPage(NamedTuple):
    """All that the page says. `modes` are namespaces by mode; `problems` what is wrong.

    `hidden` are the decisions that the filter leaves out.
    """

    rows: tuple[LoggedDecision, ...]
    matching: int
    first: int
    counts: Mapping[str, int]
    filter: Filter
    problems: tuple[str, ...]
    is_failing_open: bool | None
    modes: tuple[tuple[str, int, tuple[str, ...]], ...]
    replicas: tuple[tuple[Replica, Certificate | None], ...]
    milliseconds: tuple[float, float] | None
    exceptions: tuple[tuple[Exempted, int | None], ...]
    hidden: int

    @property
    def pages(self) -> int:
        """Return how many pages of decisions there are."""
        return -(-self.matching // PAGE)


def decisions_page(facts: WebhookFacts, wanted: Filter, today: datetime.date) -> DecisionsPage:
    """The page about what is known."""
    chosen = fitting(facts, wanted)
    first = (wanted.page - 1) * PAGE
    durations = sorted(one.milliseconds for one in chosen)
    exceptions = sorted(
        facts.exceptions, key=lambda one: (one.ends or datetime.date.max, one.where)
    )
    replicas = [(one, _certificate(one, today)) for one in facts.replicas]
    return DecisionsPage(
        tuple(chosen[first : first + PAGE]),
        len(chosen),
        first,
        Counter(one.outcome for one in chosen),
        wanted,
        tuple(_problems(facts, [certificate for _, certificate in replicas])),
        "Ignore" in facts.failure_policies if facts.failure_policies else None,
        tuple(_modes(facts)),
        tuple(replicas),
        (median(durations), durations[-1]) if durations else None,
        tuple((one, _days(one.ends, today)) for one in exceptions[:_MAX_ROWS]),
        hidden=len(facts.decisions) - len(chosen),
    )


def fitting(facts: WebhookFacts, wanted: Filter) -> list[LoggedDecision]:
    """The decisions that fit the filter, the newest first."""
    return [
        one
        for one in facts.decisions
        if wanted.namespace in {"", one.namespace}
        and wanted.outcome in {"", one.outcome}
        and (not wanted.rule or any(reason.rule == wanted.rule for reason in one.reasons))
    ]


def document(facts: WebhookFacts, wanted: Filter) -> dict[str, Any]:
    """Return the content of the page as plain data."""
    return {
        "version": 1,
        "readAt": facts.read_at.isoformat(timespec="seconds"),
        "webhook": {
            "registered": facts.is_registered,
            "failurePolicies": [*facts.failure_policies],
            "replicas": [one._asdict() for one in facts.replicas],
        },
        "modes": {name: mode or None for name, mode in facts.modes.items()},
        "exceptions": [
            {**one._asdict(), "ends": one.ends.isoformat() if one.ends else None}
            for one in facts.exceptions
        ],
        "decisions": [
            {**one._asdict(), "reasons": [reason._asdict() for reason in one.reasons]}
            for one in fitting(facts, wanted)
        ],
        "notShown": dict(facts.others),
        "missing": [*facts.missing],
    }


# Data from objects of the cluster.


def modes_of(own: list[Object], namespaces: Iterable[Object]) -> dict[str, str]:
    """The mode of each namespace by gpuward's validating configurations `own`."""
    found = {}
    for item in namespaces:
        metadata = as_object(item.get("metadata"))
        name = as_text(metadata.get("name"))
        found[name] = registered_mode(own, name, as_object(metadata.get("labels")))
    return dict(sorted(found.items()))


def failure_policies_of(own: list[Object]) -> tuple[str, ...]:
    """Return what happens to new pods while gpuward does not answer: Ignore, Fail, or both."""
    entries = (entry for item in own for entry in webhooks_for_pods(item))
    return tuple(sorted({as_text(entry.get("failurePolicy")) for entry in entries}))


def exceptions_of(policy: Policy, objects: Iterable[Object]) -> Iterator[Exempted]:
    """The exceptions of the policy, then GpuExceptions."""
    yield from map(_of_policy, policy.exceptions)
    for item in objects:
        metadata, spec = as_object(item.get("metadata")), as_object(item.get("spec"))
        namespace = as_text(metadata.get("namespace"))
        conditions = as_objects(as_object(item.get("status")).get("conditions"))
        state = next((as_text(c.get("reason")) for _, c in conditions), "not decided yet")
        rules = spec.get("rules")
        yield Exempted(
            f"{namespace}/{as_text(metadata.get('name'))}",
            tuple(map(as_text, rules[:_MAX_ROWS])) if isinstance(rules, list) else (),
            as_text(spec.get("reason")),
            _date(as_text(spec.get("expires"))),
            state,
            namespace,
        )


def _of_policy(one: PolicyException) -> Exempted:
    fields = ("namespaces", "kinds", "names", "service_accounts", "images", "containers")
    told = (
        f"{field.replace('_', ' ')} {', '.join(getattr(one, field))}"
        for field in fields
        if getattr(one, field)
    )
    # Who sees one namespace sees an exception for that one alone.
    namespace = one.namespaces[0] if len(one.namespaces) == 1 else ""
    return Exempted(
        "; ".join(told) or "everything",
        one.rules,
        one.reason,
        one.expires,
        "of the policy",
        namespace,
    )


# What the page says about the data.


def _problems(facts: WebhookFacts, certificates: list[Certificate | None]) -> Iterator[str]:
    if not facts.is_registered:
        yield "no webhook of gpuward is registered: API servers ask nobody"
    policies = {one.policy for one in facts.replicas if one.policy}
    if len(policies) > 1:
        yield "the pods of the webhook have different policies"
    for one in facts.replicas:
        if one.problem:
            yield f"in {one.pod}: {one.problem}"
    if any(each and each.is_soon for each in certificates):
        yield f"a certificate ends soon: see {DOCS_URL}/certificates.md"


def _modes(facts: WebhookFacts) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Each mode, how many namespaces have it, and the names of some."""
    by_mode: dict[str, list[str]] = {}
    for name, mode in facts.modes.items():
        by_mode.setdefault(mode or NOT_SENT, []).append(name)
    for mode in ("deny", "warn", "audit", "off", NOT_SENT):
        names = by_mode.get(mode, [])
        number = len(names) + facts.others.get(mode, 0)
        if number:
            yield mode, number, tuple(names[:_MAX_ROWS])


def _certificate(replica: Replica, today: datetime.date) -> Certificate | None:
    ends = _date(replica.certificate_end[:10])
    if ends is None:
        return None
    days = (ends - today).days
    return Certificate(ends.isoformat(), days, days < _SOON)


def _days(ends: datetime.date | None, today: datetime.date) -> int | None:
    return None if ends is None else (ends - today).days


def _date(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def outcome_of(text: str) -> str:
    """The outcome that an address names; empty if there is no such one."""
    return text if text in OUTCOMES else ""
