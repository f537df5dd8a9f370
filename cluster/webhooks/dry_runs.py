"""What an API server answers to a dry run: all of admission takes part, and nothing is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from cluster.api.errors import ClusterError, ForbiddenError, InvalidError, Object

_REQUEST = re.compile(r"^(?:POST|PATCH) \S{1,600}: (?:\d{3} )?")


class Answer(NamedTuple):
    """What the API server answered: the admitted object, or why it refused or could not answer.

    `warnings` came with an admitted object.
    """

    admitted: Object | None
    refused: str = ""
    failed: str = ""
    warnings: Sequence[str] = ()


def answer_to(send: Callable[[], tuple[Object, Sequence[str]]]) -> Answer:
    """The answer to the dry run that `send` sends.

    `send` returns the object as it was admitted, and the warnings. It raises ClusterError.
    """
    try:
        admitted, warnings = send()
        return Answer(admitted, warnings=warnings)
    except (ForbiddenError, InvalidError) as error:
        text = _without_request(str(error))
        if "does not support dry run" in text:
            return Answer(None, failed=text)
        return Answer(None, refused=text)
    except ClusterError as error:
        return Answer(None, failed=_without_request(str(error)))


def pod_path(namespace: str) -> str:
    """Where a pod is created in `namespace` by a dry run."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?dryRun=All"


def _without_request(message: str) -> str:
    """The API server's own words."""
    return _REQUEST.sub("", message)
