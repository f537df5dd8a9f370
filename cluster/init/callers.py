"""From where API servers call the webhook, if it already runs."""

from __future__ import annotations

from collections.abc import Callable

from cluster.source.objects import NAMESPACES, VALIDATING, ObjectSource, SourceError
from cluster.source.registered import is_own
from cluster.webhooks.callers import Callers, find_callers
from cluster.webhooks.dry_runs import IMAGE, NotTried, SendPod, shortened
from terminal import DOCS_URL

_LATER = f"once it is installed, `gpuward doctor` says it: {DOCS_URL}/install.md"
_NEXT = f"`gpuward doctor` says what to do: {DOCS_URL}/install.md"


def seen_callers(
    source: ObjectSource, request: Callable[[str], str] | None, send: SendPod | None
) -> Callers | NotTried:
    """The callers, or why they are not known; without `request` and `send` the objects are files.

    Raises SourceError if the source cannot be read for another reason than a right.
    """
    if request is None or send is None:
        return NotTried("the objects are from files, so no call was seen", _LATER)
    try:
        own = [item for item in source.list(VALIDATING) if is_own(item)]
        if not own:
            return NotTried("it is not installed yet", _LATER)
        found = find_callers(send, request, own, source.list(NAMESPACES), IMAGE)
    except SourceError as error:
        return NotTried(shortened(str(error)), _NEXT)
    return found._replace(remedy=_NEXT) if isinstance(found, NotTried) else found
