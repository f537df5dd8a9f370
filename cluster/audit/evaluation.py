"""Evaluate objects as they are in a cluster: without a text, and each once for its owner."""

from __future__ import annotations

import datetime
import json
import marshal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.pod_requests import has_terminated
from cluster.accounting.pods_without_gpu import RULE
from cluster.audit import Refuser
from cluster.audit.facts import AuditFacts, kind_of
from cluster.audit.period import ALWAYS, Period
from cluster.audit.replicas import MARSHAL_VERSION, replica_key
from cluster.source.objects import Object, namespace_in, without_managed_fields
from policies.policy import Policy
from reports.findings import (
    RULE_BY_NAME,
    LocatedFinding,
    is_about_secret,
    to_reported_finding,
    without_values,
)
from reports.formats import many, some
from reports.owners import Owners
from reports.results import MAX_FINDINGS, InputNotEvaluated, Remark, Results
from rules.base.caching import BoundedCache
from rules.base.json_values import Path, as_object, as_objects, as_text
from rules.engine.bounds import (
    LARGE_OBJECT_BYTES,
    MAX_STEPS,
    StepLimit,
    TooManyStepsError,
    oversized_reason,
)
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import check, fix
from rules.finding import Action, Finding
from rules.gpu.components import component_of, is_made_by_daemon_set
from rules.gpu.devices import pod_requests_gpu
from rules.inventory.inventory import ADMIN_ACCESS_LABELS
from rules.objects.kubernetes_objects import CLAIM_GROUP, CLAIM_SPEC_PATHS, DeviceClaim
from rules.objects.object_ref import ObjectRef, object_ref
from rules.objects.pod import Pod, set_circumstances
from rules.placement.node_labels import GPU_CORE, GPU_MEM
from rules.placement.selected_cards import requests_share
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from rules.workloads.object_kinds import KEY_FIELDS, OBJECT_KINDS
from sources.manifests import Excerpt, Span

# Of these the webhook is sent quotas, LimitRanges and claims; of the others it hears nothing.
NOT_SENT = (OBJECT_KINDS.keys() | KEY_FIELDS.keys()) - {
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    *((CLAIM_GROUP, kind) for kind in ("ResourceClaim", "ResourceClaimTemplate")),
}
_NOWHERE = Span(0, 0, 0, 0)
_EXCERPT = 120  # characters
# Findings that are kept until those of one owner are merged, which bounds memory
_UNMERGED = 20_000


class Evaluated(NamedTuple):
    """An object and what the rules found in it."""

    raw: Object
    ref: ObjectRef
    findings: list[Finding]
    is_kept_off: bool = False
    """whether it is a pod that a fix would keep off the GPU node on which it runs"""


