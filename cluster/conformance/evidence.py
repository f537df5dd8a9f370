"""The content of a conformance report: results of dry runs, controls, and running pods."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.api.errors import ClusterError
from cluster.audit.audit import AuditResult
from cluster.conformance.dry_runs import DryRuns, Result, Send, State, label_ways, not_tried
from cluster.doctor.facts import DoctorFacts, name_of, own_configurations
from cluster.doctor.nvidia_toolkit import ACCEPT_MOUNTS, ACCEPT_VARIABLE, STRATEGY, read_toolkit
from cluster.source.objects import (
    MUTATING,
    NAMESPACES,
    VALIDATING,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    Object,
)
from cluster.source.registered import registered_mode
from cluster.webhooks.ways import WAYS
from reports.findings import RULE_BY_NAME
from rules.base.json_values import as_object, as_objects, as_text
from rules.finding import Action
from webhook.registration import MODE_LABEL

VERSION = 1
"""Grows when a field of the document changes its meaning or goes away."""
REQUIREMENT = (
    "Ensure that access to accelerators from within containers is properly isolated and mediated "
    "by the Kubernetes resource management framework (device plugin or DRA) and container runtime, "
    "preventing unauthorized access or interference between workloads."
)
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
# Findings of these rules in a pod that runs mean that it may have GPUs that it did not ask for.
_MORE_RULES = frozenset({"privileged-gpu", "sys-admin-gpu"})
_NO_ACCESS = frozenset(
    {
        *("gpu-container-hidden", "nodename-pinned", "ephemeral-gpu"),
        *("runtimeclass-nvidia-no-gpu", "gpu-node-without-request"),
    }
)
MOST_PODS = 500


class Control(NamedTuple):
    """Something that closes ways: what it is, how it is set, and the hash of its object."""

    kind: str
    name: str
    setting: str
    sha256: str = ""


class Reaching(NamedTuple):
    """An object whose pods reach GPUs without asking, or may: what a rule says about it."""

    object: str
    namespace: str
    level: str
    rule: str
    message: str


class Evidence(NamedTuple):
    """Everything that the report says.

    - `was_tried`: whether there were dry runs.
    - `user`: the user of the dry runs; `is_own`: it is the account itself.
    - `unread`: what could not be seen.
    """

    read_at: str
    about: Mapping[str, str]
    was_tried: bool
    user: str
    groups: tuple[str, ...]
    is_own: bool
    namespaces: tuple[str, ...]
    results: tuple[Result, ...]
    controls: tuple[Control, ...]
    reaching: tuple[Reaching, ...]
    unread: tuple[str, ...]

    def counts(self) -> Mapping[State, int]:
        """Return how many results have each state."""
        found = Counter(result.state for result in self.results)
        return {state: found[state] for state in State}

    @property
    def exit_status(self) -> int:
        """1 if a way is open or a pod reaches GPUs, 3 if something is not known, else 0."""
        states = {result.state for result in self.results}
        if State.OPEN in states or any(each.level == "error" for each in self.reaching):
            return 1
        return 3 if State.NOT_KNOWN in states or self.unread else 0


def gather(
    facts: DoctorFacts,
    send: Send | None,
    audited: AuditResult,
    namespaces: Sequence[str],
    about: Mapping[str, str],
    *,
    image: str,
    is_own: bool,
) -> Evidence:
    """Make the dry runs in `namespaces`, and collect what is known beside them.

    Without `send` there are none.
    """
    unread = [*map(str, facts.missing.values())]
    user, groups = _user(send, unread) if send else ("", ())
    toolkit = read_toolkit(facts)
    own = own_configurations(facts, VALIDATING)
    results: list[Result] = []
    for namespace in namespaces:
        labels = _labels(facts, namespace)
        with_off = {**labels, MODE_LABEL: Action.OFF.word}
        mode = registered_mode(own, namespace, with_off) if own else None
        if send is None:
            results += not_tried(namespace, WAYS, label_ways(mode))
            continue
        dry_runs = DryRuns(send, image)
        results += dry_runs.pods(namespace, WAYS, toolkit.ignoring())
        results += dry_runs.labels(namespace, label_ways(mode))
    unread += [each.message for each in audited.results.not_evaluated]
    return Evidence(
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        {**about, "ways sha256": digest([[way.name, way.pod("image")] for way in WAYS])},
        send is not None,
        user,
        groups,
        is_own,
        tuple(namespaces),
        tuple(results),
        (
            *_registrations(facts),
            *_coverage(facts, own),
            *_policies(facts),
            *_toolkits(facts),
        ),
        tuple(_reaching(audited)),
        tuple(dict.fromkeys(unread)),
    )


def digest(value: Any) -> str:
    """The SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _user(send: Send, unread: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return the user that the API server takes the account for."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    try:
        answer = send("POST", path, review, "application/json")
    except ClusterError as error:
        unread.append(f"who the user is: {error}")
        return "", ()
    info = as_object(as_object(answer.get("status")).get("userInfo"))
    groups = info.get("groups")
    found = tuple(map(as_text, groups)) if isinstance(groups, list) else ()
    return as_text(info.get("username")), found


def absent_namespaces(facts: DoctorFacts, namespaces: Sequence[str]) -> list[str]:
    """Return those of `namespaces` that the cluster has not, as far as that could be read."""
    if NAMESPACES in facts.missing:
        return []
    present = {name_of(item) for item in facts.objects(NAMESPACES)}
    return [name for name in namespaces if name not in present]


def _labels(facts: DoctorFacts, namespace: str) -> Mapping[str, Any]:
    items = (item for item in facts.objects(NAMESPACES) if name_of(item) == namespace)
    return as_object(as_object(next(items, {}).get("metadata")).get("labels"))


def _registrations(facts: DoctorFacts) -> Iterator[Control]:
    """Gpuward's webhook configurations, with what happens when no webhook answers."""
    for resource in (MUTATING, VALIDATING):
        for item in own_configurations(facts, resource):
            entries = [entry for _, entry in as_objects(item.get("webhooks"))]
            policies = ", ".join(sorted({as_text(e.get("failurePolicy")) for e in entries}))
            named = ", ".join(as_text(e.get("name")) for e in entries)
            setting = f"{named}; failurePolicy {policies}"
            entries_without_ca = [
                {**entry, "clientConfig": {**entry["clientConfig"], "caBundle": ""}}
                if isinstance(entry.get("clientConfig"), dict)
                else entry
                for entry in entries
            ]
            yield Control(resource.kind, name_of(item), setting, digest(entries_without_ca))


def _coverage(facts: DoctorFacts, own: list[Object]) -> Iterator[Control]:
    """Yield the mode and the level of Pod Security of each namespace."""
    modes: Counter[str] = Counter()
    levels: Counter[str] = Counter()
    users = {consumer.namespace for consumer in facts.usage.consumers} if facts.usage else set()
    for item in facts.objects(NAMESPACES):
        name = name_of(item)
        labels = as_object(as_object(item.get("metadata")).get("labels"))
        of_users = " with pods that have GPUs" if name in users else ""
        modes[f"{registered_mode(own, name, labels) or 'not sent to gpuward'}{of_users}"] += 1
        levels[f"{as_text(labels.get(_POD_SECURITY)) or 'no label'}{of_users}"] += 1
    yield Control("namespaces", "gpuward's mode", _counted(modes))
    yield Control("namespaces", "Pod Security, enforced by label", _counted(levels))


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(found.items()))


