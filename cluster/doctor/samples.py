"""The pods of dry runs: what gpuward should do with each, and what an answer shows that it did."""

from __future__ import annotations

import datetime
import enum
import json
import re
from collections.abc import Collection
from typing import NamedTuple

from cluster.api.errors import Object
from cluster.webhooks.dry_runs import UNKNOWN_FIELD, Answer, shortened
from cluster.webhooks.ways import WAYS, Way
from policies.policy import Policy
from reports.findings import RULE_BY_NAME
from rules.finding import Action
from webhook.admission.decider import Decider
from webhook.admission.decision import FIXED_OUTCOME
from webhook.admission.messages import FIX_MISSING_MESSAGE
from webhook.admission.review import AdmissionReview
from webhook.registration import WEBHOOK_NAME_SUFFIX

POD_NAME = "gpuward-doctor-sample"
"""The name of the pods, as in the log of the webhook."""
# Names of ways whose pods only rules about bypasses find, each another one. No admission of
# Kubernetes' own refuses them, and they request no GPU, which a quota may forbid.
_REFUSED = ("variable", "mig-admin", "nri")
_FIXED, _FIXING_RULE = "variable-beside-gpu", "visible-devices-env"
_SERVICE_ACCOUNT = {"serviceAccountName": "default"}


class Sample(NamedTuple):
    """A pod, by the way on which it would reach GPUs, and what gpuward should do with it.

    `expected` is DENY if it should refuse the pod, WARN if it should only warn, OFF if users see
    nothing; None if that is not known.
    """

    way: Way
    expected: Action | None


class Samples:
    """The pods of dry runs, with an `image`, and what a policy says about them.

    `policy` has all exceptions that apply; None if it is not known.
    """

    def __init__(self, policy: Policy | None, image: str) -> None:
        self._decider = None if policy is None else Decider(policy)
        self._image = image
        self._ways = {way.name: way for way in WAYS}

    def to_refuse(self, namespace: str, mode: Action) -> Sample:
        """The first pod of those about which gpuward should do most in this namespace."""
        samples = [
            Sample(self._ways[name], self._expected(self._ways[name], namespace, mode))
            for name in _REFUSED
        ]
        return max(samples, key=lambda sample: sample.expected or Action.OFF)

    def to_fix(self, namespace: str) -> Way | None:
        """A way off which gpuward should bring a pod there in mode deny; None if none is known."""
        if self._decider is None:
            return None
        way = self._ways[_FIXED]
        decision = self._decider.mutate(_review(self.pod(way), namespace), Action.DENY, _today())
        return way if decision.rule_outcomes.get(_FIXING_RULE) == FIXED_OUTCOME else None

    def pod(self, way: Way) -> Object:
        """The pod on this way."""
        made = way.pod(self._image)
        metadata = {"name": POD_NAME, "annotations": made["metadata"]["annotations"]}
        # As the API server would complete it: exceptions may name service accounts.
        return {**made, "metadata": metadata, "spec": {**made["spec"], **_SERVICE_ACCOUNT}}

    def pod_to_send(self, way: Way) -> Object:
        """Return the pod with a field that the API server warns of, and then drops."""
        return {**self.pod(way), UNKNOWN_FIELD: True}

    def _expected(self, way: Way, namespace: str, mode: Action) -> Action | None:
        if self._decider is None:
            return None
        review = _review(self.pod(way), namespace)
        if self._decider.mutate(review, mode, _today()).operations:
            return None  # what is decided about the changed pod is not worked out here
        decision = self._decider.validate(review, mode, _today())
        if not decision.allowed:
            return Action.DENY
        return Action.WARN if decision.warnings else Action.OFF


def _review(pod: Object, namespace: str) -> AdmissionReview:
    """Return the API server's review of a new pod. No rule about these pods depends on the user."""
    return AdmissionReview(
        uid=POD_NAME,
        api_version="admission.k8s.io/v1",
        group="",
        kind="Pod",
        resource="pods",
        operation="CREATE",
        namespace=namespace,
        name=POD_NAME,
        user="",
        object=pod,
        old=None,
        dry_run=True,
        size_bytes=len(json.dumps(pod)),
    )


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


