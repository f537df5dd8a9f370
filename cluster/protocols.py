"""The requests that gpuward sends to Kubernetes, as protocols, and their errors."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class ConfigurationKind(enum.Enum):
    """The two kinds of webhook configuration, by the name of their resource."""

    MUTATING = "mutatingwebhookconfigurations"
    VALIDATING = "validatingwebhookconfigurations"


class ConfigurationRef(NamedTuple):
    """One webhook configuration of gpuward: its kind and its name."""

    kind: ConfigurationKind
    name: str


class ClusterError(Exception):
    """The API server refused a request or could not be reached."""


class ConflictError(ClusterError):
    """Somebody else changed the object after we read it."""


class Cluster(Protocol):
    """The requests of the certificate controller.

    All methods raise ClusterError; those that write also raise ConflictError. What is written
    must carry the resourceVersion that was read.
    """

    def get_secret(self, name: str) -> Object:
        """The Secret `name` in the controller's namespace."""

    def update_secret(self, secret: Object) -> Object:
        """Replace a Secret; returns what is stored now."""

    def get_lease(self, name: str) -> Object:
        """The Lease `name` in the controller's namespace."""

    def update_lease(self, lease: Object) -> Object:
        """Replace a Lease; returns what is stored now."""

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""

    def write_bundle(
        self, ref: ConfigurationRef, version: str, indices: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `indices` in that resourceVersion."""


class Configurations(Protocol):
    """The requests of `gpuward webhooks`. Both raise ClusterError."""

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""

    def delete_configuration(self, ref: ConfigurationRef, uid: str) -> Sequence[str]:
        """Delete a webhook configuration; returns the finalizers that keep it."""
