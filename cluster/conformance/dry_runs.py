"""Dry runs of pods that use a way to a GPU: admission answers, and nothing is created.

An answer says something about the way only if a harmless pod of the same shape is admitted: a quota
or a missing right refuses both.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from cluster.api.errors import Object
from cluster.webhooks.dry_runs import Answer, answer_to, pod_path
from cluster.webhooks.ways import GPU, TOOLKIT, Way, harmless_pod
from rules.base.json_values import as_object
from rules.inventory.inventory import ADMIN_ACCESS_LABELS
from webhook.admission.enforcement import FIXED_ANNOTATION
from webhook.registration import MODE_LABEL

Send = Callable[[str, str, Object, str], Object]
"""Sends a request: method, path, body and its media type. Raises ClusterError."""
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class State(enum.Enum):
    """The state of a way in a namespace."""

    REFUSED = "refused"
    CHANGED = "changed"
    BY_SETTING = "closed by a setting, not tried"
    OPEN = "open"
    NOT_KNOWN = "not known"


class Result(NamedTuple):
    """A way in a namespace: by which control it is closed, and what was seen."""

    way: str
    title: str
    namespace: str
    state: State
    control: str
    seen: str


class DryRuns:
    """Tries ways in namespaces. `send` sends requests as the user whom the report is about."""

    def __init__(self, send: Send, image: str) -> None:
        self._send, self._image = send, image

    def pods(self, namespace: str, ways: Iterable[Way], toolkit: str) -> Iterator[Result]:
        """The result of each way. `toolkit` is where NVIDIA's toolkit is set to ignore variables.

        It is empty if that is not known of every GPU node.
        """
        controls = {
            asks: self._create(namespace, harmless_pod(self._image, GPU if asks else {}))
            for asks in (False, True)
        }
        for way in ways:
            control = controls[way.asks_for_gpu]
            if control.admitted is None:
                why = control.refused or control.failed
                seen = f"a harmless pod is not admitted either: {why}"
                yield Result(way.name, way.title, namespace, State.NOT_KNOWN, "", seen)
            else:
                answer = self._create(namespace, way.pod(self._image))
                yield _judged(way, namespace, answer, toolkit)

    def labels(
        self, namespace: str, ways: Iterable[tuple[str, str, Mapping[str, str], str]]
    ) -> Iterator[Result]:
        """Yield, for each way, whether the user may label the namespace so.

        Each of `ways` has a name, a title, labels, and what closes it.
        """
        for name, title, labels, ended_by in ways:
            path = f"/api/v1/namespaces/{quote(namespace, safe='')}?dryRun=All"
            body = {"metadata": {"labels": {**labels}}}
            answer = self._answer("PATCH", path, body, _MERGE)
            if answer.admitted is not None:
                state = State.REFUSED if ended_by else State.OPEN
                yield Result(name, title, namespace, state, ended_by, "the label was accepted")
            elif answer.refused and (control := control_of(answer.refused, may_be_a_right=True)):
                yield Result(name, title, namespace, State.REFUSED, control, answer.refused)
            else:
                seen = answer.refused or answer.failed
                yield Result(name, title, namespace, State.NOT_KNOWN, "", seen)

    def _create(self, namespace: str, pod: Object) -> Answer:
        return self._answer("POST", pod_path(namespace), pod, _JSON)

    def _answer(self, method: str, path: str, body: Object, sent: str) -> Answer:
        return answer_to(lambda: (self._send(method, path, body, sent), ()))


def not_tried(
    namespace: str, ways: Iterable[Way], labels: Iterable[tuple[str, str, Mapping[str, str], str]]
) -> Iterator[Result]:
    """The result of each way where nothing answers a dry run, as with files."""
    for name, title in (*((w.name, w.title) for w in ways), *((w[0], w[1]) for w in labels)):
        yield Result(name, title, namespace, State.NOT_KNOWN, "", "not tried")


def _judged(way: Way, namespace: str, answer: Answer, toolkit: str) -> Result:
    def result(state: State, control: str, seen: str) -> Result:
        return Result(way.name, way.title, namespace, state, control, seen)

    if answer.failed:
        return result(State.NOT_KNOWN, "", answer.failed)
    if answer.admitted is None:
        control = control_of(answer.refused)
        state = State.REFUSED if control else State.NOT_KNOWN
        return result(state, control, answer.refused)
    if not way.is_open(answer.admitted):
        annotations = as_object(as_object(answer.admitted.get("metadata")).get("annotations"))
        by = "gpuward" if FIXED_ANNOTATION in annotations else "another webhook or policy"
        return result(State.CHANGED, by, "admitted without the way")
    if toolkit and TOOLKIT in way.ended_by:
        return result(State.BY_SETTING, toolkit, "admitted; the toolkit is set to ignore it")
    return result(State.OPEN, "", "admitted as it is")


_CONTROLS = (
    (re.compile(r'admission webhook "([^"]{1,253})" denied the request'), "webhook {}"),
    (re.compile(r"ValidatingAdmissionPolicy '([^']{1,253})' with binding"), "admission policy {}"),
    (re.compile(r'violates PodSecurity "([a-z]{1,20}):'), "Pod Security, level {}"),
)
_RIGHT = re.compile(r'User "[^"]*" cannot (?:patch|update) resource')


def control_of(message: str, *, may_be_a_right: bool = False) -> str:
    """Return the control that refused with this message; empty if the reason may be another one.

    A missing right to create pods says nothing about ways.
    """
    for pattern, text in _CONTROLS:
        if found := pattern.search(message):
            return text.format(found[1])
    return "rights (RBAC)" if may_be_a_right and _RIGHT.search(message) else ""


def label_ways(mode_with_off: str | None) -> list[tuple[str, str, Mapping[str, str], str]]:
    """Labels by which the owner of a namespace opens ways: see `DryRuns.labels`.

    `mode_with_off` is the mode that gpuward has in the namespace with the label `off`; None if it
    is not registered.
    """
    title = "a namespace that allows admin access to devices"
    ways: list[tuple[str, str, Mapping[str, str], str]]
    ways = [("admin-access", title, {ADMIN_ACCESS_LABELS[0]: "true"}, "")]
    if mode_with_off is not None:
        ended_by = "minimumMode of gpuward" if mode_with_off == "deny" else ""
        ways.append(("mode-off", "a namespace without gpuward", {MODE_LABEL: "off"}, ended_by))
    return ways