def _policies(facts: DoctorFacts) -> Iterator[Control]:
    """The admission policies that API servers evaluate themselves, and that something binds."""
    bindings = facts.objects(VALIDATING_BINDINGS)
    policies = {name_of(item): item for item in facts.objects(VALIDATING_POLICIES)}
    for binding in sorted(bindings, key=name_of):
        spec = as_object(binding.get("spec"))
        name = as_text(spec.get("policyName"))
        policy = policies.get(name)
        actions = spec.get("validationActions")
        words = ", ".join(map(as_text, actions)) if isinstance(actions, list) else ""
        setting = f"bound by {name_of(binding)}: {words}"
        if policy is None:
            setting += "; the policy does not exist"
        yield Control(VALIDATING_POLICIES.kind, name, setting, digest((policy or {}).get("spec")))


def _toolkits(facts: DoctorFacts) -> Iterator[Control]:
    """Yield the settings of the toolkit and the device plugin, where DaemonSets have them."""
    found = read_toolkit(facts)
    for kind, programs, names in (
        ("NVIDIA's container toolkit", found.toolkits, (ACCEPT_VARIABLE, ACCEPT_MOUNTS)),
        ("NVIDIA's device plugin", found.plugins, (STRATEGY,)),
    ):
        for each in programs:
            said = [f"{name}={each.settings.get(name, '(default)')}" for name in names]
            setting = f"{', '.join(said)}; {len(each.nodes):,} GPU nodes"
            yield Control(kind, each.subject, setting)


def _reaching(audited: AuditResult) -> Iterable[Reaching]:
    """Return the findings of an audit about access to GPUs, the errors first."""
    found: dict[Reaching, None] = {}
    for located in audited.results.findings:
        finding = located.finding
        rule = RULE_BY_NAME[finding.rule]
        concerns = rule.family == "bypass" or finding.rule in _MORE_RULES
        about = located.owner or finding.object
        if concerns and finding.rule not in _NO_ACCESS and about and located.level != "note":
            name = f"{about.kind.lower()}/{about.name}"
            made = Reaching(name, about.namespace, located.level, finding.rule, finding.message)
            found[made] = None
    for remark in audited.pods.remarks():
        found[Reaching("", "", remark.level, "", remark.message)] = None
    return sorted(found, key=lambda each: (each.level != "error", *each))
