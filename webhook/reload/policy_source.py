"""What a policy is made of, and what is made of it."""

from __future__ import annotations

from typing import NamedTuple

from policies.loading import default_policy
from policies.policy import Policy
from policies.policy_files import parse_policy
from rules.inventory.inventory import EMPTY, Inventory
from rules.policy_exception import PolicyException
from webhook.admission.decider import Decider


class PolicySource(NamedTuple):
    """What a policy is loaded from: the content of the file `name`, or the default if it is None.

    `profiles`, if not empty, replace those that the policy names. `delegated` are exceptions of
    GpuExceptions that the policy accepts. `inventory` is what is known of other objects.
    """

    content: bytes | None
    name: str
    profiles: tuple[str, ...]
    delegated: tuple[PolicyException, ...] = ()
    inventory: Inventory = EMPTY

    def load(self) -> Policy:
        """The policy with all exceptions; PolicyError says what is wrong with it."""
        if self.content is None:
            policy = default_policy(self.profiles)
        else:
            policy = parse_policy(self.content, self.name, self.profiles)
        return policy._replace(exceptions=policy.exceptions + self.delegated)

    def decider(self) -> Decider:
        """What decides by this policy; PolicyError says what is wrong with it."""
        return Decider(self.load(), self.inventory)


class ActivePolicy(NamedTuple):
    """The policy by which requests are decided.

    `exceptions` are those of the policy itself, and `source` is what it was loaded from. `digest`
    is the SHA-256 of its file, empty for the default policy; `since` is a Unix time.
    """

    decider: Decider
    exceptions: tuple[PolicyException, ...]
    source: PolicySource
    digest: str
    since: float
