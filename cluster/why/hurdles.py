"""The hurdles that keep a pod from running before any node is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.claims import claim_names
from cluster.accounting.pod_requests import Requests, amount_of
from cluster.source.objects import Object
from cluster.why.amounts import NANO, amount_text
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text

_TERMINATED_REMEDY = "it never runs again: delete it; a controller that has made it makes another"


class Hurdle(NamedTuple):
    """An obstacle for a pod, whatever the nodes say, and what to do about it."""

    what: str
    remedy: str


KUEUE_GATES = "kueue.x-k8s.io/"
"""The beginning of the scheduling gates by which Kueue holds pods back."""


def find_hurdles(
    pod: Object,
    requests: Requests,
    claims: Mapping[str, Object] | None,
    quotas: Iterable[Object],
    kueue: Iterable[Hurdle] = (),
    group: Iterable[Hurdle] = (),
) -> Iterator[Hurdle]:
    """Yield the hurdles of a pod that asks for `requests`, before nodes are looked at.

    `claims` are those of the namespace by name, None if they are not known; `quotas` those that
    count for the pod. `kueue` says why Kueue holds the pod back, if it is known, and `group` what
    keeps kube-scheduler from looking at the pods of its PodGroup.
    """
    spec, status = as_object(pod.get("spec")), as_object(pod.get("status"))
    node_name = as_text(spec.get("nodeName"))
    if status.get("phase") == "Failed":
        yield _failed(status, node_name)
        return
    gates = [as_text(gate.get("name")) for _, gate in as_objects(spec.get("schedulingGates"))]
    if said := [*kueue]:
        yield from said
        gates = [name for name in gates if not name.startswith(KUEUE_GATES)]
    if gates:
        names = some(gates)
        yield Hurdle(
            f"it waits for the scheduling gates {names}",
            "whoever has set them removes them: of Kueue, admission to a queue does",
        )
    yield from group
    for quota in quotas:
        yield from _exceeded(quota, requests)
    if claims is not None and not node_name:
        yield from _missing_claims(pod, claims)


def _failed(status: Mapping[str, Any], node: str) -> Hurdle:
    """A pod that has failed, as when the kubelet of its node refused it."""
    reason, message = as_text(status.get("reason")), as_text(status.get("message"))
    where = f" on the node {node}" if node else ""
    said = ": ".join(filter(None, (reason, message)))
    if reason == "UnexpectedAdmissionError":
        remedy = f"look at the device plugin of the node: gpuward doctor; {_TERMINATED_REMEDY}"
    else:
        remedy = _TERMINATED_REMEDY
    return Hurdle(f"it has failed{where}{': ' if said else ''}{said}", remedy)


def _exceeded(quota: Object, requests: Requests) -> Iterator[Hurdle]:
    """Yield the refusals of the API server because of a quota, which has no scopes."""
    spec, status = as_object(quota.get("spec")), as_object(quota.get("status"))
    if spec.get("scopes") or spec.get("scopeSelector"):
        return
    used = as_object(status.get("used"))
    name = as_text(as_object(quota.get("metadata")).get("name"))
    for key, hard in as_object(spec.get("hard")).items():
        resource = key.removeprefix("requests.")
        is_counted = key.startswith("requests.") or resource in {"cpu", "memory"}
        asked = requests.get(resource, 0) if is_counted else NANO if key == "pods" else 0
        left = amount_of(hard) - amount_of(used.get(key))
        if asked and asked > left:
            yield Hurdle(
                f"the quota {name} refuses it: it asks for {amount_text(resource, asked)} of "
                f"{key}, and {amount_text(resource, max(left, 0))} of "
                f"{amount_text(resource, amount_of(hard))} are left",
                "release what others of the namespace have, or raise the quota",
            )


def _missing_claims(pod: Object, claims: Mapping[str, Object]) -> Iterator[Hurdle]:
    for entry, name in claim_names(pod):
        if name and name not in claims:
            yield Hurdle(
                f"the claim {name} does not exist", "create it, or use a template of claims"
            )
        elif not name and as_object(pod.get("metadata")).get("uid"):
            yield Hurdle(
                f"its claim {entry} is not made from the template yet",
                "look for the template: a controller makes the claim as soon as there is one",
            )
