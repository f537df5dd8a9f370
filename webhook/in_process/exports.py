"""The objects of each kind of export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from policies.policy import Policy
from rules.finding import Action
from webhook.in_process.fixes import fix_objects
from webhook.in_process.keys import key_objects
from webhook.in_process.objects import LEVELS, ExportOptions, policy_objects

Maker: TypeAlias = Callable[[Policy, ExportOptions], Iterator[dict[str, Any]]]


def validating_objects(
    policy: Policy, options: ExportOptions, levels: Sequence[Action] = LEVELS
) -> Iterator[dict[str, Any]]:
    """Every object that refuses and warns, a policy before its bindings.

    `levels` are the actions of the findings that it is about, the strictest first.
    """
    yield from policy_objects(policy, options, levels)
    yield from key_objects(policy, options, levels)


EXPORTS: Mapping[str, Maker] = {"vap": validating_objects, "map": fix_objects}
"""What makes the objects, by the word for them on the command line."""
