"""Check the list of rules when it is imported, so that gpuward does not start with a wrong one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from rules.rule import Rule


class CatalogError(ValueError):
    """A list of rules that cannot be right. The text names the rule and what to change."""


def checked(*groups: Sequence[Rule[Any]]) -> tuple[Rule[Any], ...]:
    """The rules of all `groups`, in order.

    Raises CatalogError if two rules have the same name, if a rule has no summary or no `needs`, or
    if a rule supersedes one that is not listed after it.
    """
    rules = tuple(chain(*groups))
    position = {rule.name: number for number, rule in enumerate(rules)}
    times = Counter(rule.name for rule in rules)
    name = max(times, key=times.__getitem__)
    if times[name] > 1:
        raise CatalogError(f"{name} is listed {times[name]} times: name it once, in one group")
    for rule in rules:
        if not rule.summary:
            raise CatalogError(f"{rule.name} has no docstring: its first line is the summary")
        if not rule.needs:
            raise CatalogError(f"{rule.name} needs no trait: name those that it cannot do without")
        for other in rule.supersedes:
            if position.get(other, -1) <= position[rule.name]:
                raise CatalogError(
                    f"{rule.name} supersedes {other}, which must be listed after it: "
                    "a rule that ran already cannot be silenced"
                )
    return rules
