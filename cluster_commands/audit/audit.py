"""One audit: evaluate the objects of a cluster, or of files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import NamedTuple

from cluster_commands.audit.evaluation import ObjectEvaluator
from cluster_commands.audit.facts import namespace_of, read_facts
from cluster_commands.audit.gpu_exceptions import with_gpu_exceptions
from cluster_commands.audit.identity import Identity, identity_of
from cluster_commands.audit.inventory import read_inventory
from cluster_commands.audit.objects import EVALUATED, NAMESPACED
from cluster_commands.audit.remarks import PodRemarks
from cluster_commands.source.objects import ListError, ObjectSource, SourceError
from lint.progress import Progress
from lint.results import InputNotEvaluated, Remark, Results
from rules.objects.object_ref import ObjectRef
from rules.policy import Policy
from rules.profile.context import Context


class AuditResult(NamedTuple):
    """What an audit has found.

    - `unlisted`: the resources that could not be listed, or not to their end.
    - `listed_all`: whether all objects were listed that are evaluated.
    - `incomplete`: the namespaces of which not all findings are known, although they were listed.
    - `saw_all`: whether everything was read that an audit reads.
    - `pods`: what is said about pods together.
    - `identities`: those of objects that have findings, or may own some that have.
    """

    results: Results
    unlisted: frozenset[str]
    listed_all: bool
    incomplete: frozenset[str]
    saw_all: bool
    pods: PodRemarks
    identities: Mapping[ObjectRef, Identity]


def audit(
    source: ObjectSource, policy: Policy, namespace: str | None, *, only_refused: bool = False
) -> AuditResult:
    """Evaluate the objects of `source`, of one namespace or of all, by `policy`.

    With `only_refused`, only what mode `deny` would refuse counts, after what it would fix.
    """
    today = datetime.datetime.now(tz=datetime.UTC).date()
    missing: list[Remark] = []
    unread: list[SourceError] = []  # facts
    failed: list[SourceError] = []

    def on_missing_fact(error: SourceError) -> None:
        unread.append(error)
        remark = Remark("warning", "", 0, 0, str(error))
        if remark not in missing:  # files are read for each fact
            missing.append(remark)

    def on_error(error: SourceError) -> None:
        failed.append(error)
        results.not_evaluated.append(InputNotEvaluated("", 0, 0, str(error)))

    profile = policy.rule_set().profile
    inventory = read_inventory(source, profile, namespace, on_missing_fact)
    facts = read_facts(source, profile, on_missing_fact)
    pods = PodRemarks(profile, facts)
    context = Context(today=today, inventory=inventory)
    applied = with_gpu_exceptions(policy, source, namespace, today, on_missing_fact)
    evaluator = ObjectEvaluator(applied, context, only_refused=only_refused)
    results = evaluator.results
    results.remarks.extend(missing)
    identities: dict[ObjectRef, Identity] = {}
    is_missing = facts.lacks_namespace(namespace)
    names = NAMESPACED if namespace else EVALUATED
    with Progress(None, "objects") as progress:
        for raw in progress.count(source.list_all(names, namespace, on_error)):
            evaluated = evaluator.evaluate(raw)
            pods.add(evaluated)
            if evaluated.findings or evaluated.ref.kind != "Pod":
                identities[evaluated.ref] = identity_of(raw)
            is_missing = is_missing and namespace_of(raw) != namespace
            progress.show()
    evaluator.finish()
    if is_missing and not results.pods:  # files may have the pods of a namespace without it
        on_error(SourceError(f"there is no namespace {namespace}"))
    results.remarks.extend(pods.remarks())
    for exception in policy.exceptions:
        if exception.expired(today):
            what = f"({exception.reason}) expired on {exception.expires}"
            message = f"the exception to {', '.join(exception.rules)} {what}"
            results.remarks.append(Remark("warning", results.policy, 0, 0, message))
    unread += failed
    unlisted = frozenset(str(e.resource) for e in unread if isinstance(e, ListError))
    incomplete = frozenset(evaluator.incomplete)
    return AuditResult(results, unlisted, not failed, incomplete, not unread, pods, identities)
