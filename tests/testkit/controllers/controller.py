"""Runs a controller of another project with a control plane, as its own manifests install it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.testkit.admission.server_process import folder_of
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import (
    TIMEOUT,
    Processes,
    eventually,
    free_port,
    is_free,
)
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import skip_missing

HOST = "127.0.0.1"
# The program runs beside the cluster, so that nothing runs its pods, or serves its Services. Nor is
# there a cert-manager.
NOT_APPLIED = (
    *("APIService", "Deployment", "DaemonSet", "NetworkPolicy", "Service"),
    *("Certificate", "Issuer"),
)
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# On a slow machine an answer that comes late must not be none.
WEBHOOK_SECONDS = 30
# Where controllers look by default, in the folder for temporary files.
CERTIFICATES = Path("k8s-webhook-server", "serving-certs")


@dataclass(frozen=True)
class Locations:
    """Where a controller listens, and finds the certificate of its webhook.

    The webhook listens at the address of its Service, and the rest at ports of HOST. `kubeconfig`
    has the token of its account, which is there when the program is started.
    """

    certificates: Path
    webhook_host: str
    webhook_port: int
    kubeconfig: Path = Path()
    metrics: int = field(default_factory=free_port)
    health: int = field(default_factory=free_port)


@dataclass(frozen=True)
class Recipe:
    """How a controller is installed and started.

    `manifests` are the kustomizations, or the files, among its manifests. Objects without a
    namespace get `namespace`. `arguments` returns the arguments of its program, and `settings` what
    to change in its file of settings; without settings it has no such file. `deployment` is the one
    of its program, if there are several. With `reads_deployment` the program looks for it, so that
    it is created, without pods. `service` is the Service of its webhook, if it has one. With
    `own_certificate`, the program makes its certificate, in this Secret.
    """

    name: str
    manifests: tuple[str, ...]
    namespace: str
    arguments: Callable[[Locations], list[str]] = lambda _: []
    settings: Callable[[Locations], dict[str, Any]] | None = None
    deployment: str = ""
    reads_deployment: bool = False
    service: str = ""
    own_certificate: str = ""


def built(build: Callable[[], Programs]) -> Programs:
    """The programs that `build` builds; skips the test if they cannot be built."""
    try:
        return build()
    except BuildError as error:
        skip_missing(str(error))


class Controller:
    """Installs a controller, and runs its program with its own account while its context is open.

    Its kinds and roles stay in the cluster afterwards. Its webhooks and their Service do not:
    nobody answers them, and it may be started again.
    """

    def __init__(
        self, recipe: Recipe, plane: ControlPlane, programs: Programs, folder: Path
    ) -> None:
        self.recipe = recipe
        self._plane = plane
        self._program = programs[recipe.name]
        self._manifests = programs.manifests(recipe.name)
        self._folder = folder
        self._processes = Processes(folder)

    def __enter__(self) -> Self:
        self._apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._home}}])
        at = self._locations()
        installed = [self._placed(each, at) for each in self._rendered()]
        applied = [each for each in installed if each["kind"] not in NOT_APPLIED]
        if self.recipe.reads_deployment:
            applied.append(_without_pods(self._deployment(installed)))
        self._apply(applied)
        self._wait_for_kinds(applied)
        self._start(installed, at)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for kind_of_webhooks in WEBHOOKS:
            found = json.loads(self._plane.kubectl("get", kind_of_webhooks, "-o", "json").stdout)
            for each in found["items"]:
                clients = (client.get("service", {}) for client in _webhook_clients(each))
                if any(client.get("namespace") == self._home for client in clients):
                    self._plane.kubectl("delete", kind_of_webhooks, each["metadata"]["name"])
        if self.recipe.service:
            self._plane.kubectl("delete", "service", self.recipe.service, "-n", self._home)
        self._processes.stop()

    @property
    def _home(self) -> str:
        return self.recipe.namespace

    def _locations(self) -> Locations:
        host, port = HOST, free_port()
        if self.recipe.service:
            host = self._plane.expose(self.recipe.service, self._home, port)
        return Locations(self._folder / CERTIFICATES, host, port)

    def _rendered(self) -> list[Any]:
        found = []
        for name in self.recipe.manifests:
            place = self._manifests / name
            if place.is_file():
                text = place.read_text(encoding="utf-8")
            else:
                text = self._plane.kubectl("kustomize", str(place)).stdout
            found += [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
        return found

    def _placed(self, given: Any, at: Locations) -> Any:
        """An object in the controller's namespace, with webhooks at the program's port."""
        placed = _with_namespace(given, self._home)
        if placed["kind"] in WEBHOOKS:
            for entry in placed["webhooks"]:
                entry["timeoutSeconds"] = WEBHOOK_SECONDS
        for client_config in _webhook_clients(placed):
            own = {"name": self.recipe.service, "namespace": self._home, "port": at.webhook_port}
            client_config["service"] |= own
            if not self.recipe.own_certificate:
                bundle = base64.b64encode(self._plane.authority.bundle)
                client_config["caBundle"] = bundle.decode()
        return placed

    def _apply(self, objects: list[Any]) -> None:
        items = json.dumps({"kind": "List", "apiVersion": "v1", "items": objects})
        if objects:
            apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
            self._plane.kubectl(*apply, input=items)

    def _wait_for_kinds(self, objects: list[Any]) -> None:
        kinds = [
            f"crd/{each['metadata']['name']}"
            for each in objects
            if each["kind"] == "CustomResourceDefinition"
        ]
        wait = ("wait", "--for=condition=Established", TIMEOUT, *kinds)
        eventually(lambda: self._plane.kubectl(*wait), what=f"the kinds of {self.recipe.name}")

    def _start(self, installed: list[Any], at: Locations) -> None:
        pod = self._deployment(installed)["spec"]["template"]["spec"]
        token = self._plane.token(pod["serviceAccountName"], self._home)
        at = replace(at, kubeconfig=self._plane.kubeconfig_for(token))
        if self.recipe.service and not self.recipe.own_certificate:
            host = f"{self.recipe.service}.{self._home}.svc"
            pair = self._plane.authority.issue(self.recipe.name, hosts=[host])
            folder_of(pair, at.certificates)
        command = [str(self._program), *self.recipe.arguments(at)]
        if self.recipe.settings:
            command.append(f"--config={self._settings_file(installed, at)}")
        environment = {
            "PATH": os.defpath,
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "KUBECONFIG": str(at.kubeconfig),
            **self._variables(pod),
            "POD_NAMESPACE": self._home,
        }
        self._processes.start(self.recipe.name, command, environment)
        if self.recipe.own_certificate:
            self._mount_secret(at.certificates)
        webhook = (at.webhook_host, at.webhook_port)
        awaited = webhook if self.recipe.service else (HOST, at.health)

        def listens() -> bool:
            self._processes.check()
            return not is_free(*awaited)

        eventually(listens, what=f"{self.recipe.name} listens")

    def _deployment(self, installed: list[Any]) -> Any:
        """The Deployment of the program."""
        [found] = [
            each
            for each in installed
            if each["kind"] == "Deployment"
            and self.recipe.deployment in ("", each["metadata"]["name"])
        ]
        return found

    def _variables(self, pod: Any) -> dict[str, str]:
        """The variables of the program's container, as far as they are known without a pod."""
        fields = {"metadata.namespace": self._home, "metadata.name": self.recipe.name}
        found = {}
        for each in pod["containers"][0].get("env", []):
            path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            found[each["name"]] = each.get("value", fields.get(path, ""))
        return found

    def _mount_secret(self, folder: Path) -> None:
        """Write the Secret into its folder once it has a certificate, as the kubelet does."""

        def get_data() -> dict[str, str]:
            self._processes.check()
            get = ("get", f"secret/{self.recipe.own_certificate}", "-n", self._home, "-o", "json")
            found: dict[str, str] = json.loads(self._plane.kubectl(*get).stdout).get("data", {})
            return found

        data = eventually(get_data, what=f"{self.recipe.name} makes its certificate")
        folder.mkdir(parents=True)
        for name, content in data.items():
            (folder / name).write_bytes(base64.b64decode(content))

    def _settings_file(self, installed: list[Any], at: Locations) -> Path:
        [settings] = [
            text
            for each in installed
            if each["kind"] == "ConfigMap"
            for name, text in each["data"].items()
            if name == "controller_manager_config.yaml"
        ]
        assert self.recipe.settings
        merged = _merged(yaml.safe_load(settings), self.recipe.settings(at))
        file = self._folder / "settings.json"
        file.write_text(json.dumps(merged), encoding="utf-8")
        return file


