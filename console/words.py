"""The words of the pages that explain themselves on a click."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "allocated": "what pods have that are bound to a node and have not terminated, whether they "
    "use it or not.",
    "starting": "allocated to pods that have a node and do not run yet.",
    "free": "what new pods can take now.",
    "stranded": "cards that nobody has and no pod can take, because their node has no CPU, memory "
    "or room for a pod left. A pod needs at least 1 CPU and 1Gi beside a card. The page of the "
    "node says what has taken them.",
    "unavailable": "cards that are not healthy, and those of nodes that take no pods: cordoned, or "
    "tainted by Kubernetes as not ready, for example.",
    "overcommitted": "cards that pods have and their node no longer offers, as after a device "
    "plugin has come back with fewer of them.",
    "pending": "what pods and claims ask for that have no node yet.",
    "room": "how many new pods would fit, each with all its cards on one node, and with 1 CPU and "
    "1Gi for each card. Partitions and shares of cards do not count.",
}
"""The meaning of each word."""
