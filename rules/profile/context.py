"""The facts about one evaluation besides the manifest."""

import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.profile.profile import Profile

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Context(NamedTuple):
    """The facts of one evaluation. Offline, user and operation are unknown.

    - `today`: the date by which exceptions expire, in UTC.
    - `namespace`: where objects go that name no namespace themselves.
    - `user`, `operation`: as the API server says them; None offline.
    - `old_metadata`, `old_spec`: at an update, those of the pod as it was; else None.
    - `is_patch`: the manifest is a patch of another object, as in a kustomization.
    - `inventory`: what is known about other objects.
    - `profile`, `options`: added by the engine; the options are those of the rule that runs.
    """

    today: datetime.date
    namespace: str | None = None
    user: str | None = None
    operation: Literal["CREATE", "UPDATE"] | None = None
    profile: Profile = Profile("none")
    options: Mapping[str, Any] = NO_OPTIONS
    is_patch: bool = False
    inventory: Inventory = EMPTY_INVENTORY
    old_metadata: Mapping[str, Any] | None = None
    old_spec: Mapping[str, Any] | None = None

    def with_profile(self, profile: Profile, options: Mapping[str, Any] = NO_OPTIONS) -> "Context":
        """Return the same with a profile and options; `_replace` takes four times as long."""
        if profile is self.profile and options is self.options:
            return self
        before, after = self[:4], self[6:]  # of both fields: keywords take three times as long
        return Context(*before, profile, options, *after)
