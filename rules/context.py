"""The facts of one call."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.profile import Profile

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Context(NamedTuple):
    """What is known of one call. Offline everything but the date is unknown.

    `namespace` is where objects go that name none themselves. `user` and `operation` are
    the API server's words (`CREATE`, `UPDATE`) and None offline. The engine fills in
    `profile` and, for each rule, its `options`.
    """

    today: datetime.date
    namespace: str | None = None
    user: str | None = None
    operation: Literal["CREATE", "UPDATE"] | None = None
    profile: Profile = Profile("none")
    options: Mapping[str, Any] = NO_OPTIONS

    def having(self, profile: Profile, options: Mapping[str, Any] = NO_OPTIONS) -> Context:
        """The same with these; `_replace` costs several times as much."""
        return Context(self.today, self.namespace, self.user, self.operation, profile, options)
