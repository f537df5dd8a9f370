"""The URL paths at which the webhook answers reviews."""

from __future__ import annotations

from typing import NamedTuple

from rules.finding import Action

MODES = (Action.DENY, Action.WARN, Action.AUDIT)


class Route(NamedTuple):
    """The webhook of a path, `mutate` or `validate`, and the mode."""

    webhook: str
    mode: Action


ROUTES = {
    f"/{webhook}/{mode.word}": Route(webhook, mode)
    for webhook in ("mutate", "validate")
    for mode in MODES
}
