"""What is asked of Kubernetes: these few things and no more."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class Kind(enum.Enum):
    """The two kinds of webhook configuration, by the name of their resource."""

    MUTATING = "mutatingwebhookconfigurations"
    VALIDATING = "validatingwebhookconfigurations"


class ClusterError(Exception):
    """Kubernetes refused, or could not be reached."""


class ConflictError(ClusterError):
    """The object was changed by somebody else after we had read it."""


class Cluster(Protocol):
    """What the controller needs.

    Everything raises ClusterError; what writes raises ConflictError too. What is written
    carries the resourceVersion of what was read.
    """

    def get_secret(self, name: str) -> Object:
        """The Secret `name` of our namespace."""

    def update_secret(self, secret: Object) -> Object:
        """Replace a Secret; what is stored now."""

    def get_lease(self, name: str) -> Object:
        """The Lease `name` of our namespace."""

    def update_lease(self, lease: Object) -> Object:
        """Replace a Lease; what is stored now."""

    def get_configuration(self, kind: Kind, name: str) -> Object | None:
        """A webhook configuration; None if there is none of that name."""

    def write_bundle(
        self, kind: Kind, name: str, version: str, places: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `places` in that resourceVersion."""


class Configurations(Protocol):
    """What the removal needs. Both raise ClusterError."""

    def get_configuration(self, kind: Kind, name: str) -> Object | None:
        """A webhook configuration; None if there is none of that name."""

    def delete_configuration(self, kind: Kind, name: str, uid: str) -> Sequence[str]:
        """Delete a webhook configuration; the finalizers for which it stays."""