class ObjectEvaluator:
    """Adds what the rules of `policy` say about objects to `results`.

    Owners must come before what they own, such as Deployments before pods. With `refused_by`, only
    what that would refuse in mode `deny` counts. Objects that were created at another time than the
    `period` only say who owns what. `incomplete` are the namespaces with objects that were not
    evaluated in whole, or findings that are left out; empty for objects without a namespace.
    """

    def __init__(
        self,
        policy: Policy,
        today: datetime.date,
        *,
        refused_by: Refuser | None = None,
        period: Period = ALWAYS,
    ) -> None:
        self.results = Results()
        self.incomplete: set[str] = set()
        self._context = Context(today, profile=policy.rule_set().profile)
        self._facts = AuditFacts()
        self._rules = policy.rule_set()
        if refused_by == "policies":
            from webhook.in_process.statements import exported_names  # noqa: PLC0415  # loads CEL

            self._rules = self._rules.restricted_to(exported_names(self._rules))
        self._refused_by = refused_by
        self._period = period
        self._owners = Owners()
        # The keys of running pods in which nothing was found.
        self._clean_pods: BoundedCache[bytes, None] = BoundedCache()
        self._merge_at = _UNMERGED

    def use(self, facts: AuditFacts) -> None:
        """Use what is known of the cluster from now on."""
        self._facts = facts
        self._clean_pods.clear()
        self._context = self._context._replace(inventory=facts.inventory)

    def evaluate(self, raw: Object) -> Evaluated:
        """Evaluate one object; no fault of it, or of gpuward, keeps the others from theirs."""
        group, kind = kind_of(raw)
        ref = object_ref(kind, group, as_object(raw.get("metadata")), self._context.namespace)
        findings: list[Finding] = []
        is_kept_off = False
        if not self._period.contains(raw):
            if kind != "Pod":
                self._owners.add(raw, self._context.namespace)
            return Evaluated(raw, ref, findings)
        self.results.objects += 1
        try:
            if why := _oversized_reason(raw):
                why = f"gpuward cannot evaluate this object because of {why}"
                self._not_evaluated(ref, f"{ref}: {why}")
            else:
                findings, is_kept_off = self._check(raw, ref)
        except TooManyStepsError:
            self._not_evaluated(ref, f"{ref}: the rules take too many steps for its size")
        except Exception as error:  # noqa: BLE001  # a bug of ours must not hide the other results
            why = f"gpuward itself failed here, please report it: {type(error).__name__}: {error}"
            self._not_evaluated(ref, f"{ref}: {why}")
        if findings or kind != "Pod":
            self._owners.add(raw, self._context.namespace)
        self.results.findings += [_located(finding, raw) for finding in findings]
        if len(self.results.findings) >= self._merge_at:
            self.finish()
            kept = min(2 * len(self.results.findings), MAX_FINDINGS)
            self._merge_at = _UNMERGED + kept
        return Evaluated(raw, ref, findings, is_kept_off)

    def owner_of(self, evaluated: Evaluated) -> ObjectRef:
        """Return the topmost controller of an object, as far as it is known by now."""
        self._owners.add(evaluated.raw, self._context.namespace)
        return self._owners.top_owner(evaluated.ref)[0]

    def finish(self) -> None:
        """Merge what pods of one owner share; report no more findings than the linter."""
        merged = self._owners.merge(self.results.findings)
        self.results.findings = [*merged]
        self.results.leave_out_further_findings()
        for located in merged[len(self.results.findings) :]:
            about = located.finding.object
            self.incomplete.add(about.namespace if about else "")

    def _check(self, raw: Object, ref: ObjectRef) -> tuple[list[Finding], bool]:
        """Return what counts of the findings, and whether the object is a pod that is kept off."""
        results, key = self.results, replica_key(raw, self._context.inventory)
        if key in self._clean_pods:  # nor is there anything in a replica
            results.pods += 1
            return [], False
        result = check(raw, self._rules, self._context, steps=StepLimit(MAX_STEPS))
        if key and _is_clean_pod(result):
            self._clean_pods.store(key, None)
        results.pods += len(result.pod_paths)
        results.components += result.components
        results.other_objects += result.other_objects
        results.excepted += len(result.excepted)
        if result.malformed_fields or result.failures:
            self._unread_parts(result, ref)
        if not result.findings:
            return [], False
        if self._refused_by and not self._is_decided(raw):
            return [], False
        if self._refused_by == "policies":  # which fix nothing
            return [f for f in result.findings if f.action is Action.DENY], False
        of_place, is_kept_off = [f for f in result.findings if _is_about_present_node(f)], False
        if of_place:
            refused_place, is_kept_off = self._place_if_created_again(raw)
        if not self._refused_by:
            return result.findings, is_kept_off
        refused = self._refused(raw, result.findings)
        if of_place:
            refused = [finding for finding in refused if finding not in of_place] + refused_place
        return refused, is_kept_off

    def _refused(self, raw: Object, findings: list[Finding]) -> list[Finding]:
        """Return those of the findings of `raw` for which the webhook refuses it, after fixes."""
        after = fix(raw, self._rules, self._context, steps=StepLimit(MAX_STEPS)).remaining
        refused = {f.identity for f in after.findings if f.action is Action.DENY}
        return [finding for finding in findings if finding.identity in refused]

    def _place_if_created_again(self, raw: Object) -> tuple[list[Finding], bool]:
        """Return what refuses a pod on a GPU node, and whether a fix keeps it off instead.

        The node was chosen for the pod that runs, so a new one does not name it.
        """
        pod = {key: value for key, value in raw.items() if key != "status"}
        spec = as_object(raw.get("spec"))
        pod["spec"] = {key: value for key, value in spec.items() if key != "nodeName"}
        metadata = as_object(raw.get("metadata"))
        pod["metadata"] = {key: value for key, value in metadata.items() if key != "uid"}
        rules = self._rules.restricted_to((RULE,))
        result = check(pod, rules, self._context, steps=StepLimit(MAX_STEPS))
        after = fix(pod, rules, self._context, steps=StepLimit(MAX_STEPS)).remaining
        left = {finding.identity for finding in after.findings}
        is_kept_off = bool(result.findings) and not left
        refused = [f for f in result.findings if f.identity in left and f.action is Action.DENY]
        return refused, is_kept_off

    def _is_decided(self, raw: Object) -> bool:
        """Return whether what refuses is asked about such an object."""
        is_asked = self._refused_by == "policies" or kind_of(raw) not in NOT_SENT
        return is_asked and not self._facts.is_excluded(namespace_in(raw))

    def _unread_parts(self, result: EvaluationResult, ref: ObjectRef) -> None:
        for field in result.malformed_fields:
            self._not_evaluated(ref, f"{field.object}: {field.why}")
        for failure in result.failures:
            why = f"the rule {failure.rule} failed here, please report it: {failure.error}"
            self._not_evaluated(ref, f"{ref}: {why}")

    def _not_evaluated(self, ref: ObjectRef, message: str) -> None:
        self.incomplete.add(ref.namespace)
        self.results.not_evaluated.append(InputNotEvaluated("", 0, 0, message))


