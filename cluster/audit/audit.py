"""One audit: evaluate the objects of one or several clusters, or of files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from cluster.api.errors import ClusterError, ForbiddenError, MissingError
from cluster.audit import Refuser
from cluster.audit.devices import DeviceRemarks
from cluster.audit.evaluation import (
    AdminAccessRemarks,
    Evaluated,
    ObjectEvaluator,
    PodRemarks,
)
from cluster.audit.facts import (
    CLUSTER_SCOPED,
    EVALUATED,
    EVALUATED_EVERYWHERE,
    EVALUATED_WITH_FACTS,
    AuditFacts,
    Identity,
    identity_of,
    kind_of,
    read_facts,
    with_gpu_exceptions,
)
from cluster.audit.period import ALWAYS, Period
from cluster.audit.pods_on_gpu_nodes import PodsOnGpuNodes
from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import (
    VALIDATING,
    ListError,
    Object,
    ObjectReader,
    SourceError,
    namespace_in,
)
from lint.processes import Progress
from policies.policy import Policy
from reports.formats import many, some
from reports.results import InputNotEvaluated, Remark, Results
from rules.finding import Action
from rules.objects.kubernetes_objects import CLAIM_SPEC_PATHS
from rules.objects.object_ref import ObjectRef

_NO_REGISTRATION = (
    "no webhook of gpuward is registered, as far as is known: findings in namespaces that it will "
    "exclude are reported too, but for those of Kubernetes itself"
)


class AuditResult(NamedTuple):
    """The result of an audit.

    - `unlisted`: the resources that could not be listed, or not to their end.
    - `listed_all`: whether all objects were listed that are evaluated.
    - `incomplete`: the namespaces of which not all findings are known, although they were listed.
    - `saw_all`: whether everything was read that an audit reads.
    - `kept_off`: who makes pods that mode `deny` would keep off the GPU nodes on which they run, by
      namespace.
    - `pods`, `devices`: what is said about pods, and about devices, together.
    - `identities`: those of objects that have findings, or may own some that have.
    """

    results: Results
    unlisted: frozenset[str]
    listed_all: bool
    incomplete: frozenset[str]
    saw_all: bool
    kept_off: Mapping[str, Sequence[str]]
    pods: PodRemarks
    devices: DeviceRemarks
    identities: Mapping[ObjectRef, Identity]


def audit(
    source: ObjectReader,
    policy: Policy,
    namespace: str | None,
    *,
    refused_by: Refuser | None = None,
    period: Period = ALWAYS,
) -> AuditResult:
    """Evaluate the objects of `source`, of one namespace or of all, by `policy`.

    With `refused_by`, only what that would refuse in mode `deny` counts. Only objects are evaluated
    that were created in the `period`. Raises SourceError if the source answers nothing.
    """
    return _Audit(source, policy, namespace, period, refused_by=refused_by).run()


class _Audit:
    """One audit, with what it has found so far, and what it could not read."""

    def __init__(
        self,
        source: ObjectReader,
        policy: Policy,
        namespace: str | None,
        period: Period,
        *,
        refused_by: Refuser | None,
    ) -> None:
        self._source, self._policy, self._namespace = source, policy, namespace
        self._refused_by = refused_by
        self._today = datetime.datetime.now(tz=datetime.UTC).date()
        self._warnings: dict[str, None] = {}  # each once: files are read for each fact
        self._unread: list[SourceError] = []
        self._failed: list[SourceError] = []
        self._identities: dict[ObjectRef, Identity] = {}
        self._snapshot = Snapshot(source, policy.rule_set().profile, keep_going=True)
        applied = with_gpu_exceptions(policy, self._snapshot, namespace, self._today)
        self._evaluator = ObjectEvaluator(
            applied, self._today, refused_by=refused_by, period=period
        )

    def run(self) -> AuditResult:
        """Read and evaluate everything."""
        facts = self._read_facts_and_evaluate()
        results, owner_of = self._evaluator.results, self._evaluator.owner_of
        profile = self._policy.rule_set().profile
        pods = PodRemarks(profile, facts, owner_of)
        devices = DeviceRemarks(profile)
        admin_access = AdminAccessRemarks(profile, facts, self._namespace)
        on_gpu_nodes = PodsOnGpuNodes(self._namespace, owner_of)
        is_missing = facts.lacks_namespace(self._namespace)
        with Progress(None, "objects") as progress:
            names = EVALUATED if self._namespace else EVALUATED_EVERYWHERE
            listed = self._source.list_all(names, self._namespace, self._failed.append)
            for raw in progress.counted(listed):
                if not self._is_left_out(raw):
                    evaluated = self._evaluate(raw)
                    pods.add(evaluated)
                    devices.add(raw)
                    admin_access.add(evaluated)
                    on_gpu_nodes.add(evaluated)
                is_missing = is_missing and namespace_in(raw) != self._namespace
                progress.show()
        if error := self._reason_nothing_read():
            raise error
        self._evaluator.finish()
        try:
            on_gpu_nodes.read(self._snapshot)
        except SourceError as error:
            self._warnings[str(error)] = None
        results.pods_without_gpu += on_gpu_nodes.results()
        if is_missing and not results.pods:  # files may have the pods of a namespace without it
            self._failed.append(SourceError(f"there is no namespace {self._namespace}"))
        failed = dict.fromkeys(map(str, self._failed))  # both lists begin with the API groups
        results.not_evaluated.extend(InputNotEvaluated("", 0, 0, why) for why in failed)
        texts = (text for text in self._warnings if text not in failed)  # each is said once
        warnings = (Remark("warning", "", 0, 0, text) for text in texts)
        assumed = self._assumptions(facts)
        about_all = (*warnings, *assumed, *self._not_refused(facts, results))
        found = (
            *pods.remarks(),
            *on_gpu_nodes.remarks(),
            *(on_gpu_nodes.remarks_about_kept_off() if self._refused_by else ()),
            *devices.remarks(),
            *admin_access.remarks(),
            *self._expired_exceptions(),
        )
        results.remarks.extend((*about_all, *found))
        unread = self._unread + self._failed
        return AuditResult(
            results=results,
            unlisted=frozenset(
                str(error.resource) for error in unread if isinstance(error, ListError)
            ),
            listed_all=not self._failed,
            incomplete=frozenset(self._evaluator.incomplete),
            saw_all=not unread,
            kept_off=on_gpu_nodes.kept_off,
            pods=pods,
            devices=devices,
            identities=self._identities,
        )

    def _reason_nothing_read(self) -> SourceError | None:
        """Return the first error, if no request was answered: all others say the same."""
        unread = [e for e in self._unread + self._failed if isinstance(e, ListError)]
        answered = (ForbiddenError, MissingError)
        was_answered = self._evaluator.results.objects or any(
            not isinstance(error.__cause__, ClusterError) or isinstance(error.__cause__, answered)
            for error in unread
        )
        return None if was_answered or not unread else unread[0]

    def _read_facts_and_evaluate(self) -> AuditFacts:
        def on_evaluated(raw: Object) -> None:
            if self._namespace is None:
                self._evaluate(raw)

        profile, on_missing = self._policy.rule_set().profile, self._on_missing_fact
        facts = read_facts(self._snapshot, profile, self._namespace, on_missing, on_evaluated)
        self._evaluator.use(facts)
        if self._refused_by == "webhook" and not facts.configurations:
            self._warnings[_NO_REGISTRATION] = None
        names = self._concerned(facts.unexpectedly_not_sent())
        if names and self._refused_by != "policies":  # which are asked whatever is sent
            self._warnings[_not_sent(names, is_assumed=self._refused_by is not None)] = None
        return facts

    def _concerned(self, names: list[str]) -> list[str]:
        """Those of the namespaces that the audit is about."""
        return [name for name in names if self._namespace in {None, name}]

    def _assumptions(self, facts: AuditFacts) -> Iterator[Remark]:
        """Yield the assumptions of `--refused-by webhook`, so that a reader can object."""
        if self._refused_by and (names := self._concerned(facts.excluded())):
            what = (
                f"{many(len(names), 'namespace')} not audited, as the registered webhooks exclude"
            )
            text = f"{what} them: {some(names)}"
            yield Remark("note", "", 0, 0, text, is_always_shown=True)

    def _not_refused(self, facts: AuditFacts, results: Results) -> Iterator[Remark]:
        """Return how many errors no configuration refuses, as the modes are now."""
        if self._refused_by or not facts.configurations or facts.namespaces is None:
            return  # the modes are not known, or not asked for
        modes: dict[str, str] = {}
        total = count = 0
        for located in results.findings:
            if located.level == "error" and (about := located.finding.object) and about.namespace:
                total += 1
                home = about.namespace
                if (mode := facts.mode_of(home)) != Action.DENY.word:
                    count += 1
                    modes[home] = f"{home} ({mode or 'not sent to gpuward'})"
        if count:
            what = f"{count:,} of {many(total, 'error')} in namespaces where nothing is refused"
            text = f"{what}: {some([modes[home] for home in sorted(modes)])}"
            yield Remark("note", "", 0, 0, text, is_always_shown=True)

    def _on_missing_fact(self, error: SourceError) -> None:
        resource = error.resource if isinstance(error, ListError) else None
        if resource == VALIDATING and not self._refused_by:
            return  # the labels of namespaces say nearly as much
        self._warnings[str(error)] = None
        self._unread.append(error)
        if self._namespace is None and _hides_evaluated(error):
            self._failed.append(error)

    def _is_left_out(self, raw: Object) -> bool:
        """Return whether an API server would not list `raw` here. Files give all that they have."""
        group, kind = kind_of(raw)
        may_be_cluster_scoped = group in CLUSTER_SCOPED and kind not in CLAIM_SPEC_PATHS
        is_cluster_scoped = may_be_cluster_scoped and not namespace_in(raw)
        is_done = (group, kind) in EVALUATED_WITH_FACTS
        return is_done or bool(self._namespace and is_cluster_scoped)

    def _evaluate(self, raw: Object) -> Evaluated:
        evaluated = self._evaluator.evaluate(raw)
        if evaluated.findings or evaluated.ref.kind != "Pod":
            self._identities[evaluated.ref] = identity_of(raw)
        return evaluated

    def _expired_exceptions(self) -> Iterator[Remark]:
        for exception in self._policy.exceptions:
            if exception.has_expired(self._today):
                what = f"({exception.reason}) expired on {exception.expires}"
                message = f"the exception to {', '.join(exception.rules)} {what}"
                yield Remark("warning", "", 0, 0, message)


def _not_sent(names: list[str], *, is_assumed: bool) -> str:
    """The warning about namespaces that are not sent to gpuward, although nothing excludes them."""
    found = f"{many(len(names), 'namespace')} not sent to gpuward, although nothing excludes them"
    assumed = "; this report assumes that they are" if is_assumed else ""
    return f"{found}: {some(names)}: what is created there passes, see gpuward doctor{assumed}"


def _hides_evaluated(error: SourceError) -> bool:
    """Return whether objects of EVALUATED_WITH_FACTS may be missing because of `error`."""
    return (
        isinstance(error, ListError)
        and (error.resource.group, error.resource.kind) in EVALUATED_WITH_FACTS
    )


Clusters: TypeAlias = Mapping[str, Callable[[], ObjectReader]]
"""Functions that open clusters, by context. The name of the only one may be empty."""


def audit_clusters(
    clusters: Clusters, audit: Callable[[ObjectReader], AuditResult]
) -> tuple[Results, AuditResult | None]:
    """Audit each cluster; the results of all, and what the audit of the only one has found.

    What reports call a file is the context. One of several clusters that cannot be read is input
    that was not evaluated.
    """
    together = Results()
    result = None
    for context, open_source in clusters.items():
        try:
            result = audit(open_source())
        except SourceError as error:
            together.not_evaluated.append(InputNotEvaluated(context, 0, 0, str(error)))
            continue
        together.add(_named(result.results, context) if context else result.results)
    return together, result if len(clusters) == 1 else None


def _named(results: Results, context: str) -> Results:
    """The results, with the context where there was no name of a file."""
    results.findings = [each._replace(file=context) for each in results.findings]
    results.remarks = [each._replace(file=context) for each in results.remarks]
    results.not_evaluated = [each._replace(file=context) for each in results.not_evaluated]
    results.pods_without_gpu = [each._replace(file=context) for each in results.pods_without_gpu]
    return results
