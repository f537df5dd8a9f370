"""The known objects of a cluster, in memory, and the results of the commands about them."""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.accounting.account import CountedPod
from cluster.accounting.running_account import RunningAccount
from cluster.accounting.usage import Usage
from cluster.api.errors import ForbiddenError
from cluster.audit import Refuser
from cluster.audit.audit import AuditResult, audit
from cluster.audit.policy_reports import KINDS
from cluster.audit.trend import NAME as TREND_NAME
from cluster.audit.trend import Day, days_of
from cluster.doctor.examination import examine_objects
from cluster.doctor.facts import read_facts
from cluster.doctor.rows import Row
from cluster.snapshot.snapshot import Snapshot
from cluster.source.following import Key
from cluster.source.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    GPU_EXCEPTIONS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    VALIDATING,
    ListError,
    MissingRightError,
    Object,
    ObjectReader,
    Resource,
    SourceError,
    name_of,
)
from cluster.source.registered import is_own
from cluster.source.release import homes
from cluster.webhooks.decision_log import CONTAINER, DecisionLog
from cluster.why.devices.allocator import DeviceAllocator
from cluster.why.devices.pod_devices import claims_in
from cluster.why.explainer import Explainer
from cluster.why.explanation import Answer, Explanation, Namespace, explain
from cluster.why.nodes import read_node
from cluster.why.placed.room_makers import RoomMaker, room_makers
from console.pages.decisions import WebhookFacts, exceptions_of, failure_policies_of, modes_of
from console.pages.findings import FixPreview, fix_preview
from console.pages.gpus import Teams
from console.utilisation import Prometheus
from policies.loading import default_policy
from policies.policy import Policy
from policies.profiles import built_in_profiles
from reports.findings import LocatedFinding
from rules.base.json_values import as_object, as_objects, as_text
from rules.profile.context import Context
from rules.profile.platforms.records import parse_version

FOLLOWED = (NODES, PODS, SLICES, CLAIMS)
"""The resources that the account of GPUs is made of."""
WEBHOOK_SECONDS = 5.0
"""So old may what is known of the webhook be."""
TEAMS_SECONDS = 60.0
"""So old may the labels of namespaces be."""
WHY_SECONDS = 10.0
"""So old may be what is read of other pods to say why one waits."""
AUDIT_SECONDS = 300.0
"""So old may an audit of a cluster be; the audit of files is done once."""
_DAY_SECONDS = 86400.0  # so old may be what doctor has found, until it has looked again


class Audit(NamedTuple):
    """An audit, and when it was done."""

    result: AuditResult
    read_at: datetime.datetime


class Examination(NamedTuple):
    """The rows of `gpuward doctor`, and when they were made."""

    rows: tuple[Row, ...]
    read_at: datetime.datetime


class Trend(NamedTuple):
    """The days of which the number of findings is known, or `why` they are not."""

    days: tuple[Day, ...]
    why: str = ""