def _without_pods(deployment: Any) -> Any:
    """The same Deployment, of which nothing is made."""
    return {**deployment, "spec": {**deployment["spec"], "paused": True}}


def _webhook_clients(given: Any) -> list[dict[str, Any]]:
    """The `clientConfig` of each webhook in a configuration or a definition of a kind."""
    if given["kind"] in WEBHOOKS:
        return [entry["clientConfig"] for entry in given.get("webhooks", [])]
    conversion = given.get("spec", {}).get("conversion", {})
    found = conversion.get("webhook", {}).get("clientConfig")
    return [found] if found else []


CLUSTER_WIDE = (
    *WEBHOOKS,
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
)


def _with_namespace(given: Any, namespace: str) -> Any:
    metadata = given["metadata"]
    if given["kind"] not in CLUSTER_WIDE and metadata.get("namespace") in (None, "system"):
        given["metadata"] = {**metadata, "namespace": namespace}
    for subject in given.get("subjects", []):
        if subject.get("namespace", "system") == "system":
            subject["namespace"] = namespace
    return given


def _merged(given: Any, changes: Any) -> Any:
    """`given` with the keys of `changes`, also those of maps in it."""
    if not isinstance(given, dict) or not isinstance(changes, dict):
        return changes
    return {**given, **{key: _merged(given.get(key), value) for key, value in changes.items()}}