class Seen(enum.Enum):
    """The effect of gpuward on a pod that an answer shows."""

    REFUSED = enum.auto()
    NOT_FIXED = enum.auto()
    """It refused the pod because its own fix is missing."""
    UNANSWERED = enum.auto()
    """It did not answer, and the API server refused the pod for that reason."""
    WARNED = enum.auto()
    CHANGED = enum.auto()
    """The pod was admitted, and no longer goes its way; admission has changed it."""
    NOTHING = enum.auto()
    """The pod was admitted as it is, and no warning of gpuward came with it."""
    NO_WARNINGS = enum.auto()
    """The pod was admitted as it is, and not even the API server's own warning came."""
    NOT_KNOWN = enum.auto()
    """Nothing that says anything about gpuward."""


# These begin with the words of the API server, so no webhook's message passes for another one's.
_DENIED = re.compile(r'^admission webhook "([^"]{1,253})" denied the request: ')
_DENIED_BY_POLICY = re.compile(
    r"^pods \"[^\"]{1,253}\" is forbidden: ValidatingAdmissionPolicy '([^']{1,253})' with binding "
    r"'[^']{1,253}' denied request: "
)
_UNANSWERED = re.compile(r'^Internal error occurred: failed calling webhook "([^"]{1,253})": ')
_WARNED_BY_POLICY = re.compile(
    r"^Validation failed for ValidatingAdmissionPolicy '([^']{1,253})' with binding '[^']{1,253}': "
)
_RULE = re.compile(r"\[([a-z0-9-]{1,60})\]")


def what_is_seen(answer: Answer, way: Way, exported: Collection[str]) -> tuple[Seen, str]:
    """Return what an answer to the pod on this way shows, and of whom or why, in words.

    `exported` are the names of gpuward's ValidatingAdmissionPolicies.
    """
    if answer.admitted is not None:
        return _seen_in_admitted(answer, answer.admitted, way, exported)
    text = answer.refused or answer.failed
    if (found := _UNANSWERED.match(text)) and found[1].endswith(WEBHOOK_NAME_SUFFIX):
        return Seen.UNANSWERED, shortened(text)
    if (found := _DENIED.match(text)) and found[1].endswith(WEBHOOK_NAME_SUFFIX):
        return _seen_in_refusal(f"webhook {found[1]}", text, text[found.end() :])
    if (found := _DENIED_BY_POLICY.match(text)) and found[1] in exported:
        return _seen_in_refusal(f"admission policy {found[1]}", text, text[found.end() :])
    return Seen.NOT_KNOWN, shortened(text)


def _seen_in_refusal(who: str, text: str, reason: str) -> tuple[Seen, str]:
    """A refusal of gpuward's shows what it should only if it names a rule.

    It also refuses what it had no time to evaluate.
    """
    if FIX_MISSING_MESSAGE in reason:
        return Seen.NOT_FIXED, who
    if any(rule in RULE_BY_NAME for rule in _RULE.findall(reason)):
        return Seen.REFUSED, who
    return Seen.NOT_KNOWN, shortened(text)


def _seen_in_admitted(
    answer: Answer, admitted: Object, way: Way, exported: Collection[str]
) -> tuple[Seen, str]:
    if not way.is_open(admitted):
        return Seen.CHANGED, "admitted without what gpuward finds in it: somebody has changed it"
    for warning in answer.warnings:
        if who := _warns(warning, exported):
            return Seen.WARNED, who
    if any(UNKNOWN_FIELD in warning for warning in answer.warnings):
        return Seen.NOTHING, "admitted without a warning"
    return (
        Seen.NO_WARNINGS,
        "no warning arrives, not even the API server's: a proxy may remove them",
    )


def _warns(warning: str, exported: Collection[str]) -> str:
    """Return the part of gpuward that gives this warning because of a rule.

    The text is empty if gpuward does not give it.
    """
    who, text = "its webhook", warning
    if found := _WARNED_BY_POLICY.match(warning):
        if found[1] not in exported:
            return ""
        who, text = f"admission policy {found[1]}", warning[found.end() :]
    rule = _RULE.match(text.removeprefix("gpuward ")) if text.startswith("gpuward ") else None
    return who if rule and rule[1] in RULE_BY_NAME else ""