def _is_about_present_node(finding: Finding) -> bool:
    return finding.rule == RULE and finding.path[-1] == "nodeName"


def _is_clean_pod(result: EvaluationResult) -> bool:
    """Return whether there is one pod and nothing else to report, not even that it is excepted."""
    found = (result.findings, result.excepted, result.malformed_fields, result.failures)
    others = result.components or result.other_objects
    return len(result.pod_paths) == 1 and not (others or any(found))


# A third of the time that JSON takes, which is at most eight times as long: `false` with its comma
# has seven characters, a control character six.
MAX_JSON_PER_BYTE = 8
# Half the time that `json.dumps` takes.
_encode = json.JSONEncoder(check_circular=False).encode


def _oversized_reason(raw: Object) -> str:
    """Return why an object is too large; empty if it is not.

    What API servers write about its fields does not count: no rule reads it, and counting it takes
    as long as the rules. Nor do its owners, whose names API servers accept at any length: rules
    only compare kinds of owners, and a long name must not hide a pod that runs.
    """
    size = MAX_JSON_PER_BYTE * len(marshal.dumps(raw, MARSHAL_VERSION))
    if size > LARGE_OBJECT_BYTES:
        metadata = without_managed_fields(as_object(raw.get("metadata")))
        metadata.pop("ownerReferences", None)
        raw = {**raw, "metadata": metadata}
        size = len(_encode(raw))
    return oversized_reason(raw, size)


def _located(finding: Finding, raw: Object) -> LocatedFinding:
    """`finding` with the field at fault as its text: there is no file of the object."""
    text = _field(raw, finding.path)
    excerpt = Excerpt(text, 0, max(1, len(text)), (), (), 0, 0, 0, 0)
    if is_about_secret(finding):
        excerpt = without_values(excerpt, finding)
    return LocatedFinding(to_reported_finding(finding), "", _NOWHERE, excerpt, finding.object)


def _field(raw: Object, path: Path) -> str:
    """The field at `path`, or its nearest parent that exists, as one line of JSON."""
    value: Any = raw
    name = ""
    for step in path:
        try:
            value, name = value[step], str(step)
        except (KeyError, IndexError, TypeError):
            break
    if isinstance(value, dict | list):
        return f"{name}:"
    return f"{name}: {json.dumps(value, ensure_ascii=False)}"[:_EXCERPT]


_ByNamespace: TypeAlias = Mapping[str, Counter[str]]

_BYPASS = "bypass"  # the family of rules about ways to GPUs
_PRIVILEGED = "privileged-gpu"  # a rule
_MAX_REMARKS = 20  # of a kind: namespaces


class _RunningPods:
    """Running pods, by namespace: how many each owner has, and on which nodes."""

    def __init__(self) -> None:
        self._owners: dict[str, Counter[str]] = defaultdict(Counter)
        self._nodes: dict[str, set[str]] = defaultdict(set)

    def add(self, namespace: str, owner: str, node: str) -> None:
        """Add a pod; without a name of a node if the object does not say where it is."""
        self._owners[namespace][owner] += 1
        if node:
            self._nodes[namespace].add(node)

    @property
    def count(self) -> int:
        """Return how many pods there are."""
        return sum(owners.total() for owners in self._owners.values())

    def remarks(self, kind: str, what: str) -> Iterator[Remark]:
        """Warnings about the namespaces with the most pods of this kind: `what` they can do."""
        for namespace, owners in _most(self._owners):
            nodes = sorted(self._nodes[namespace])
            where = f" on node {nodes[0]}" if len(nodes) == 1 else f" on {len(nodes):,} nodes"
            pods = f"{many(owners.total(), kind)}{where if nodes else ''}"
            yield _warning(f"namespace {namespace}: {pods} {what}: {_listed(owners)}")
        if rest := _others(self._owners, kind):
            yield _warning(f"{rest} {what}")


