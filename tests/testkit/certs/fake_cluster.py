"""A cluster in memory for the certificate controller: Secrets, a Lease, configurations."""

from __future__ import annotations

import base64
import copy
import datetime
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from certs.authority import service_names
from certs.rotation import RotationPolicy
from certs.secrets import CertificateState, decode
from cluster.api.errors import (
    NEW_BUNDLE_ANNOTATION,
    ClusterError,
    ConfigurationKind,
    ConfigurationRef,
    ConflictError,
    NotCreatedError,
    Object,
)
from cluster.controllers.certificates import (
    CertificateController,
    Clocks,
    ControllerConfig,
    ServiceRef,
)

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NAMES = service_names("gpuward", "gpuward-system")
POLICY = RotationPolicy(NAMES)
CONFIGURATIONS = [
    ConfigurationRef(ConfigurationKind.MUTATING, "gpuward"),
    ConfigurationRef(ConfigurationKind.VALIDATING, "gpuward"),
]
SERVICE = ServiceRef("gpuward-system", "gpuward")
CONFIG = ControllerConfig("gpuward-ca", "gpuward-tls", "gpuward-certs", SERVICE, CONFIGURATIONS)


class CrashError(BaseException):
    """Raised where the process is to end."""


class FakeTime:
    """The real time, and the controller's wall clock, which may be ahead of it."""

    def __init__(self) -> None:
        self.passed = datetime.timedelta()
        self.ahead = datetime.timedelta()

    @property
    def real(self) -> datetime.datetime:
        return START + self.passed

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.real + self.ahead, self.monotonic)

    def monotonic(self) -> float:
        return self.passed.total_seconds()


