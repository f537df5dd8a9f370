"""The CPU policy of kubelets whose cards are shared: `static` does not work with cGPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

from cluster.api.errors import ForbiddenError
from cluster.doctor.facts import Facts, nodes_with_shared_cards
from cluster.protocols import ClusterError
from cluster_commands.doctor.rows import Row, names, not_known, ok, wrong
from rules.base.json_access import as_object, as_text

_CHECK = "CPU policy"
_OPT_IN = "--ask-kubelets reads it, with the right get on nodes/proxy: a strong right"
_RIGHT = "grant `get` on nodes/proxy, for as long as it is needed: it is a strong right"
_BY_HAND = "see whether this works: kubectl get --raw {path}"
_LOOK = "look for cpuManagerPolicy in the configuration of the kubelet"
_REMEDY = "set cpuManagerPolicy: none for the node pool"


def check_cpu_policy(facts: Facts, *, ask: bool) -> Iterator[Row]:
    """One row for each policy that nodes with shared cards have; asks kubelets only if it may."""
    nodes = nodes_with_shared_cards(facts)
    if not nodes:
        return  # no cards are shared so
    if not ask or facts.request is None:
        yield not_known(_CHECK, names(nodes), "no kubelet was asked", _OPT_IN)
        return
    by_policy: dict[str, list[str]] = {}
    for name in nodes:
        path = f"/api/v1/nodes/{quote(name, safe='')}/proxy/configz"
        try:
            config = as_object(as_object(json.loads(facts.request(path))).get("kubeletconfig"))
        except ForbiddenError as error:
            yield not_known(_CHECK, name, f"its kubelet was not asked: {error}", _RIGHT)
            continue
        except (ClusterError, ValueError, RecursionError) as error:
            remedy = _BY_HAND.format(path=path)
            yield not_known(_CHECK, name, f"its kubelet does not say: {error}", remedy)
            continue
        by_policy.setdefault(as_text(config.get("cpuManagerPolicy")), []).append(name)
    for policy, found in sorted(by_policy.items()):
        if policy == "static":
            message = "the policy is static, which cGPU does not support"
            yield wrong(_CHECK, names(found), message, _REMEDY)
        elif policy:
            yield ok(_CHECK, names(found), f"the policy is {policy}")
        else:
            yield not_known(_CHECK, names(found), "its kubelet names no policy", _LOOK)