class PodRemarks:
    """Collects pods about which something is to say that no finding says.

    These are running pods that can use GPUs without a request, pods that admission refuses, and
    pods that share the cards of a node and do not fit together. If the nodes with GPUs are not
    known, every node counts as one, but for privileged pods, of which there are many without GPUs.
    `owner_of` is who controls a pod in the end.
    """

    def __init__(
        self, profile: Profile, facts: AuditFacts, owner_of: Callable[[Evaluated], ObjectRef]
    ) -> None:
        self._profile = profile
        self._facts = facts
        self._owner_of = owner_of
        self._unrequested, self._privileged = _RunningPods(), _RunningPods()
        self._context = Context(datetime.date.min, profile=profile)
        self._refused: dict[str, Counter[str]] = defaultdict(Counter)
        self._with_power: dict[str, Counter[str]] = defaultdict(Counter)
        self._without_power: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, evaluated: Evaluated) -> None:
        """Add the object, if it is such a pod."""
        if evaluated.raw.get("kind") != "Pod":
            return
        self._add_share(evaluated)
        namespace = namespace_in(evaluated.raw)
        errors = [f for f in evaluated.findings if f.action is Action.DENY]
        would_be_fixed = evaluated.is_kept_off and all(map(_is_about_present_node, errors))
        if errors and not would_be_fixed:
            is_denied = self._facts.mode_of(namespace) == Action.DENY.word
            if is_denied and not self._facts.is_excluded(namespace):
                self._refused[namespace][self._owner(evaluated)] += 1
        if as_object(evaluated.raw.get("status")).get("phase") == "Running":
            self._add_running(evaluated, namespace, {finding.rule for finding in errors})

    def _add_running(self, evaluated: Evaluated, namespace: str, rules: set[str]) -> None:
        """Add a running pod, with the rules by which it has errors."""
        raw, nodes = evaluated.raw, self._facts.gpu_nodes
        node = as_text(as_object(raw.get("spec")).get("nodeName"))
        if nodes is not None and node not in nodes:
            return
        if any(RULE_BY_NAME[r].family == _BYPASS and r != RULE for r in rules):
            if not self._requests_gpu(raw):
                self._unrequested.add(namespace, self._owner(evaluated), node)
        elif (
            nodes is not None
            and _runs_privileged(raw)
            and not self._requests_gpu(raw)
            and (_PRIVILEGED in rules or not self._may_be_agent(raw))
        ):
            self._privileged.add(namespace, self._owner(evaluated), node)

    def _pods(self, raw: Object) -> Iterator[Pod]:
        for subject in find_subjects({**raw}, self._profile):
            if isinstance(subject, Pod):
                yield subject

    def _requests_gpu(self, raw: Object) -> bool:
        return any(map(pod_requests_gpu, self._pods(raw)))

    def _may_be_agent(self, raw: Object) -> bool:
        """Return whether a pod is of the GPU platform, or may be another agent of its node."""
        for pod in self._pods(raw):
            pod.has_status = True
            set_circumstances(pod, self._context)
            if component_of(pod, self._context) or is_made_by_daemon_set(pod, self._context):
                return True
        return False

    def _owner(self, evaluated: Evaluated) -> str:
        owner = self._owner_of(evaluated)
        return f"{owner.kind.lower()}/{owner.name}"

    def _add_share(self, evaluated: Evaluated) -> None:
        spec = as_object(evaluated.raw.get("spec"))
        node = as_text(spec.get("nodeName"))
        if node and requests_share(spec, GPU_MEM) and not has_terminated(evaluated.raw):
            has_power = requests_share(spec, GPU_CORE)
            by_node = self._with_power if has_power else self._without_power
            by_node[node][str(self._owner_of(evaluated))] += 1

    @property
    def unrequested(self) -> int:
        """Return how many running pods can use GPUs that they did not request."""
        return self._unrequested.count

    @property
    def privileged(self) -> int:
        """Return how many running pods reach GPUs that they did not request, being privileged."""
        return self._privileged.count

    @property
    def refused(self) -> int:
        """Return how many pods the modes of their namespaces would refuse now."""
        return sum(owners.total() for owners in self._refused.values())

    def remarks(self) -> Iterator[Remark]:
        """Warnings about namespaces, those with the most pods first, and about nodes."""
        yield from self._unrequested.remarks("running pod", "can use GPUs that nobody requested")
        yield from self._privileged.remarks(
            "privileged running pod",
            "can reach every GPU there and requested none; whether they use any is not known",
        )
        what = "would be refused now"
        why = "created before the namespace was in mode deny, or while admission did not answer"
        for namespace, owners in _most(self._refused):
            pods = f"{many(owners.total(), 'pod')} {what}: {why}"
            yield _warning(f"namespace {namespace}: {pods}: {_listed(owners)}")
        if rest := _others(self._refused, "pod"):
            yield _warning(f"{rest} {what}")
        yield from self._mixed_nodes()

    def _mixed_nodes(self) -> Iterator[Remark]:
        what = (
            f"pods that ask for {GPU_CORE} and pods that ask for {GPU_MEM} alone run beside each "
        )
        what += "other, which ACK does not support"
        mixed = sorted(self._with_power.keys() & self._without_power.keys())
        for node in mixed[:_MAX_REMARKS]:
            pods = f"{_listed(self._with_power[node])}; {_listed(self._without_power[node])}"
            yield _warning(f"node {node}: {what}: {pods}")
        if (rest := len(mixed) - _MAX_REMARKS) > 0:
            yield _warning(f"{many(rest, 'more node')}: {what}")


