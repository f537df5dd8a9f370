"""The part of the state that one viewer may see: own namespaces, and totals of others."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from cluster.accounting.account import CountedPod
from cluster.accounting.usage import Usage
from cluster.source.following import Key
from cluster.source.objects import Object
from cluster.why.explanation import Explanation
from cluster.why.placed.room_makers import RoomMaker
from console.access import MAX_NAMESPACES, Viewer
from console.pages.decisions import WebhookFacts
from console.pages.findings import FixPreview
from console.pages.gpus import OTHERS, Teams, without_names_of_others
from console.pages.nodes import NodePage, node_page
from console.state import ClusterState, Examination, Trend
from console.utilisation import Utilisation
from policies.policy import Policy
from reports.findings import LocatedFinding
from reports.results import InputNotEvaluated, Results
from rules.base.json_values import as_object, as_text

MAX_SEARCHED_NODES = 200
"""On so many nodes it is looked for pods that could make room."""


class Audited(NamedTuple):
    """The results of an audit, and when it was done."""

    results: Results
    read_at: datetime.datetime


class View:
    """The state of a cluster as one viewer sees it: pages ask nothing else.

    Its methods raise what those of `ClusterState` raise, and ClusterError if the API server does
    not say what the viewer may see.
    """

    def __init__(self, state: ClusterState, viewer: Viewer) -> None:
        self._state, self._viewer = state, viewer

    @property
    def name(self) -> str:
        """Return the viewer's name; empty if viewers are not told apart."""
        return self._viewer.name

    @property
    def sees_all(self) -> bool:
        """Return whether nothing is hidden from them."""
        return self._viewer.sees_all

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._state.policy

    @property
    def profiles(self) -> Sequence[str]:
        """Return the policies and profiles by which a manifest can be evaluated."""
        return self._state.profiles

    def policy_for(self, profile: str) -> Policy:
        """The policy in force; with the name of a profile, the default policy for that."""
        return self._state.policy_for(profile)

    def usage(self) -> tuple[Usage, tuple[str, ...]]:
        """The account of the GPUs, and a line for each thing that is not known of it."""
        usage, missing = self._state.usage()
        if self.sees_all:
            return usage, (*missing, *usage.notes(), *usage.remarks())
        with_gpus = {consumer.namespace for consumer in usage.consumers}
        namespaces = sorted(usage.namespaces(), key=lambda name: (name not in with_gpus, name))
        usage = without_names_of_others(usage, self._viewer.visible(namespaces))
        not_asked = _not_asked(namespaces, "by name, those with GPUs before those without")
        return usage, (*missing, *usage.notes(), *usage.remarks(), *not_asked)

    def teams(self) -> Teams | None:
        """The team of each namespace that has one; None if the user did not ask for teams.

        They are only about namespaces that the viewer sees, because `usage` names no other.
        """
        return self._state.teams()

    def why(self, namespace: str, name: str) -> Explanation | None:
        """Return why a pod is Pending; None if it does not exist or the viewer must not know it."""
        if not self._sees(namespace):
            return None
        return self._state.why(namespace, name, names_others=self.sees_all)

    def room_makers(self, found: Explanation) -> tuple[RoomMaker, ...] | None:
        """The pods that could make room for an explained pod; None if that is not known.

        Those that the viewer must not see have no name.
        """
        if found.is_bound or found.hurdles or found.fitting or found.other_scheduler:
            return None
        nearest = (name for group in found.groups for name in group.names)
        makers = self._state.room_makers(
            found.namespace, found.name, islice(nearest, MAX_SEARCHED_NODES)
        )
        if makers is None or self.sees_all:
            return makers
        homes = sorted({pod.namespace for maker in makers for pod in maker.pods})
        seen = self._viewer.visible(homes)
        return tuple(
            maker._replace(
                pods=tuple(
                    pod if pod.namespace in seen else _without_names(pod) for pod in maker.pods
                )
            )
            for maker in makers
        )

    def node(self, usage: Usage, name: str) -> NodePage | None:
        """The page of a node, by what `usage` has of it; None if it does not exist."""
        found = self._state.node(name)
        if found is None:
            return None
        raw, pods = found
        seen = None
        if not self.sees_all:
            seen = self._viewer.visible(sorted({pod.namespace for pod in pods}))
        return node_page(usage, name, raw, pods, seen)

    def node_names(self) -> frozenset[str]:
        """The names of all nodes, with or without GPUs: all viewers see them."""
        return self._state.node_names()

    def utilisation(self, usage: Usage) -> Utilisation | None:
        """Return how busy the cards of the pods in `usage` were; None if no Prometheus is named.

        The viewer sees these pods: no others that Prometheus names are asked about.
        """
        prometheus = self._state.prometheus
        if prometheus is None:
            return None
        return prometheus.utilisation(
            {(each.namespace, each.name): each.held_since for each in usage.consumers}
        )

    def doctor(self) -> Examination | None:
        """Return what `gpuward doctor` finds; None for who does not see all namespaces.

        The rows may name anything of the cluster.
        """
        return self._state.doctor() if self.sees_all else None

    def known_doctor(self) -> Examination | None:
        """Return the last result of `doctor` of this day; None if the viewer may not know it.

        If it is older than some minutes, doctor looks again in the background.
        """
        return self._state.known_doctor() if self.sees_all else None

    def explain(self, pod: Object, beside: Iterable[Object] = ()) -> Explanation | None:
        """Return where a new pod would run; None if its namespace is not the viewer's.

        The answer says what quotas and claims of the namespace have. `beside` are claims and
        templates of claims that do not exist yet either.
        """
        namespace = as_text(as_object(pod.get("metadata")).get("namespace"))
        if not self._sees(namespace):
            return None
        return self._state.explain(pod, exists=False, beside=beside)

    def scheduler_messages(self) -> Mapping[Key, str]:
        """Return the last message of kube-scheduler about each pod without a node."""
        return self._state.scheduler_messages()

    def audit(self, *, only_refused: bool = False) -> Audited:
        """Return the findings for the objects that the viewer sees."""
        done = self._state.audit(only_refused=only_refused)
        found = done.result.results
        if self.sees_all:
            return Audited(found, done.read_at)
        namespaces = sorted({*map(_namespace, found.findings)})
        seen = self._viewer.visible(namespaces)
        shown = Results()
        shown.findings = [each for each in found.findings if _namespace(each) in seen]
        shown.objects, shown.pods, shown.policy = found.objects, found.pods, found.policy
        if found.not_evaluated:  # these texts may name objects
            text = "something could not be evaluated; only who sees all namespaces sees what"
            shown.not_evaluated = [InputNotEvaluated("", 0, 0, text)]
        for line in _not_asked(namespaces):
            shown.not_evaluated.append(InputNotEvaluated("", 0, 0, line))
        return Audited(shown, done.read_at)

    def trend(self) -> Trend:
        """Return the number of findings of the whole cluster on each day.

        All users see these totals.
        """
        trend = self._state.trend()
        return trend if self.sees_all or not trend.why else Trend((), "it could not be read")

    def webhook(self) -> WebhookFacts:
        """Return the facts about the webhook, and its decisions in the viewer's namespaces."""
        facts = self._state.webhook()
        if self.sees_all:
            return facts
        shown = facts.visible(self._viewer.visible(sorted(facts.namespaces)))
        return shown._replace(missing=(*shown.missing, *_not_asked(facts.namespaces)))

    def fix_preview(self, located: LocatedFinding) -> FixPreview:
        """Return the changes by the fix of a finding that the viewer sees."""
        return self._state.fix_preview(located)

    def _sees(self, namespace: str) -> bool:
        return self.sees_all or bool(self._viewer.visible({namespace}))


def _without_names(pod: CountedPod) -> CountedPod:
    """The pod as a viewer sees it who must not know whose it is."""
    consumer = pod.consumer
    if consumer is not None:
        consumer = consumer._replace(
            namespace=OTHERS,
            name=OTHERS,
            owner=OTHERS,
            pods=(),
            devices=(),
            shares=(),
            since="",
            created="",
        )
    return pod._replace(
        namespace=OTHERS, name=OTHERS, owner=OTHERS, consumer=consumer, sick=(), without_gpu=None
    )


def _not_asked(namespaces: Collection[str], order: str = "by name") -> list[str]:
    """A line if there are more namespaces than the API server is asked about for one viewer."""
    if len(namespaces) <= MAX_NAMESPACES:
        return []
    text = (
        f"there are {len(namespaces):,} namespaces, and the API server is asked about the first "
        f"{MAX_NAMESPACES:,} {order}: others are not shown"
    )
    return [text]


def _namespace(located: LocatedFinding) -> str:
    about = located.finding.object
    return about.namespace if about else ""
