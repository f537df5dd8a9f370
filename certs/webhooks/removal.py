"""Take webhook configurations away, so that the API server calls no webhook any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from certs.api import ClusterError, Configurations
from certs.publish import Configuration

OURS = ".gpuward.io"
"""How the names of our webhooks end."""
# Between the attempts, in seconds: rights that an installer has just given take a moment.
PAUSES = (1.0, 3.0)


class NotOursError(Exception):
    """The configuration of that name is somebody else's."""


def remove(
    cluster: Configurations,
    wanted: Sequence[Configuration],
    *,
    gone: Callable[[Configuration, str], None],
    failed: Callable[[Configuration, str], None],
    pauses: Sequence[float] = PAUSES,
) -> list[Configuration]:
    """Take each of `wanted` away, whatever becomes of the others; those that are left.

    `gone` and `failed` are told what happened to one; what failed is tried again.
    """
    kept, waiting = [], list(wanted)
    for pause in (0.0, *pauses):
        time.sleep(pause)
        trying, waiting = waiting, []
        for configuration in trying:
            try:
                gone(configuration, _remove(cluster, configuration))
            except NotOursError as error:
                failed(configuration, str(error))
                kept.append(configuration)
            except ClusterError as error:
                failed(configuration, str(error))
                waiting.append(configuration)
        if not waiting:
            break
    return kept + waiting


def _remove(cluster: Configurations, configuration: Configuration) -> str:
    found = cluster.get_configuration(*configuration)
    if found is None:
        return "was not there"
    names = [webhook["name"] for webhook in found.get("webhooks") or ()]
    if foreign := [name for name in names if not name.endswith(OURS)]:
        raise NotOursError(f"not gpuward's: it holds the webhook {foreign[0]}")
    # By its uid: what has meanwhile come under the same name has not been looked at.
    holding = cluster.delete_configuration(*configuration, found["metadata"]["uid"])
    if holding:
        raise ClusterError(f"is to be deleted, but kept by its finalizers {', '.join(holding)}")
    return "deleted"
