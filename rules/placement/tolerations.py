"""The taints that a pod does not tolerate, and the tolerations that were meant for them.

The semantics are those of `core/v1` (`Toleration.ToleratesTaint`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rules.base.caching import cached_by_text
from rules.base.json_values import as_text
from rules.base.text_matching import has_few_typos, has_placeholder, matches_any
from rules.finding import Action, Finding, Findings
from rules.gpu.components import words_of_maker
from rules.gpu.devices import requested_resources
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.pod import Pod
from rules.profile.profile import Profile, Taint

_GPU_WORDS = frozenset({"gpu", "accelerator"})
_SEPARATORS_PATTERN = r"[^a-z0-9]+"
_INTEGER_PATTERN = r"[+-]?[0-9]{1,19}"


def tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Return whether `toleration` tolerates `taint`, whose value may be unknown (None).

    An empty key needs `Exists` and fits every taint; an empty effect fits every effect;
    an empty operator is `Equal`. `Lt` and `Gt` compare integers.
    """
    key = as_text(toleration.get("key"))
    if key and key != taint.key:
        return False
    effect = as_text(toleration.get("effect"))
    if effect and effect != taint.effect:
        return False
    operator = as_text(toleration.get("operator")) or "Equal"
    if operator == "Exists":
        return True
    if not key:
        return False
    value = toleration.get("value")
    tolerated = "" if value is None else str(value)
    if operator == "Equal":
        return taint.value is None or tolerated == taint.value or has_placeholder(tolerated)
    return _integer_comparison_holds(operator, taint.value, tolerated)


def is_tolerated(pod: Pod, taint: Taint) -> bool:
    """Return whether a toleration of `pod` tolerates `taint`."""
    for _, toleration in pod.tolerations:  # noqa: SIM110  # a generator costs more than the loop
        if tolerates(toleration, taint):
            return True
    return False


def _integer_comparison_holds(operator: str, tainted: str | None, own: str) -> bool:
    if operator not in {"Lt", "Gt"} or not re.fullmatch(_INTEGER_PATTERN, own):
        return False
    if tainted is None:
        return True
    if not re.fullmatch(_INTEGER_PATTERN, tainted):
        return False
    return int(tainted) < int(own) if operator == "Lt" else int(tainted) > int(own)


def findings_of_untolerated_taints(
    workload: KubernetesObject, words: frozenset[str], agent: str, effect: str
) -> Findings:
    """Each taint of the GPU nodes of a maker that an agent of these nodes does not tolerate.

    `words` name the maker; without any, there is none. `agent` and `effect` are for the messages.
    It is a note for an agent that tolerates another taint of GPUs whose key is no vendor's: that
    may be the one of its nodes, which the profile does not know.
    """
    for pod in workload.pods if words else ():
        for taint in dict.fromkeys(pod.profile.taints):
            makers = (words_of_maker(name) for name in taint.resources)
            if all(maker.isdisjoint(words) for maker in makers) or is_tolerated(pod, taint):
                continue
            yield Finding(
                path=(*pod.path, "tolerations"),
                key=f"tolerations.{taint.key}",
                message=f"the {agent} does not tolerate the taint {display_taint(taint)} of GPU "
                f"nodes, so {effect}",
                help=f"add a toleration: key {taint.key}, operator Exists, effect {taint.effect}",
                action=Action.AUDIT if _tolerates_other_gpu_taint(pod, taint) else Action.DENY,
            )


def _tolerates_other_gpu_taint(pod: Pod, taint: Taint) -> bool:
    """Return whether a toleration of `pod` names GPUs by a user's key, not by `taint` misspelt."""
    if misspelt_toleration(pod, taint) is not None:
        return False
    for _, own in pod.tolerations:
        key, value = as_text(own.get("key")), as_text(own.get("value"))
        if "/" not in key and not _GPU_WORDS.isdisjoint(words_of_key(f"{key} {value}")):
            return True
    return False


def untolerated_taints(pod: Pod, taints: Iterable[Taint]) -> list[Taint]:
    """The `taints` that no toleration of the pod tolerates, each once, sorted by key.

    A toleration that the platform adds by itself counts as one of the pod.
    """
    untolerated = {}
    for taint in taints:
        by_platform = taint.tolerated_for
        if by_platform and any(matches_any(by_platform, name) for name in requested_resources(pod)):
            continue
        if not is_tolerated(pod, taint):
            untolerated[taint.key, taint.effect, taint.value or ""] = taint
    return [untolerated[identity] for identity in sorted(untolerated)]


def misspelt_toleration(pod: Pod, taint: Taint) -> tuple[int, Mapping[str, Any]] | None:
    """The toleration that was meant for `taint`, with its index; None if there is none.

    The caller has checked that no toleration tolerates `taint`. The one that was meant for it
    has the taint's key, or one that differs only in case, punctuation, an `s` at the end of a word,
    or a missing `.com`.
    """
    wanted = words_of_key(taint.key)
    for index, toleration in pod.tolerations:
        key = as_text(toleration.get("key"))
        if key and (key == taint.key or words_of_key(key) == wanted):
            return index, toleration
    return None


def misspelt_taint(profile: Profile, key: str) -> Taint | None:
    """The taint of GPU nodes for which `key` is mistaken; None if it is none, or right.

    Only names with a domain are compared: `nvidia-gpu` may be a name of the user's own.
    """
    if "/" not in key or any(taint.key == key for taint in profile.taints):
        return None
    near = (
        t
        for t in profile.taints
        if words_of_key(t.key) == words_of_key(key) or has_few_typos(1, key, t.key)
    )
    return next(near, None)


@cached_by_text
def words_of_key(key: str) -> list[str]:
    """Return the words of a taint's key; keys with the same words differ only in spelling."""
    words = re.split(_SEPARATORS_PATTERN, key.lower())
    return [word.removesuffix("s") for word in words if word not in {"", "com"}]


def toleration_for(taint: Taint) -> dict[str, Any]:
    """The toleration for `taint` and no other one; for every value if the value is unknown."""
    if taint.value is None:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    equal = {"key": taint.key, "operator": "Equal", "value": taint.value}
    return {**equal, "effect": taint.effect}


def display_taint(taint: Taint) -> str:
    """`taint` as kubectl writes it: `key=value:effect`, or `key:effect`."""
    value = "" if taint.value is None else f"={taint.value}"
    return f"{taint.key}{value}:{taint.effect}"
