"""The objects of each kind of export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from policies.policy import Policy
from webhook.in_process.fixes import fix_objects
from webhook.in_process.keys import key_objects
from webhook.in_process.objects import ExportOptions, policy_objects

Maker: TypeAlias = Callable[[Policy, ExportOptions], Iterator[dict[str, Any]]]


def validating_objects(policy: Policy, options: ExportOptions) -> Iterator[dict[str, Any]]:
    """Every object that refuses and warns, a policy before its bindings."""
    yield from policy_objects(policy, options)
    yield from key_objects(policy, options)


EXPORTS: Mapping[str, Maker] = {"vap": validating_objects, "map": fix_objects}
"""What makes the objects, by the word for them on the command line."""
