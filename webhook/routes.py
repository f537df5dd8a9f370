"""The paths at which reviews are answered."""

from __future__ import annotations

from typing import NamedTuple

from rules.finding import Action

MODES = (Action.DENY, Action.WARN, Action.AUDIT)


class Route(NamedTuple):
    """What a path asks for: which door, `mutate` or `validate`, and in which mode."""

    door: str
    mode: Action


ROUTES = {
    f"/{door}/{mode.word}": Route(door, mode) for door in ("mutate", "validate") for mode in MODES
}
