"""The first line of `gpuward doctor` in each state of an installation, on a real API server."""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from certs.authority import service_names, sign_leaf
from certs.keypairs import KeyPair
from certs.secrets import decode
from certs.validity import utc_now
from cluster.api.errors import ConfigurationKind
from cluster.doctor.cli import main as doctor
from policies.loading import default_policy
from rules.finding import Action
from tests.testkit.certs.authorities import foreign_authority
from tests.testkit.chart import certificate_modes
from tests.testkit.chart.installation import ADMISSION, SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.registration import MODE_LABEL, RegistrationOptions

pytest_plugins = ["tests.testkit.chart.fixtures"]

MUTATING, VALIDATING = ConfigurationKind.MUTATING, ConfigurationKind.VALIDATING
DENY = merge_values(SLOW_MACHINE, {"mode": "deny"})
FAIL = merge_values(DENY, {"registration": {"failurePolicy": "Fail"}})
REFUSED = r"guarded: pods are refused in \d+ namespaces? \(mode deny\)"
REFUSED_NOW = r"guarded now: pods are refused in \d+ namespaces? \(mode deny\); but wrong: "
ADMITTED = "not guarded: pods that should be refused are admitted in "
BLOCKED = (
    "not guarded: the API server gets no answer from gpuward, so it refuses every pod that may "
    "concern it in "
)
NOT_KNOWN = "not known whether the cluster is guarded: "
FirstLine = Callable[..., str]
State = Callable[[Installation], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def installed(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    # Helm 4 would conflict with what the states change by hand.
    with Installation(chart_plane, kubelet, "helm3") as installation:
        # Those that tests before have left would have modes of their own.
        chart_plane.kubectl("label", "namespaces", "--all", f"{MODE_LABEL}-")
        installation.install(DENY)
        installation.publish_ca_bundle()
        with ready_endpoint(installation):
            yield installation


@contextmanager
def ready_endpoint(installation: Installation) -> Iterator[None]:
    """As in a cluster: pods of tests have loopback addresses, which no EndpointSlice may have."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{installation.namespace}/endpointslices"
    labels = {"kubernetes.io/service-name": "gpuward"}
    ready = {"addresses": ["192.0.2.1"], "conditions": {"ready": True}}
    made = {"metadata": {"name": "made", "labels": labels}, "addressType": "IPv4"}
    installation.plane.create(path, {**made, "endpoints": [ready], "ports": [{"port": 8443}]})
    try:
        yield
    finally:
        installation.plane.request("DELETE", f"{path}/made")


@pytest.fixture
def first_line(
    installed: Installation, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> FirstLine:
    """The first line. Calls that failed in states before do not count."""
    kubeconfig = ["--kubeconfig", str(installed.plane.kubeconfig)]
    doctor([*kubeconfig, "--no-dry-run", "-o", "json"])
    report = tmp_path / "doctor.json"
    report.write_text(capsys.readouterr().out, encoding="utf-8")

    def printed(*options: str) -> str:
        doctor([*kubeconfig, "--since-report", str(report), *options])
        return capsys.readouterr().out.splitlines()[0]

    return printed


def wait_for(first_line: FirstLine, pattern: str, *options: str) -> None:
    """Until the first line begins as `pattern` says: API servers see changes a little later."""
    seen = [""]

    def is_seen() -> bool:
        seen[0] = first_line(*options)
        return re.match(pattern, seen[0]) is not None

    try:
        eventually(is_seen, seconds=120, what=pattern)
    except TimeoutError as error:
        raise TimeoutError(f"{pattern!r} does not match {seen[0]!r}") from error


def path_of(kind: ConfigurationKind) -> str:
    return f"{ADMISSION}/{kind.value}/gpuward"


def new_copy(manifest: Any) -> Any:
    """An object without what the API server has written into its metadata."""
    metadata = {key: manifest["metadata"].get(key, {}) for key in ("labels", "annotations")}
    return {**manifest, "metadata": {**metadata, "name": manifest["metadata"]["name"]}}


@contextmanager
def deleted(plane: ControlPlane, path: str) -> Iterator[None]:
    """The object at `path` does not exist."""
    before = plane.request("GET", path).body
    assert plane.request("DELETE", path).status == 200
    try:
        yield
    finally:
        plane.create(path.rpartition("/")[0], new_copy(before))


@contextmanager
def changed(plane: ControlPlane, path: str, change: Callable[[Any], None]) -> Iterator[None]:
    """The object at `path` is as `change` makes it."""
    before = plane.request("GET", path).body
    copy = json.loads(json.dumps(before))
    change(copy)
    replace(plane, path, copy)
    try:
        yield
    finally:
        replace(plane, path, before)


def replace(plane: ControlPlane, path: str, manifest: Any) -> None:
    def is_replaced() -> bool:
        """A controller may change it in between."""
        version = plane.request("GET", path).body["metadata"]["resourceVersion"]
        manifest["metadata"]["resourceVersion"] = version
        answer = plane.request("PUT", path, manifest)
        assert answer.status == 200, answer
        return True

    eventually(is_replaced, what=f"{path} is replaced")


@contextmanager
def scaled(installation: Installation, deployment: str) -> Iterator[None]:
    """A Deployment has no replicas."""
    scale = ("scale", f"deployment/{deployment}", "-n", installation.namespace)
    before = installation.get(f"deployment/{deployment}")["spec"]["replicas"]
    installation.plane.kubectl(*scale, "--replicas=0")
    component = deployment.removeprefix("gpuward-").replace("gpuward", "webhook")
    eventually(lambda: not installation.pods(component), what="no pod runs")
    try:
        yield
    finally:
        installation.plane.kubectl(*scale, f"--replicas={before}")
        status = ("rollout", "status", f"deployment/{deployment}", "-n", installation.namespace)
        installation.plane.kubectl(*status, TIMEOUT)


# The states.


@contextmanager
def healthy(_: Installation) -> Iterator[None]:
    yield


def validating_deleted(installation: Installation) -> AbstractContextManager[None]:
    return deleted(installation.plane, path_of(VALIDATING))


def mutating_deleted(installation: Installation) -> AbstractContextManager[None]:
    return deleted(installation.plane, path_of(MUTATING))


@contextmanager
def both_deleted(installation: Installation) -> Iterator[None]:
    with validating_deleted(installation), mutating_deleted(installation):
        yield


def empty(configuration: Any) -> None:
    for entry in configuration["webhooks"]:
        entry["clientConfig"].pop("caBundle")


@contextmanager
def empty_ca_bundles(installation: Installation, *kinds: ConfigurationKind) -> Iterator[None]:
    """Empty the bundles; no controller publishes them again."""
    (certs,) = installation.pods("certs")
    with ExitStack() as stack:
        stack.enter_context(certs.paused())
        for kind in kinds:
            stack.enter_context(changed(installation.plane, path_of(kind), empty))
        yield
    eventually(lambda: certs.ready, what="the certificate controller is ready again")


def without_ca_bundle(installation: Installation) -> AbstractContextManager[None]:
    return empty_ca_bundles(installation, *ConfigurationKind)


def one_without_ca_bundle(installation: Installation) -> AbstractContextManager[None]:
    return empty_ca_bundles(installation, VALIDATING)


@contextmanager
def never_certified(installation: Installation) -> Iterator[None]:
    """As long as the certificate controller has made no certificate: no replica can start."""
    plane = installation.plane
    with scaled(installation, "gpuward-certs"):
        for kind in ConfigurationKind:
            configuration = plane.request("GET", path_of(kind)).body
            empty(configuration)
            replace(plane, path_of(kind), configuration)
        for name in ("gpuward-ca", "gpuward-tls"):
            plane.request("DELETE", secret_path(installation, name))
        label = "--selector=app.kubernetes.io/component=webhook"
        plane.kubectl("delete", "pods", label, "-n", installation.namespace)
        yield
    status = ("rollout", "status", "deployment/gpuward", "-n", installation.namespace)
    plane.kubectl(*status, TIMEOUT)


def of_another_installation(installation: Installation) -> AbstractContextManager[None]:
    """Somebody has applied the chart a second time, for another namespace."""

    def call_another(configuration: Any) -> None:
        for entry in configuration["webhooks"]:
            entry["clientConfig"]["service"]["namespace"] = "elsewhere"

    return changed(installation.plane, path_of(VALIDATING), call_another)


def without_rights(installation: Installation) -> AbstractContextManager[None]:
    """The certificate controller may not write its Secrets and its Lease."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{installation.namespace}/rolebindings"
    return deleted(installation.plane, f"{roles}/gpuward-certs")


def service_deleted(installation: Installation) -> AbstractContextManager[None]:
    path = f"/api/v1/namespaces/{installation.namespace}/services/gpuward"
    return deleted(installation.plane, path)


def selects_nothing(installation: Installation) -> AbstractContextManager[None]:
    def select_nothing(configuration: Any) -> None:
        for entry in configuration["webhooks"]:
            entry["namespaceSelector"]["matchLabels"] = {"never": "x"}

    return changed(installation.plane, path_of(VALIDATING), select_nothing)


def no_replica(installation: Installation) -> AbstractContextManager[None]:
    return scaled(installation, "gpuward")


def no_certificate_controller(installation: Installation) -> AbstractContextManager[None]:
    return scaled(installation, "gpuward-certs")


@contextmanager
def hung(installation: Installation) -> Iterator[None]:
    """All replicas accept connections, and answer nothing within the timeout."""

    def hurry(configuration: Any) -> None:
        for entry in configuration["webhooks"]:
            entry["timeoutSeconds"] = 1

    with ExitStack() as stack:
        for kind in ConfigurationKind:
            stack.enter_context(changed(installation.plane, path_of(kind), hurry))
        for pod in installation.pods():
            stack.enter_context(pod.paused())
        yield


@contextmanager
def foreign_certificate(installation: Installation) -> Iterator[None]:
    """The certificate that is served is of an authority that API servers do not trust."""
    plane = installation.plane
    signer = certificate_modes.new_signer(installation)
    names = service_names(installation.release, installation.namespace)
    leaf = sign_leaf(signer, names, utc_now())
    (certs,) = installation.pods("certs")
    with certs.paused():
        try:
            with changed(plane, secret_path(installation, "gpuward-tls"), filling(leaf, "tls")):
                installation.restart()  # an open connection would go on
                yield
        finally:
            installation.restart()


@contextmanager
def expired_certificate(installation: Installation) -> Iterator[None]:
    """Nobody has renewed the certificate, and API servers connect again."""
    plane = installation.plane
    signer = decode(
        *(secret_data(installation, name) for name in ("gpuward-ca", "gpuward-tls"))
    ).signer
    assert signer
    names = service_names(installation.release, installation.namespace)
    leaf = sign_leaf(signer, names, utc_now(), datetime.timedelta(seconds=20))

    def trust_one_more(configuration: Any) -> None:
        """With another bundle, API servers do not use connections that are open."""
        more = foreign_authority(utc_now()).certificate_pem
        for entry in configuration["webhooks"]:
            bundle = base64.b64decode(entry["clientConfig"]["caBundle"]) + more
            entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()

    (certs,) = installation.pods("certs")
    with certs.paused(), ExitStack() as stack:
        path = secret_path(installation, "gpuward-tls")
        stack.enter_context(changed(plane, path, filling(leaf, "tls")))
        eventually(lambda: certificate_modes.is_served(installation, "self"), what="it is served")
        end = leaf.certificate.not_valid_after_utc
        eventually(lambda: utc_now() > end, what="it has expired")
        for kind in ConfigurationKind:
            stack.enter_context(changed(plane, path_of(kind), trust_one_more))
        yield


def foreign_authority_secret(installation: Installation) -> AbstractContextManager[None]:
    """Somebody has put a CA of their own into the Secret of gpuward's."""
    fill = filling(foreign_authority(utc_now()), "ca")
    return changed(installation.plane, secret_path(installation, "gpuward-ca"), fill)


def filling(pair: KeyPair, prefix: str) -> Callable[[Any], None]:
    """Return the change of a Secret that writes `pair` into it, as PREFIX.crt and PREFIX.key."""
    given = {f"{prefix}.crt": pair.certificate_pem, f"{prefix}.key": pair.key_pem}

    def fill(secret: Any) -> None:
        secret["data"] = {key: base64.b64encode(text).decode() for key, text in given.items()}

    return fill


def secret_path(installation: Installation, name: str) -> str:
    return f"/api/v1/namespaces/{installation.namespace}/secrets/{name}"


def secret_data(installation: Installation, name: str) -> dict[str, bytes]:
    found = installation.plane.request("GET", secret_path(installation, name)).body["data"]
    return {key: base64.b64decode(text) for key, text in found.items()}


@contextmanager
def policy(installation: Installation, *rules: str) -> Iterator[None]:
    """These rules are off."""
    off = "".join(f"  {rule}: {{action: 'off'}}\n" for rule in rules)
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\nrules:\n{off}"
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/gpuward-policy"

    def write(config_map: Any) -> None:
        config_map["data"]["gpuward.yaml"] = text

    with changed(installation.plane, path, write):
        yield


def rule_off(installation: Installation) -> AbstractContextManager[None]:
    return policy(installation, "visible-devices-env")


def all_rules_off(installation: Installation) -> AbstractContextManager[None]:
    return policy(installation, "visible-devices-env", "mig-admin-env", "nri-cdi-annotation")


@contextmanager
def unusable_policy(installation: Installation) -> Iterator[None]:
    """Gpuward goes by the earlier one."""

    def write(config_map: Any) -> None:
        config_map["data"]["gpuward.yaml"] = "kind: Polcy"

    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/gpuward-policy"
    with changed(installation.plane, path, write):
        yield


def policy_deleted(installation: Installation) -> AbstractContextManager[None]:
    """Gpuward goes by the earlier one."""
    config_maps = f"/api/v1/namespaces/{installation.namespace}/configmaps"
    return deleted(installation.plane, f"{config_maps}/gpuward-policy")


def policy_emptied(installation: Installation) -> AbstractContextManager[None]:
    """Gpuward goes by the earlier one."""
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/gpuward-policy"
    return changed(installation.plane, path, lambda config_map: config_map.pop("data"))


@contextmanager
def one_replica_killed(installation: Installation) -> Iterator[None]:
    """Kill one replica; the kubelet does not start it again, as while it backs off."""
    installation.pods()[0].kill()
    try:
        yield
    finally:
        installation.restart()


@contextmanager
def only_exported_policies(installation: Installation) -> Iterator[None]:
    """No webhook is registered; API servers evaluate the rules about bypasses themselves."""
    mode = {action.word: action for action in Action}[mode_of(installation)]
    excluded = (installation.namespace,)
    options = ExportOptions(RegistrationOptions(mode, excluded_namespaces=excluded))
    made = [
        each
        for each in policy_objects(default_policy(), options)
        if each["metadata"]["name"].startswith("gpuward-bypass-deny")
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    with both_deleted(installation):
        installation.plane.kubectl("apply", "--server-side", "-f", "-", input=text)
        try:
            yield
        finally:
            installation.plane.kubectl("delete", "-f", "-", input=text)


def mode_of(installation: Installation) -> str:
    """The mode that the release gives to namespaces without a label."""
    done = installation.helm("get values", "-o", "json")
    return str(json.loads(done.stdout)["mode"])


@contextmanager
def one_namespace_in_mode_deny(installation: Installation) -> Iterator[None]:
    name = installation.plane.namespace({MODE_LABEL: "deny"})
    try:
        yield
    finally:
        installation.plane.request("DELETE", f"/api/v1/namespaces/{name}")


@contextmanager
def no_pods_by_quota(installation: Installation) -> Iterator[None]:
    """A quota forbids pods in the namespaces that are tried."""
    plane = installation.plane
    listed = plane.request("GET", "/api/v1/namespaces").body["items"]
    paths = [
        f"/api/v1/namespaces/{item['metadata']['name']}/resourcequotas"
        for item in listed
        if item["status"]["phase"] == "Active"
    ]
    for path in paths:
        plane.create(path, {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}})
    try:
        yield
    finally:
        for path in paths:
            plane.request("DELETE", f"{path}/no-pods")


STATES_IN_MODE_DENY: list[tuple[State, str]] = [
    (healthy, f"{REFUSED}$"),
    (validating_deleted, f"{ADMITTED}.*; wrong: webhook, validatingwebhookconfigurations"),
    (mutating_deleted, f"{REFUSED_NOW}dry run, fix in [^ ]+: .* refused instead of fixed"),
    (both_deleted, "not guarded: gpuward is not installed"),
    (without_ca_bundle, f"{ADMITTED}.*; wrong: .*caBundle is empty"),
    (one_without_ca_bundle, f"{ADMITTED}.*; wrong: .*caBundle is empty"),
    (service_deleted, f"{ADMITTED}.*; wrong: "),
    (selects_nothing, f"{ADMITTED}.*; wrong: registration, gpuward"),
    (no_replica, f"{ADMITTED}.*; wrong: release, deployment/gpuward in .*: scaled to 0 replicas"),
    (hung, ADMITTED),
    (foreign_certificate, ADMITTED),
    (expired_certificate, f"{ADMITTED}.*; wrong: "),
    (never_certified, f"{ADMITTED}.*; wrong: .*caBundle is empty"),
    (of_another_installation, f"{ADMITTED}.*; wrong: .*service/gpuward in elsewhere: the Service"),
    (without_rights, f"{REFUSED_NOW}release, rolebinding/gpuward-certs in .*: it does not exist"),
    (
        foreign_authority_secret,
        f"{REFUSED_NOW}release, deployment/gpuward-certs in .*: no replica is available",
    ),
    (policy_deleted, f"{REFUSED_NOW}.*configmap/gpuward-policy in .*: it does not exist"),
    (policy_emptied, f"{REFUSED_NOW}policy, configmap/gpuward-policy in .*: it has no policy"),
    (no_certificate_controller, f"{REFUSED_NOW}release, deployment/gpuward-certs in "),
    (rule_off, f"{REFUSED}$"),
    (all_rules_off, f"{NOT_KNOWN}mode deny, in [^ ]+: .*as the policy says"),
    (
        unusable_policy,
        f"{REFUSED_NOW}policy, configmap/gpuward-policy in .*: gpuward cannot use it",
    ),
    (one_replica_killed, f"{REFUSED_NOW}release, deployment/gpuward in .*: 1 of 2 replicas are"),
    (only_exported_policies, f"{REFUSED_NOW}webhook, mutatingwebhookconfigurations: none is"),
    (no_pods_by_quota, f"{REFUSED}$"),
]


@pytest.mark.parametrize(
    ("state", "line"), STATES_IN_MODE_DENY, ids=lambda value: getattr(value, "__name__", None)
)
def test_the_first_line_in_mode_deny(
    installed: Installation, first_line: FirstLine, state: State, line: str
) -> None:
    with state(installed):
        wait_for(first_line, line)
    wait_for(first_line, "guarded")


def test_without_dry_runs_it_is_not_known(first_line: FirstLine) -> None:
    wait_for(first_line, re.escape(f"{NOT_KNOWN}no pod was tried (--no-dry-run)"), "--no-dry-run")


def test_without_the_right_to_create_pods_it_is_not_known(
    installed: Installation, first_line: FirstLine
) -> None:
    plane, account = installed.plane, f"{installed.namespace}:default"
    plane.kubectl("create", "clusterrole", "reads", "--verb=get,list", "--resource=*.*")
    plane.kubectl("create", "clusterrolebinding", "reads", "--clusterrole=reads")
    try:
        plane.kubectl("set", "subject", "clusterrolebinding/reads", f"--serviceaccount={account}")
        token = plane.token("default", installed.namespace)
        line = f'{NOT_KNOWN}mode deny, in [^ ]+: .* cannot create resource "pods"'
        wait_for(first_line, line, "--kubeconfig", str(plane.kubeconfig_for(token)))
    finally:
        plane.kubectl("delete", "clusterrole,clusterrolebinding", "reads")


STATES_WITH_FAIL: list[tuple[State, str]] = [
    (healthy, f"{REFUSED}$"),
    (without_ca_bundle, BLOCKED),
    (service_deleted, BLOCKED),
    (no_replica, BLOCKED),
    (hung, BLOCKED),
    (expired_certificate, BLOCKED),
    (validating_deleted, ADMITTED),
]


@pytest.fixture(scope="module")
def failing_closed(installed: Installation) -> Installation:
    installed.upgrade(FAIL)
    return installed


@pytest.mark.parametrize(
    ("state", "line"), STATES_WITH_FAIL, ids=lambda value: getattr(value, "__name__", None)
)
def test_the_first_line_with_failure_policy_fail(
    failing_closed: Installation, first_line: FirstLine, state: State, line: str
) -> None:
    with state(failing_closed):
        wait_for(first_line, line)
    wait_for(first_line, "guarded")


STATES_BELOW: list[tuple[str, State, str]] = [
    ("warn", healthy, r"no namespace has mode deny; users are warned in \d+ namespaces? \(mode"),
    ("warn", only_exported_policies, r"no namespace has mode deny; users are warned in \d+ namesp"),
    ("warn", validating_deleted, r"users are not warned in .*\(mode warn\)"),
    ("warn", no_pods_by_quota, r"no namespace has mode deny; not known what happens in \d+"),
    (
        "audit",
        healthy,
        r"no namespace has mode deny; findings are only recorded in \d+ namespaces?",
    ),
    ("audit", no_replica, r"gpuward records nothing in .*\(mode audit\)"),
    ("off", healthy, "no namespace is sent to gpuward"),
]


def test_the_first_line_says_what_each_mode_does(
    installed: Installation, first_line: FirstLine
) -> None:
    installed.upgrade(merge_values(SLOW_MACHINE, {"mode": "warn"}))
    with one_namespace_in_mode_deny(installed):
        refused = r"guarded: pods are refused in 1 namespace \(mode deny\), "
        wait_for(first_line, rf"{refused}users are warned in \d+ namespaces? \(mode warn\)$")


@pytest.mark.parametrize(
    ("mode", "state", "line"),
    STATES_BELOW,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_first_line_below_mode_deny(
    installed: Installation, first_line: FirstLine, mode: str, state: State, line: str
) -> None:
    installed.upgrade(merge_values(SLOW_MACHINE, {"mode": mode}))
    with state(installed):
        wait_for(first_line, f"not guarded: {line}")