class ClusterState:
    """The known objects of a cluster. Its methods may be called from several threads.

    - `title` is what the pages call the cluster.
    - `reader` reads other objects than those of FOLLOWED when they are asked for.
    - `is_live`: it may change, as a cluster does and files do not.
    - `on_change` is called after each change, from the thread that has brought it.
    - `read_log` gets the text at a path of the API server; None: there are no logs.
    - `team_label` is the label of namespaces whose value is the team; empty: there are no teams.

    It is a `cluster.source.following.Follower`.
    """

    def __init__(
        self,
        title: str,
        reader: ObjectReader,
        policy: Policy,
        policy_file: str = "",
        *,
        is_live: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        read_log: Callable[[str], str] | None = None,
        team_label: str = "",
    ) -> None:
        self.title, self.policy, self.policy_file = title, policy, policy_file
        self.on_change: Callable[[], object] = lambda: None
        self._reader = reader
        self._rules = policy.rule_set()
        self.is_live = is_live
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._account = RunningAccount(self._rules.profile)
        self._pending: dict[Key, Object] = {}
        self._errors: dict[Resource, ListError] = {}
        self._listed: set[Resource] = set()
        self._version = 0
        self._read_at = _now()
        self._usage: Usage | None = None
        self._audit_lock = threading.Lock()
        self._audits: dict[bool, tuple[float, Audit]] = {}
        self._doctor_lock = threading.Lock()
        self._doctor: tuple[float, Examination] | None = None
        self._looked_again = -math.inf
        self.prometheus: Prometheus | None = None
        """Knows how busy cards were; None if the user has named none."""
        self.decision_log = DecisionLog()
        self._read_log = read_log
        self._webhook_lock = threading.Lock()
        self._webhook: tuple[float, WebhookFacts] | None = None
        self._trend: tuple[float, Trend] | None = None
        self._read_for_why: tuple[float, Snapshot, Explainer] | None = None
        self._team_label = team_label
        self._teams: tuple[float, Teams] | None = None

    # What a follower is told.

    def put(self, resource: Resource, raw: Object) -> None:
        """Take a node, a pod, a claim or a slice in."""
        with self._lock:
            self._put(resource, raw)
            self._changed()
        self.on_change()

    def drop(self, resource: Resource, key: Key) -> None:
        """Forget such an object."""
        with self._lock:
            if resource == PODS:
                self._account.drop_pod(key)
                self._pending.pop(key, None)
            elif resource == NODES:
                self._put_pods(must=self._account.drop_node(key[1]))
            elif resource == CLAIMS:
                self._account.put_claim(key, None)
            elif resource == SLICES:
                self._account.put_slice(key[1], None)
            self._changed()
        self.on_change()

    def listed(self, resource: Resource) -> None:
        """Note that all objects of a resource are known."""
        with self._lock:
            self._listed.add(resource)
            self._errors.pop(resource, None)
            self._changed()
        self.on_change()

    def failed(self, resource: Resource, error: ListError) -> None:
        """Note that a resource cannot be read now; what was known of it stays."""
        with self._lock:
            self._errors[resource] = error
            self._changed()
        self.on_change()

    def _changed(self) -> None:
        self._version += 1
        self._read_at = _now()
        self._usage = None

    def _put(self, resource: Resource, raw: Object) -> None:
        key = _key(raw)
        if resource == PODS:
            self._account.put_pod(raw)
            if as_object(raw.get("spec")).get("nodeName"):
                self._pending.pop(key, None)
            elif as_object(raw.get("status")).get("phase") in {"Pending", None}:
                self._pending[key] = raw
        elif resource == NODES:
            self._put_pods(must=self._account.put_node(raw))
        elif resource == CLAIMS:
            self._account.put_claim(key, raw)
        elif resource == SLICES:
            self._account.put_slice(key[1], raw)

    def _put_pods(self, *, must: bool) -> None:
        for pod in self._reader.list(PODS) if must else ():
            self._account.put_pod(pod)

    # What pages ask.

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._version

    @property
    def read_at(self) -> datetime.datetime:
        """Return when the last change was seen."""
        return self._read_at

    def usage(self) -> tuple[Usage, tuple[str, ...]]:
        """The account of the GPUs, and a line for each thing that could not be read.

        Raises SourceError if nothing is known yet, and why.
        """
        with self._lock:
            if PODS not in self._listed and NODES not in self._listed:
                raise self._errors.get(PODS) or SourceError(
                    f"{self.title}: the nodes and pods are not listed yet; try again in a moment"
                )
            if self._usage is None:
                self._usage = self._account.usage()
            usage = self._usage
            missing = [str(error) for error in self._errors.values()]
            missing += [
                f"{resource} are not listed yet"
                for resource in FOLLOWED
                if resource not in self._listed and resource not in self._errors
            ]
        return usage, tuple(missing)

    def teams(self) -> Teams | None:
        """The team of each namespace that has one; None if the user did not ask for teams.

        Raises SourceError.
        """
        if not self._team_label:
            return None
        now = self._monotonic()
        known = self._teams
        if known is None or (self.is_live and now - known[0] > TEAMS_SECONDS):
            listed = (
                as_object(raw.get("metadata")) for raw in self._snapshot().objects(NAMESPACES)
            )
            teams = {
                as_text(metadata.get("name")): team
                for metadata in listed
                if (team := as_text(as_object(metadata.get("labels")).get(self._team_label)))
            }
            known = self._teams = now, teams
        return known[1]

    def node(self, name: str) -> tuple[Mapping[str, Any], tuple[CountedPod, ...]] | None:
        """The node of this name, and what counts of its pods; None if it does not exist."""
        with self._lock:
            raw = self._account.node(name)
            return (raw, self._account.pods_of(name)) if raw is not None else None

    def node_names(self) -> frozenset[str]:
        """The names of all nodes, with or without GPUs."""
        with self._lock:
            return frozenset(name_of(raw) for raw, _ in self._account.nodes())

    def room_makers(
        self, namespace: str, name: str, nodes: Iterable[str]
    ) -> tuple[RoomMaker, ...] | None:
        """The pods that could make room for a pod that waits, on some of `nodes`.

        None if it does not wait, or for devices of claims, which are not counted by node. Raises
        SourceError.
        """
        with self._lock:
            pod = self._pending.get((namespace, name))
            found = [
                (raw, self._account.pods_of(node))
                for node in nodes
                if (raw := self._account.node(node)) is not None
            ]
        if pod is None or as_object(pod.get("spec")).get("resourceClaims"):
            return None
        return tuple(room_makers(found, lambda node: bool(explain(pod, [node]).fitting)))

    def why(self, namespace: str, name: str, *, names_others: bool = True) -> Explanation | None:
        """Return why a pod is Pending; None if there is no such pod. Raises SourceError.

        What depends on the labels and volumes of other pods, which are not in memory, is read if
        nothing else decides. The answer may name pods of other namespaces; without `names_others`
        it is not read, and not known.
        """
        with self._lock:
            pod = self._pending.get((namespace, name))
        pod = pod or self._reader.get(PODS, namespace, name)
        if pod is None:
            return None
        found = self.explain(pod)
        if found.answer is Answer.NOT_KNOWN and names_others:
            snapshot, explainer = self._read_all_for_why()
            complete = explainer.explain(pod)
            found = found if snapshot.missing_rights else complete
        return found

    def _read_all_for_why(self) -> tuple[Snapshot, Explainer]:
        """Read the pods too. Of a cluster this is kept for moments: for all pods of one page."""
        with self._reading:
            now, known = self._monotonic(), self._read_for_why
            if known is None or (self.is_live and now - known[0] > WHY_SECONDS):
                snapshot = self._snapshot()
                known = self._read_for_why = now, snapshot, Explainer(snapshot)
        return known[1], known[2]

    def explain(
        self, pod: Object, *, exists: bool = True, beside: Iterable[Object] = ()
    ) -> Explanation:
        """Return why `pod` is Pending, or would be. Raises SourceError.

        `beside` are claims and templates of claims that will exist too.
        """
        home = as_text(as_object(pod.get("metadata")).get("namespace"))
        claims = None
        made = claims_in(home, beside)
        snapshot = self._snapshot()
        if as_object(pod.get("spec")).get("resourceClaims"):
            claims = {**made.made, **snapshot.by_name(CLAIMS, home)}
        quotas, limits = (
            () if exists else tuple(snapshot.objects(each, home)) for each in (QUOTAS, LIMIT_RANGES)
        )
        with self._lock:
            nodes = [read_node(raw, load) for raw, load in self._account.nodes()]
        return explain(
            pod,
            nodes,
            namespace=Namespace(claims, quotas, limits, home, made.templates),
            devices=lambda: self._devices(home),
            exists=exists,
        )

    def _devices(self, home: str) -> DeviceAllocator | None:
        """Return the facts about devices; None if the account may not list all that decides.

        Claims have their names only in the namespace `home`.
        """
        snapshot = self._snapshot()
        slices, classes, claims, rules = map(
            snapshot.objects, (SLICES, DEVICE_CLASSES, CLAIMS, TAINT_RULES)
        )
        if snapshot.missing_rights or not classes:
            return None
        return DeviceAllocator(
            slices,
            classes,
            claims,
            rules,
            shows=lambda where: where == home,
            version=parse_version(self._reader.server_version()),
        )

    def scheduler_messages(self) -> Mapping[Key, str]:
        """Return the last message of kube-scheduler about each pod without a node."""
        with self._lock:
            pending = [*self._pending.items()]
        return {key: said for key, raw in pending if (said := _scheduler_message(raw))}

    def audit(self, *, only_refused: bool = False) -> Audit:
        """Return the findings for all objects, or only those that mode `deny` would refuse."""
        with self._audit_lock:
            done, found = self._audits.get(only_refused, (0.0, None))
            now = self._monotonic()
            if found is None or (self.is_live and now - done > AUDIT_SECONDS):
                refused_by: Refuser | None = "webhook" if only_refused else None
                result = audit(self._reader, self.policy, None, refused_by=refused_by)
                result.results.policy = self.policy_file
                found = Audit(result, _now())
                self._audits[only_refused] = self._monotonic(), found
            return found

    def doctor(self) -> Examination:
        """Return what the checks of `gpuward doctor` find that only read objects.

        Raises SourceError.
        """
        with self._doctor_lock:
            now = self._monotonic()
            if self._doctor is None or (self.is_live and now - self._doctor[0] > AUDIT_SECONDS):
                facts = read_facts(self._reader, self.policy, self._read_log)
                found = Examination(tuple(examine_objects(facts)), _now())
                self._doctor = self._monotonic(), found
            return self._doctor[1]

    def known_doctor(self) -> Examination | None:
        """Return the last result of `doctor`; None if there is none, or it is older than a day.

        If it is older than some minutes, a thread looks again in the background.
        """
        if self._doctor is None:
            return None
        looked_at, found = self._doctor
        now = self._monotonic()
        if not self.is_live or now - looked_at <= AUDIT_SECONDS:
            return found
        with self._lock:
            is_due = now - self._looked_again > AUDIT_SECONDS
            if is_due:
                self._looked_again = now
        if is_due:
            threading.Thread(target=self._look_again, name="doctor", daemon=True).start()
        return found if now - looked_at <= _DAY_SECONDS else None

    def _look_again(self) -> None:
        with contextlib.suppress(SourceError):  # whoever opens its page is told
            self.doctor()

    def trend(self) -> Trend:
        """Return how many findings there were on the last days."""
        now = self._monotonic()
        if self._trend is None or (self.is_live and now - self._trend[0] > AUDIT_SECONDS):
            self._trend = now, self._read_trend()
        return self._trend[1]

    def _read_trend(self) -> Trend:
        why = ""
        for kind in KINDS.values():
            try:
                report = self._reader.get(kind.cluster, "", TREND_NAME)
            except SourceError as error:  # the other kind may be readable
                why = why or str(error)
                continue
            if report:
                return Trend(days_of(report))
        return Trend((), why)

    def webhook(self) -> WebhookFacts:
        """Return the facts about the webhook, and its latest decisions."""
        with self._webhook_lock:
            now = self._monotonic()
            if self._webhook is None or (self.is_live and now - self._webhook[0] > WEBHOOK_SECONDS):
                self._webhook = self._monotonic(), self._read_webhook()
            return self._webhook[1]

    def _read_webhook(self) -> WebhookFacts:
        snapshot = self._snapshot(keep_going=True)
        own = [item for item in snapshot.objects(VALIDATING) if is_own(item)]
        namespaces, asked = snapshot.objects(NAMESPACES), snapshot.objects(GPU_EXCEPTIONS)
        of_logs: list[str] = []
        if self._read_log:
            for home in homes(own)[:1]:
                pods = _pods_of_webhook(snapshot, home.namespace)
                errors = self.decision_log.read(self._read_log, home.namespace, pods)
                needed = f"; it needs the right to get pods/log in namespace {home.namespace}"
                of_logs += [
                    f"{error}{needed if isinstance(error, ForbiddenError) else ''}"
                    for error in errors
                ]
        return WebhookFacts(
            bool(own),
            failure_policies_of(own),
            modes_of(own, namespaces),
            self.decision_log.decisions,
            self.decision_log.replicas,
            tuple(exceptions_of(self.policy, asked)),
            (*snapshot.errors, *of_logs),
            _now(),
        )

    def fix_preview(self, located: LocatedFinding) -> FixPreview:
        """Return the changes that the fix of a finding alone would make in its object."""
        ref = located.finding.object
        if ref is None:
            return FixPreview("", (), "the finding is about no object")
        identity = self.audit().result.identities.get(ref)
        version = identity.api_version.rpartition("/")[2] if identity else "v1"
        resource = Resource(f"{ref.kind.lower()}s", ref.kind, ref.group, (version,))
        try:
            raw = self._reader.get(resource, ref.namespace, ref.name)
        except SourceError as error:
            return FixPreview("", (), str(error))
        if raw is None:
            return FixPreview("", (), "the object is gone")
        return fix_preview(raw, located, self._rules, Context(_now().date()))

    @property
    def profiles(self) -> Sequence[str]:
        """Return what can evaluate a manifest: "", which is the policy in force, or a profile."""
        return ("", *built_in_profiles())

    def policy_for(self, profile: str) -> Policy:
        """The policy in force; with the name of a profile, the default policy for that."""
        return default_policy([profile]) if profile else self.policy

    def _snapshot(self, *, keep_going: bool = False) -> Snapshot:
        """Return a new picture of the cluster, of which only what is asked for is read."""
        return Snapshot(self._reader, self._rules.profile, keep_going=keep_going)


