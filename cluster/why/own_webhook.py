"""The changes that gpuward's webhook makes to a pod that does not exist yet, and its refusal."""

from __future__ import annotations

import datetime
import json
from functools import cached_property
from typing import NamedTuple

from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import NAMESPACES, VALIDATING, MissingRightError, Object, SourceError
from cluster.source.registered import is_own, registered_mode
from cluster.source.release import exceptions_of, find_release, policy_of
from cluster.why.hurdles import Hurdle
from cluster.why.placed.label_selectors import labels_of
from rules.base.json_values import as_object, as_text
from rules.engine.fixing import fix
from rules.finding import Action
from rules.rule import Context
from webhook.admission.decider import Decider
from webhook.admission.review import AdmissionReview

_WHAT = "what gpuward's webhook changes in it, or refuses"


class Reviewed(NamedTuple):
    """A pod as gpuward's webhook leaves it.

    - `hurdles`: that it refuses the pod; `changes` has a line about what it changes.
    - `unknown`: why it is not known what the webhook does.
    """

    pod: Object
    hurdles: tuple[Hurdle, ...] = ()
    changes: tuple[str, ...] = ()
    unknown: str = ""


class OwnWebhook:
    """gpuward's webhook as it is registered in a cluster, with its policy."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def review(self, pod: Object, admitted: Object, namespace: str) -> Reviewed:
        """Return what the webhook makes of `pod`, which API servers send it as `admitted`.

        It changes and refuses pods only in the mode deny.
        """
        if self._own is None:
            return Reviewed(pod, unknown=f"{_WHAT}: whether one is registered is not known")
        if not self._own:
            return Reviewed(pod)
        mode = self._mode(namespace)
        if mode is None:
            return Reviewed(pod, unknown=f"{_WHAT}: the labels of the namespace are not known")
        if mode != Action.DENY.word:
            return Reviewed(pod)
        if self._decider is None:
            return Reviewed(pod, unknown=f"{_WHAT}: its policy is not known")
        return self._decide(self._decider, pod, admitted, namespace)

    @staticmethod
    def _decide(decider: Decider, pod: Object, admitted: Object, namespace: str) -> Reviewed:
        today = datetime.datetime.now(datetime.UTC).date()
        review = _review(admitted, namespace)
        fixed: Object = admitted
        if decider.mutate(review, Action.DENY, today).operations:
            context = Context(today, namespace, "", "CREATE")
            fixed = {**as_object(fix(admitted, decider.rules, context).manifest)}
        decision = decider.validate(review._replace(object=fixed), Action.DENY, today)
        hurdles = []
        if not decision.allowed:
            message = decision.message.partition("\n")[0]
            remedy = "gpuward lint says where, and gpuward fix corrects what can be corrected"
            hurdles.append(Hurdle(f"it is refused: {message}", remedy))
        before, after = as_object(admitted.get("spec")), as_object(fixed.get("spec"))
        changed = {key: value for key, value in after.items() if value != before.get(key)}
        if not changed:
            return Reviewed(pod, tuple(hurdles))
        made = {**pod, "spec": {**as_object(pod.get("spec")), **changed}}
        line = f"the webhook of gpuward changes its {' and '.join(sorted(changed))}"
        return Reviewed(made, tuple(hurdles), (line,))

    @cached_property
    def _own(self) -> list[Object] | None:
        """The registered configurations of gpuward; None if it is not known whether there are any.

        Files without one are of a cluster without the webhook.
        """
        found = [raw for raw in self._snapshot.objects(VALIDATING) if is_own(raw)]
        is_unknown = isinstance(self._snapshot.missing.get(VALIDATING), MissingRightError)
        return None if is_unknown else found

    def _mode(self, namespace: str) -> str | None:
        """Return the mode of a namespace; empty if its pods are not sent, None if not known."""
        by_name = self._snapshot.by_name(NAMESPACES)
        if NAMESPACES in self._snapshot.missing or namespace not in by_name:
            return None
        return registered_mode(self._own or (), namespace, labels_of(by_name[namespace]))

    @cached_property
    def _decider(self) -> Decider | None:
        source = self._snapshot.source
        try:
            release = find_release(source, self._own or ())
        except SourceError:
            return None
        policy = None if release is None else policy_of(source, release.home)
        if release is None or policy is None:
            return None
        exceptions = exceptions_of(source, release.home, policy)
        if exceptions is None:
            return None
        return Decider(policy._replace(exceptions=(*policy.exceptions, *exceptions)))


def _review(pod: Object, namespace: str) -> AdmissionReview:
    """Return the API server's review of a new pod; who creates it is not known."""
    metadata = {**as_object(pod.get("metadata")), "namespace": namespace}
    return AdmissionReview(
        uid="why",
        api_version="admission.k8s.io/v1",
        group="",
        kind="Pod",
        resource="pods",
        operation="CREATE",
        namespace=namespace,
        name=as_text(metadata.get("name")),
        user="",
        object={"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata},
        old=None,
        dry_run=True,
        size_bytes=len(json.dumps(pod, default=str)),
    )
