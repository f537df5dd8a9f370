"""A world in memory for the certificate controller: Secrets, a Lease and configurations."""

from __future__ import annotations

import base64
import copy
import datetime
from collections.abc import Sequence
from typing import Any

from certs.controller.controller import Clocks, Controller, ControllerConfig
from certs.controller.rotation import RotationPolicy
from certs.controller.secrets import CertificateState, decode
from certs.pki.authority import service_names
from cluster.api import ClusterError, ConfigurationKind, ConfigurationRef, ConflictError, Object

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NAMES = service_names("gpuward", "gpuward-system")
PLAN = RotationPolicy(NAMES)
CONFIGURATIONS = [
    ConfigurationRef(ConfigurationKind.MUTATING, "gpuward"),
    ConfigurationRef(ConfigurationKind.VALIDATING, "gpuward"),
]
WORK = ControllerConfig("gpuward-ca", "gpuward-tls", "gpuward-certs", CONFIGURATIONS)


class CrashError(BaseException):
    """The process ends here."""


class Time:
    """Real time, and the controller's idea of the time of day, which may be ahead."""

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
    """`cluster.api.Cluster`; what the chart makes is there, and empty.

    `crash` ends the process at the n-th write from now: before it counts, or after.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        for kind, name in (
            ("secrets", WORK.authority_secret),
            ("secrets", WORK.serving_secret),
            ("leases", WORK.lease),
        ):
            self.objects[kind, name] = {"metadata": {"name": name, "resourceVersion": "1"}}
        for configuration in CONFIGURATIONS:
            self.configure(configuration)
        self.writes: list[str] = []
        self.crash: tuple[int, bool] | None = None
        self.refuse: str | None = None

    def configure(self, configuration: ConfigurationRef, *names: str) -> None:
        """Make a webhook configuration as a chart does: without a bundle."""
        self.objects[configuration.kind.value, configuration.name] = {
            "metadata": {"name": configuration.name, "resourceVersion": "1"},
            "webhooks": [
                {"name": name, "clientConfig": {"service": {"name": "gpuward"}}}
                for name in names or ("pods.gpuward.io", "workloads.gpuward.io")
            ],
        }

    def get_secret(self, name: str) -> Object:
        return self._get("secrets", name)

    def update_secret(self, secret: Object) -> Object:
        return self._put("secrets", secret)

    def get_lease(self, name: str) -> Object:
        return self._get("leases", name)

    def update_lease(self, lease: Object) -> Object:
        return self._put("leases", lease)

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        self._may(ref.kind.value)
        return copy.deepcopy(self.objects.get((ref.kind.value, ref.name)))

    def write_bundle(
        self, ref: ConfigurationRef, version: str, indices: Sequence[int], bundle: str
    ) -> None:
        configuration = copy.deepcopy(self.objects[ref.kind.value, ref.name])
        configuration["metadata"]["resourceVersion"] = version
        for index in indices:
            configuration["webhooks"][index]["clientConfig"]["caBundle"] = bundle
        self._put(ref.kind.value, configuration)

    def published(self, configuration: ConfigurationRef = CONFIGURATIONS[0]) -> bytes:
        """The bundle of its first webhook."""
        found = self.objects[configuration.kind.value, configuration.name]
        return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))

    def data(self, name: str) -> dict[str, bytes]:
        """The data of a Secret, decoded."""
        found: dict[str, str] = self.objects["secrets", name].get("data", {})
        return {key: base64.b64decode(value) for key, value in found.items()}

    def put_data(self, name: str, **data: bytes | None) -> None:
        """Change a Secret behind the controller's back; None takes away. `_` stands for `.`."""
        secret = self.objects["secrets", name]
        for key, content in data.items():
            kept = {k: v for k, v in secret.get("data", {}).items() if k != key.replace("_", ".")}
            if content is not None:
                kept[key.replace("_", ".")] = base64.b64encode(content).decode()
            secret["data"] = kept
        version = int(secret["metadata"]["resourceVersion"])
        secret["metadata"]["resourceVersion"] = str(version + 1)

    @property
    def stored(self) -> CertificateState:
        """What the Secrets say."""
        return decode(self.data(WORK.authority_secret), self.data(WORK.serving_secret))

    def _get(self, kind: str, name: str) -> Object:
        self._may(kind)
        return copy.deepcopy(self.objects[kind, name])

    def _put(self, kind: str, new: Object) -> Object:
        self._may(kind)
        name = new["metadata"]["name"]
        version = self.objects[kind, name]["metadata"]["resourceVersion"]
        if new["metadata"]["resourceVersion"] != version:
            raise ConflictError(f"{name} was changed meanwhile")
        before = self._crashes()
        stored: dict[str, Any] = copy.deepcopy(new)
        stored["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.objects[kind, name] = stored
        self.writes.append(name)
        if before is not None:
            raise CrashError
        return copy.deepcopy(stored)

    def _crashes(self) -> bool | None:
        """None if not at this write; else the process ends: before it, or True for after it."""
        if self.crash is None:
            return None
        writes, after = self.crash
        self.crash = (writes - 1, after) if writes > 1 else None
        if writes > 1:
            return None
        if not after:
            raise CrashError
        return True

    def _may(self, kind: str) -> None:
        if self.refuse == kind:
            raise ClusterError(f"{kind} is forbidden")


def controller(
    cluster: MemoryCluster, time: Time, identity: str = "one", **given: Any
) -> Controller:
    """A controller on `cluster`, newly started."""
    keywords: dict[str, Any] = {"replicas": lambda: None, "clocks": time.clocks, **given}
    return Controller(
        cluster,
        keywords.pop("work", WORK),
        keywords.pop("plan", PLAN),
        identity=identity,
        **keywords,
    )
