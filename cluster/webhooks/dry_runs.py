"""Dry runs: an API server answers with all of its admission, and stores nothing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from cluster.api.errors import ClusterError, ForbiddenError, InvalidError, Object
from cluster.source.options import open_connection

if TYPE_CHECKING:
    from cluster.source.api_server import ApiServerSource

IMAGE = "registry.example.com/app:1"
"""The image of the pods; no container starts."""
UNKNOWN_FIELD = "gpuwardDryRun"
"""A field that no pod has. The API server warns of it, which shows that its warnings arrive."""
_MAX_BYTES = 8 << 20  # of an answer
_MAX_TEXT = 300  # characters of a message

SendPod = Callable[[str, Object], tuple[Object, Sequence[str]]]
"""Creates a pod in a namespace by a dry run; returns it as admitted, and the warnings.

Raises ClusterError.
"""


class NotTried(NamedTuple):
    """The reason why dry runs have shown nothing, and what to do about it."""

    why: str
    remedy: str


def open_with_dry_runs(options: argparse.Namespace) -> tuple[ApiServerSource, SendPod]:
    """The objects of the cluster that the options mean, and how to make dry runs there.

    Raises SourceError.
    """
    # With files, the Kubernetes client need not be installed.
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415

    connection = open_connection(options)

    def send(namespace: str, pod: Object) -> tuple[Object, list[str]]:
        # Sent once: an error such as that of a webhook which does not answer is an answer here.
        path = f"{pod_path(namespace)}&fieldValidation=Warn"
        return connection.request_with_warnings("POST", path, pod, _MAX_BYTES)

    return ApiServerSource(connection), send


def shortened(text: str, most: int = _MAX_TEXT) -> str:
    """The beginning of a message of another program, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


_REQUEST = re.compile(r"^(?:POST|PATCH) \S{1,600}: (?:\d{3} )?")


class Answer(NamedTuple):
    """The API server's answer: the admitted object, or why it refused or could not answer.

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
    """Return the path at which a dry run creates a pod in `namespace`."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?dryRun=All"


def _without_request(message: str) -> str:
    """The API server's own words."""
    return _REQUEST.sub("", message)
