"""How pods fare in a namespace, in a word."""

from __future__ import annotations

from typing import Any

from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.end_to_end.steps import fixed_by

# Without a token, whose volume is called otherwise each time.
TAKER = pod(container(**variable("all")), automountServiceAccountToken=False)
HOLDER = pod(container(**gpus(limits=1)), automountServiceAccountToken=False)
FIXES = {"affinity-default", "toleration-default"}
# In which nobody is ever judged.
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")


def treatment(plane: Cluster, namespace: str) -> str:
    """How a pod that takes GPUs and one that asks for a GPU fare; nothing is stored.

    `enforced`: the first is refused and the second is fixed. `warned`: both are let pass as they
    are, and their users hear what would be done. `silent`: both are let pass without a word. An
    AssertionError for anything else.
    """
    taker, holder = (create(plane, namespace, sent, dry_run=True) for sent in (TAKER, HOLDER))
    assert holder.status == 201, holder
    if taker.status == REFUSED:
        assert "gpuward [visible-devices-env]" in taker.body["message"], taker
        assert fixed_by(holder.body) == FIXES, holder
        assert any("[toleration-default] fixed" in said for said in holder.warnings), holder
        return "enforced"
    assert taker.status == 201, taker
    for sent, answer in ((TAKER, taker), (HOLDER, holder)):
        assert _as_stored(answer) == _as_stored(create(plane, SYSTEM[1], sent, dry_run=True))
    if not taker.warnings and not holder.warnings:
        return "silent"
    assert any("[visible-devices-env] would be refused" in said for said in taker.warnings), taker
    assert any("[toleration-default] would be fixed" in said for said in holder.warnings), holder
    return "warned"


def _as_stored(answer: Answer) -> tuple[Any, Any]:
    metadata = answer.body["metadata"]
    return answer.body["spec"], (metadata.get("labels"), metadata.get("annotations"))
