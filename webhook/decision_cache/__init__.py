"""Decisions about new pods, kept for the other pods that controllers make from one template."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.decision_cache.cache import DecisionCache


def new_decision_cache(max_objects: int, max_steps: int) -> DecisionCache | None:
    """A cache for pods within these bounds; None if msgspec, an extra, is not installed."""
    try:
        from webhook.decision_cache.cache import DecisionCache  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return DecisionCache(max_objects, max_steps)
