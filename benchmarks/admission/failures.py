"""Measure what failures cost: pods refused, or admitted without evaluation, while they last.

Two replicas of the chart run on the control plane of the tests, as in docs/tour.md, and threads
create pods as dry runs: half of them must be fixed, the others refused. After a fifth of the pods
comes the failure. It needs root, because the chart's Service has port 443.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import os
import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, NamedTuple

from certs.authority import LEAF_LIFETIME, new_authority, service_names, sign_leaf
from tests.testkit.admission.fault_installation import now
from tests.testkit.admission.fault_load import REFUSED_POD, Load, counts, is_refused
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.by_hand import start
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT

HOME = "gpuward-system"
SECRET = "certificate"  # noqa: S105  # its name
REPLICAS = 2  # as the chart installs
WEBHOOK = ("-n", HOME, "-l", "app.kubernetes.io/component=webhook")


class Setup:
    """An installation in mode deny; the load runs in `namespace`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = plane.namespace()
        plane.create("/api/v1/namespaces", {"metadata": {"name": HOME}})
        self._names = service_names("gpuward", HOME)
        self._authority = new_authority(self._names, now())
        self.put_certificate()

    def put_certificate(self, lifetime: datetime.timedelta = LEAF_LIFETIME) -> str:
        """Write a new certificate into the Secret of the chart, and return it as PEM."""
        pair = sign_leaf(self._authority, self._names, now(), lifetime)
        files = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        self.plane.kubectl("apply", "-n", HOME, "-f", "-", input=json.dumps(secret))
        return pair.certificate_pem.decode()

    def wait_until_served(self, certificate: str) -> None:
        """Wait until new connections get `certificate` (PEM) from every replica."""
        service = json.loads(
            self.plane.kubectl("get", "service/gpuward", "-n", HOME, "-o", "json").stdout
        )
        address = service["spec"]["clusterIP"]

        def is_served() -> bool:
            # The replicas get the connections in turn.
            shown = {ssl.get_server_certificate((address, 443)) for _ in range(3 * REPLICAS)}
            return shown == {certificate}

        eventually(is_served, what="every replica has loaded the certificate")

    def install(self, policy: str, *, healing: bool) -> None:
        """Install or upgrade the chart, and wait until pods are refused and fixed.

        With `healing`, gpuward makes the certificates and creates deleted configurations again.
        """
        certificates = {
            "mode": "existingSecret",
            "existingSecret": {"name": SECRET},
            "caBundle": self._authority.certificate_pem.decode(),
        }
        registration: dict[str, Any] = {"failurePolicy": policy}
        values = {"mode": "deny", "registration": registration, "certificates": certificates}
        if healing:
            registration["repair"], values["certificates"] = True, {"mode": "self"}
        given = ("upgrade", "--install", "gpuward", str(ROOT / "charts" / "gpuward"), "-n", HOME)
        # Between the two, Helm becomes the writer of caBundle or ceases to be it.
        forced = ("--server-side=true", "--force-conflicts")
        waits = ("--wait", "--timeout=120s", "--values", "-")
        done = self.plane.run("helm4", *given, *forced, *waits, input=json.dumps(values))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        self.settle()

    def settle(self) -> None:
        """Wait until two replicas are ready and the API server calls them."""
        target = ("rollout", "status", "deployment/gpuward", "-n", HOME, "--timeout=100s")
        self.plane.kubectl(*target)
        eventually(lambda: len(self.replicas()) == REPLICAS, what="two replicas are ready")
        eventually(
            lambda: is_refused(create(self.plane, self.namespace, REFUSED_POD, dry_run=True)),
            what="the webhook is called",
        )

    def replicas(self) -> list[Any]:
        """The ready pods of the webhook."""
        found = json.loads(self.plane.kubectl("get", "pods", *WEBHOOK, "-o", "json").stdout)
        return [
            pod
            for pod in found["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("containerStatuses", [{}])[0].get("ready")
        ]


HEADER = "failure   policy   threads   pods  calls  failed       %  refused  unevaluated  seconds"


class Row(NamedTuple):
    """One measurement: calls to the webhook, and pods that went wrong because a call failed.

    `seconds` is how long the failure lasted, if the function that causes it waits for its end.
    """

    failure: str
    policy: str
    threads: int
    pods: int
    calls: float
    failed: float
    refused: int
    not_evaluated: int
    reasons: Counter[str]
    seconds: float

    def __str__(self) -> str:
        share = 100 * self.failed / self.calls
        load = f"{self.failure:<9} {self.policy:<7} {self.threads:>8} {self.pods:>6}"
        failed = f"{self.calls:>6.0f} {self.failed:>7.0f} {share:>7.2f}"
        return f"{load} {failed} {self.refused:>8} {self.not_evaluated:>12} {self.seconds:>8.1f}"


def kill(setup: Setup) -> None:
    """Kill -9 of one replica of two; its container is restarted."""
    container = setup.replicas()[0]["status"]["containerStatuses"][0]
    os.kill(int(container["containerID"].removeprefix("process://")), signal.SIGKILL)


def restart(setup: Setup) -> None:
    """A rolling restart."""
    setup.plane.kubectl("rollout", "restart", "deployment/gpuward", "-n", HOME)
    setup.plane.kubectl("rollout", "status", "deployment/gpuward", "-n", HOME, "--timeout=100s")


def renew(setup: Setup) -> None:
    """The serving certificate is replaced."""
    setup.wait_until_served(setup.put_certificate())


def drain(setup: Setup) -> None:
    """One node of two is drained."""
    node = setup.replicas()[0]["spec"]["nodeName"]
    setup.plane.kubectl("drain", node, "--ignore-daemonsets", "--force", "--timeout=100s")
    setup.plane.kubectl("uncordon", node)


def expire(setup: Setup) -> None:
    """The serving certificate expires, and ten seconds later there is a good one."""
    end = time.monotonic() + SHORT.total_seconds()
    setup.wait_until_served(setup.put_certificate(SHORT))
    time.sleep(max(0.0, end - time.monotonic()) + 10)
    setup.wait_until_served(setup.put_certificate())


def overwrite(setup: Setup) -> None:
    """Replace a configuration by one without caBundle, as a user does with `kubectl replace`."""
    found = setup.plane.request("GET", VALIDATING).body
    for webhook in found["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    _request(setup, "PUT", found)
    _wait_until_trusted(setup)


def delete(setup: Setup) -> None:
    """Delete a configuration, as a user may."""
    _request(setup, "DELETE")
    _wait_until_trusted(setup)


def _request(setup: Setup, method: str, body: Any = None) -> None:
    # Not by kubectl, which takes as long as the failure lasts.
    answer = setup.plane.request(method, VALIDATING, body)
    if answer.status != HTTPStatus.OK:
        raise RuntimeError(f"{method} {VALIDATING}: {answer}")


def _wait_until_trusted(setup: Setup) -> None:
    def is_trusted() -> bool:
        webhooks = setup.plane.request("GET", VALIDATING).body.get("webhooks", [{}])
        return all(each.get("clientConfig", {}).get("caBundle") for each in webhooks)

    eventually(is_trusted, what="the configuration is there and has its caBundle")


def lose_policy(setup: Setup) -> None:
    """Delete the policy, as a user may, and then replace all pods."""
    setup.plane.kubectl("delete", "configmap", "gpuward-policy", "-n", HOME)
    restart(setup)


VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuward"


def nothing(_setup: Setup) -> None:
    """Nothing fails."""


FAILURES: dict[str, Callable[[Setup], None]] = {
    "none": nothing,
    "kill": kill,
    "restart": restart,
    "renew": renew,
    "drain": drain,
    "expire": expire,
    "no-policy": lose_policy,
    "overwrite": overwrite,
    "delete": delete,
}
HEALED = ("overwrite", "delete")
"""Failures that gpuward itself ends, with `registration.repair` and certificates of its own."""
# Long enough for every replica to load it
SHORT = datetime.timedelta(seconds=30)


def measure(setup: Setup, failure: str, policy: str, threads: int, pods: int) -> Row:
    """Create the pods, with the failure after a fifth of them."""
    before = counts(setup.plane)
    with Load(setup.plane, setup.namespace, threads=threads) as load:
        load.wait_for_answers(pods // 5)
        began = time.monotonic()
        FAILURES[failure](setup)
        seconds = time.monotonic() - began
        while load.answered < pods:
            time.sleep(0.05)
    counted = counts(setup.plane).since(before)
    refused, not_evaluated = load.lost
    reasons: Counter[str] = Counter()
    for (_, message), number in load.failures.items():
        reasons[message.rpartition(": ")[2]] += number
    setup.settle()
    return Row(
        failure=failure,
        policy=policy,
        threads=threads,
        pods=load.answered,
        calls=counted.calls,
        failed=counted.failed + counted.failed_open,
        refused=refused,
        not_evaluated=not_evaluated,
        reasons=reasons,
        seconds=seconds,
    )


def main() -> int:
    """Run the measurements, print them, and return 0."""
    options = _options()
    with ExitStack() as stack:
        setup = Setup(start(stack))
        sys.stdout.write(HEADER + "\n")
        for policy in options.policy:
            for failure in options.failures:
                for threads in options.threads:
                    setup.install(policy, healing=failure in HEALED)
                    row = measure(setup, failure, policy, threads, options.pods)
                    sys.stdout.write(f"{row}\n")
                    for reason, number in row.reasons.most_common(5):
                        sys.stdout.write(f"{'':11}{number:>4} {reason}\n")
                    sys.stdout.flush()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("failures", nargs="*", default=[*FAILURES], choices=[*FAILURES])
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--threads", type=int, nargs="*", default=[8, 50])
    parser.add_argument("--policy", nargs="*", default=["Fail", "Ignore"])
    return parser.parse_args()