def state_of(
    title: str, reader: ObjectReader, policy: Policy, policy_file: str, team_label: str = ""
) -> ClusterState:
    """The state of what `reader` lists now. Raises SourceError if it can list no pods."""
    state = ClusterState(title, reader, policy, policy_file, is_live=False, team_label=team_label)
    snapshot = Snapshot(reader, policy.profile)
    for resource in FOLLOWED:
        for raw in snapshot.stream(resource):
            state.put(resource, raw)
        error = snapshot.missing.get(resource)
        if isinstance(error, MissingRightError):
            if resource == PODS:
                raise error
            state.failed(resource, error)
        else:
            state.listed(resource)
    return state


def _pods_of_webhook(snapshot: Snapshot, namespace: str) -> list[str]:
    metadata = (as_object(raw.get("metadata")) for raw in snapshot.stream(PODS, namespace))
    return [
        as_text(one.get("name"))
        for one in metadata
        if as_object(one.get("labels")).get("app.kubernetes.io/component") == CONTAINER
        and as_object(one.get("labels")).get("app.kubernetes.io/part-of") == "gpuward"
    ]


def _key(raw: Object) -> Key:
    metadata = as_object(raw.get("metadata"))
    return as_text(metadata.get("namespace")), as_text(metadata.get("name"))


def _scheduler_message(raw: Object) -> str:
    conditions = as_objects(as_object(raw.get("status")).get("conditions"))
    said = (as_text(c.get("message")) for _, c in conditions if c.get("type") == "PodScheduled")
    return next(said, "").partition(". ")[0]  # what follows is about preemption


def _now() -> datetime.datetime:
    return datetime.datetime.now(tz=datetime.UTC)