class AdminAccessRemarks:
    """Collects claims with admin access to devices, by the namespaces whose labels allow it.

    The namespaces of components of the GPU platform, which such claims are meant for, do not count.
    `namespace` is the only one that is audited; None for all.
    """

    def __init__(self, profile: Profile, facts: AuditFacts, namespace: str | None) -> None:
        self._profile = profile
        labelled = (facts.namespaces or {}).items()
        found = {
            name: [k for k in ADMIN_ACCESS_LABELS if labels.get(k) == "true"]
            for name, labels in labelled
        }
        self._labels = {
            name: keys
            for name, keys in found.items()
            if keys and namespace in {None, name} and not profile.components_in(name)
        }
        self._claims: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, evaluated: Evaluated) -> None:
        """Add the object, if it is such a claim, or a template of one."""
        if evaluated.ref.kind not in CLAIM_SPEC_PATHS or evaluated.ref.group != CLAIM_GROUP:
            return
        for subject in find_subjects({**evaluated.raw}, self._profile):
            if isinstance(subject, DeviceClaim) and any(
                request.fields.get("adminAccess") is True for request in subject.requests()
            ):
                self._claims[namespace_in(evaluated.raw)][str(evaluated.ref)] += 1

    def remarks(self) -> Iterator[Remark]:
        """A warning for each of the first namespaces with a label, and one for the others."""
        ordered = sorted(self._labels.items())
        for namespace, keys in ordered[:_MAX_REMARKS]:
            claims = self._claims.get(namespace)
            have = f"{many(len(claims), 'object')} with it: {_listed(claims)}" if claims else ""
            what = f"the label {' and '.join(keys)} lets claims have admin access to devices"
            yield _warning(f"namespace {namespace}: {what}; {have or 'no claim has it now'}")
        if left_out := ordered[_MAX_REMARKS:]:
            what = "a label that lets claims have admin access to devices"
            yield _warning(f"{many(len(left_out), 'more namespace')} with {what}")


def _warning(text: str) -> Remark:
    return Remark("warning", "", 0, 0, text)


def _ordered(pods: _ByNamespace) -> list[tuple[str, Counter[str]]]:
    return sorted(pods.items(), key=lambda pair: (-pair[1].total(), pair[0]))


def _most(pods: _ByNamespace) -> list[tuple[str, Counter[str]]]:
    return _ordered(pods)[:_MAX_REMARKS]


def _others(pods: _ByNamespace, what: str) -> str:
    """Return how many pods are in the namespaces beyond the first; empty if there are none."""
    left_out = _ordered(pods)[_MAX_REMARKS:]
    count = sum(owners.total() for _, owners in left_out)
    return f"{many(len(left_out), 'more namespace')}: {many(count, what)}" if left_out else ""


def _listed(owners: Counter[str]) -> str:
    """The owners with the most pods, each with how many."""
    ordered = sorted(owners.items(), key=lambda pair: (-pair[1], pair[0]))
    return some([name if count == 1 else f"{name} ({count:,})" for name, count in ordered])


def _runs_privileged(raw: Object) -> bool:
    """Return whether a container of the pod is privileged and has not ended."""
    spec, status = as_object(raw.get("spec")), as_object(raw.get("status"))
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for _, container in as_objects(spec.get(field)):
            has_ended = field == "initContainers" and container.get("restartPolicy") != "Always"
            if as_object(container.get("securityContext")).get("privileged") is True:
                states = as_objects(status.get(f"{field[:-1]}Statuses"))
                of_it = [s for _, s in states if s.get("name") == container.get("name")]
                has_ended |= any("terminated" in as_object(s.get("state")) for s in of_it)
                if not has_ended:
                    return True
    return False