class MemoryCluster:
    """A `cluster.api.errors.Cluster` with the webhook configurations that the chart creates.

    `crash` is (n, after): the process ends at the n-th write from now, before or after the write
    takes effect. `refuse` names a kind of object whose requests fail, and `not_created` one of
    which no object may be created.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self._versions = map(str, itertools.count(1))
        for configuration in CONFIGURATIONS:
            self.configure(configuration)
        self.writes: list[str] = []
        self.read_secrets: list[str] = []
        self.crash: tuple[int, bool] | None = None
        self.refuse: str | None = None
        self.not_created: str | None = None

    def configure(self, configuration: ConfigurationRef, *names: str) -> None:
        """Create a webhook configuration as the chart does: without a bundle."""
        self.objects[configuration.kind.value, configuration.name] = {
            "metadata": {"name": configuration.name, "resourceVersion": next(self._versions)},
            "webhooks": [
                {"name": name, "clientConfig": {"service": SERVICE._asdict()}}
                for name in names or ("pods.gpuward.io", "workloads.gpuward.io")
            ],
        }

    def get_secret(self, name: str) -> Object | None:
        self.read_secrets.append(name)
        return self._get("secrets", name)

    def write_secret(self, secret: Object) -> Object:
        return self._put("secrets", secret)

    def get_lease(self, name: str) -> Object | None:
        return self._get("leases", name)

    def write_lease(self, lease: Object) -> Object:
        return self._put("leases", lease)

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        self._check_allowed(ref.kind.value)
        return copy.deepcopy(self.objects.get((ref.kind.value, ref.name)))

    def changes(self, ref: ConfigurationRef) -> Iterator[None]:
        """None: tests begin each pass themselves."""
        del ref
        return iter(())

    def secret_changes(self, name: str) -> Iterator[None]:
        """None, likewise."""
        del name
        return iter(())

    def write_bundle(
        self, ref: ConfigurationRef, read: Object, indices: Sequence[int], bundle: str
    ) -> None:
        configuration = copy.deepcopy(self.objects[ref.kind.value, ref.name])
        metadata = configuration["metadata"]
        metadata["resourceVersion"] = read["metadata"]["resourceVersion"]
        metadata.setdefault("annotations", {})[NEW_BUNDLE_ANNOTATION] = "true"
        for index in indices:
            configuration["webhooks"][index]["clientConfig"]["caBundle"] = bundle
        self._put(ref.kind.value, configuration)

    def remove_bundle_annotation(self, ref: ConfigurationRef, version: str) -> None:
        configuration = copy.deepcopy(self.objects[ref.kind.value, ref.name])
        configuration["metadata"]["resourceVersion"] = version
        del configuration["metadata"]["annotations"][NEW_BUNDLE_ANNOTATION]
        self._put(ref.kind.value, configuration)

    def change_version(self, ref: ConfigurationRef) -> None:
        """Change a webhook configuration in some way, without the controller."""
        metadata = self.objects[ref.kind.value, ref.name]["metadata"]
        metadata["resourceVersion"] = next(self._versions)

    def published(self, configuration: ConfigurationRef = CONFIGURATIONS[0]) -> bytes:
        """The bundle of the first webhook in `configuration`."""
        found = self.objects[configuration.kind.value, configuration.name]
        return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))

    def data(self, name: str) -> dict[str, bytes]:
        """The data of a Secret, decoded; empty if there is none."""
        found: dict[str, str] = self.objects.get(("secrets", name), {}).get("data", {})
        return {key: base64.b64decode(value) for key, value in found.items()}

    def put_data(self, name: str, **data: bytes | None) -> None:
        """Change a Secret without the controller; None removes a key. `_` stands for `.`."""
        secret = self.objects.setdefault(("secrets", name), {"metadata": {"name": name}})
        for key, content in data.items():
            others = {k: v for k, v in secret.get("data", {}).items() if k != key.replace("_", ".")}
            if content is not None:
                others[key.replace("_", ".")] = base64.b64encode(content).decode()
            secret["data"] = others
        secret["metadata"]["resourceVersion"] = next(self._versions)

    @property
    def stored(self) -> CertificateState:
        """The certificate state in the Secrets."""
        return decode(self.data(CONFIG.authority_secret), self.data(CONFIG.serving_secret))

    def delete(self, name: str) -> None:
        """Delete a Secret without the controller, if it exists."""
        self.objects.pop(("secrets", name), None)

    def _get(self, kind: str, name: str) -> Object | None:
        self._check_allowed(kind)
        return copy.deepcopy(self.objects.get((kind, name)))

    def _put(self, kind: str, new: Object) -> Object:
        self._check_allowed(kind)
        name = new["metadata"]["name"]
        version = self.objects.get((kind, name), {"metadata": {}})["metadata"].get(
            "resourceVersion"
        )
        if new["metadata"].get("resourceVersion") != version:
            raise ConflictError(f"{name} was changed meanwhile")
        if version is None and self.not_created == kind:
            raise NotCreatedError(f"{name} does not exist")
        crash_after = self._crashes()
        stored: dict[str, Any] = copy.deepcopy(new)
        stored["metadata"]["resourceVersion"] = next(self._versions)
        self.objects[kind, name] = stored
        self.writes.append(name)
        if crash_after is not None:
            raise CrashError
        return copy.deepcopy(stored)

    def _crashes(self) -> bool | None:
        """None: no crash at this write. True: crash after it. A crash before it is raised here."""
        if self.crash is None:
            return None
        writes, after = self.crash
        self.crash = (writes - 1, after) if writes > 1 else None
        if writes > 1:
            return None
        if not after:
            raise CrashError
        return True

    def _check_allowed(self, kind: str) -> None:
        if self.refuse == kind:
            raise ClusterError(f"{kind} is forbidden")


def controller(
    cluster: MemoryCluster, time: FakeTime, identity: str = "one", **arguments: Any
) -> CertificateController:
    """A newly started controller on `cluster`."""
    keywords: dict[str, Any] = {"replicas": lambda: None, "clocks": time.clocks, **arguments}
    return CertificateController(
        cluster,
        keywords.pop("config", CONFIG),
        keywords.pop("policy", POLICY),
        identity=identity,
        **keywords,
    )
