"""Check whether the webhook works: send a sample review to every entry, as API servers do."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from certs.validity import expires_soon, expiry_text, utc_now
from cluster.api.errors import ClusterError, ConfigurationRef, Object
from cluster.webhooks.comparison import Expectation, differences
from cluster.webhooks.webhook_client import (
    Address,
    CallError,
    ConnectionClosedError,
    Reply,
    Target,
    UnknownNameError,
    UnreachableError,
    UntrustedError,
    Validity,
    peer_validity,
    post,
)
from terminal import DOCS_URL
from webhook.registration import WEBHOOK_NAME_SUFFIX

# Hints for a check that fails.

MISSING_HINT = (
    "gpuward is not installed, has another name here, or was removed by hand: "
    "`helm upgrade` creates the configurations again."
)
CLIENT_CERTIFICATE = (
    "Does the server demand a client certificate (clientCAConfigMap in the chart's values)? "
    "This command has none; add --tls-only."
)
_MODES = "Who makes certificate and caBundle, certificates.mode of the chart's values says"
_LABEL = "app.kubernetes.io/component"


def hint_for_changed(refs: Iterable[ConfigurationRef]) -> str:
    """Return what to do if configurations of `refs` are not what the release should have."""
    names = " ".join(f"{ref.kind.value}/{ref.name}" for ref in refs)
    return (
        "Somebody has changed the configurations. To see who did:\n"
        f"  kubectl get {names} -o yaml --show-managed-fields\n"
        "To undo it, delete them and run `helm upgrade` with the values of the release, which "
        "creates\nthem again. `helm upgrade` alone does not remove what somebody has added:\n"
        f"  kubectl delete {names}"
    )


def hint_after_error(error: CallError, target: Target) -> str:
    """Return what to do after `error` of a call to `target`."""
    if isinstance(error, UntrustedError):
        return hint_about_certificate(target)
    if isinstance(error, UnknownNameError):
        return _unknown_name(target)
    if isinstance(error, UnreachableError):
        return _unreachable(target)
    if isinstance(error, ConnectionClosedError):
        return CLIENT_CERTIFICATE
    return _unexpected_answer(target)


def hint_about_certificate(target: Target) -> str:
    """Return what to do if certificate or caBundle is missing, has expired or does not match."""
    if target.service is None:
        return f"{_MODES} ({DOCS_URL}/certificates.md)."
    namespace = target.service[0]
    return (
        f"{_MODES}:\n"
        f"  self            kubectl logs -n {namespace} -l {_LABEL}=certs\n"
        f"  certManager     kubectl describe certificate -n {namespace}\n"
        "  existingSecret  put a new certificate into your Secret, and its CA into "
        "certificates.caBundle"
    )


def _unexpected_answer(target: Target) -> str:
    if target.service is None:
        return "Is it gpuward that answers at this URL?"
    namespace, name = target.service
    slices = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}"
    return f"Is it gpuward that answers? The pods behind the Service:\n  {slices}"


def _unknown_name(target: Target) -> str:
    if target.service is None:
        return "API servers and this machine must be able to resolve the name in the URL."
    namespace, name = target.service
    forward = f"kubectl port-forward -n {namespace} service/{name} 8443:{target.port}"
    return (
        "Names of Services are known only inside the cluster. From outside, leave this running\n"
        f"  {forward}\nand add --address 127.0.0.1:8443"
    )


def _unreachable(target: Target) -> str:
    text = "Are its pods ready? Does a network policy or a firewall block the connection?"
    return f"{text} {_kubectl_hint(target, 'get pods', 'webhook')}".rstrip()


def _kubectl_hint(target: Target, command: str, component: str) -> str:
    if target.service is None:
        return ""
    return f"See\n  kubectl {command} -n {target.service[0]} -l {_LABEL}={component}"


Get = Callable[[ConfigurationRef], Object | None]
"""Returns a webhook configuration; None if it does not exist. Raises ClusterError."""
Probe = Callable[[Target], tuple[str, Validity]]
"""Calls a target; returns the outcome in words and its certificate's validity; or CallError."""
_MAX_CONNECTIONS = 8
_RETRY_SECONDS = 1.0


class Entry(NamedTuple):
    """One webhook of a configuration, as far as its calls are concerned."""

    name: str
    target: Target
    failure_policy: str
    timeout_seconds: int


class CheckResult(NamedTuple):
    """The result for `subject`, and if it is not `ok` or has a `warning`, a hint what to do."""

    subject: str
    message: str
    ok: bool = True
    hint: str = ""
    warning: str = ""


class CheckReport(NamedTuple):
    """All results, and the entries that were checked."""

    results: Sequence[CheckResult]
    entries: Sequence[Entry]

    @property
    def ok(self) -> bool:
        """Return whether the webhook works."""
        return all(result.ok for result in self.results)


def check(
    get: Get, probe: Probe, refs: Iterable[ConfigurationRef], expectation: Expectation | None = None
) -> CheckReport:
    """Read each configuration, and call each target that one of them names once.

    Each configuration is compared with the one in `expectation`, if it is given.
    """
    results: list[CheckResult] = []
    entries: list[Entry] = []
    refs = list(refs)
    for ref in refs:
        try:
            configuration = get(ref)
        except ClusterError as error:
            results.append(CheckResult(_subject(ref), f"cannot be read: {error}", ok=False))
            continue
        if expectation is not None:
            results += _compare(ref, expectation.get(ref), configuration, hint_for_changed(refs))
        entries_or_error = _read_entries(ref, configuration)
        if isinstance(entries_or_error, CheckResult):
            results.append(entries_or_error)
        else:
            entries += entries_or_error
    targets = list(dict.fromkeys(entry.target for entry in entries))
    with ThreadPoolExecutor(_MAX_CONNECTIONS) as pool:
        results += pool.map(lambda target: _check_target(probe, target), targets)
    return CheckReport(results, entries)


def retry_until_ok(
    run: Callable[[], CheckReport], seconds: float, on_failure: Callable[[CheckReport], None]
) -> CheckReport:
    """The first report that is ok, or the last one after `seconds`.

    `on_failure` is called with every other report.
    """
    deadline = time.monotonic() + seconds
    while not (report := run()).ok and time.monotonic() < deadline:
        on_failure(report)
        time.sleep(_RETRY_SECONDS)
    return report


def summary(entries: Sequence[Entry]) -> str:
    """Return how many webhooks there are, and what API servers do if they do not answer."""
    policies = Counter(entry.failure_policy for entry in entries)
    timeouts = sorted({entry.timeout_seconds for entry in entries})
    failure_policies = " and ".join(f"{policy} for {n}" for policy, n in sorted(policies.items()))
    seconds = " or ".join(str(timeout) for timeout in timeouts)
    return f"{len(entries)} webhooks; failurePolicy {failure_policies}; timeoutSeconds {seconds}"


def _compare(
    ref: ConfigurationRef, expected: Object | None, found: Object | None, hint: str
) -> Iterator[CheckResult]:
    subject = _subject(ref)
    if expected is None:
        yield CheckResult(subject, "it is not in the file of --expected", ok=False)
    elif found is not None:  # that it is missing is reported anyway
        changes = differences(expected, found)
        for change in changes:
            yield CheckResult(subject, change, ok=False, hint=hint)
        if not changes:
            yield CheckResult(subject, "is what this release should have")


def _subject(ref: ConfigurationRef) -> str:
    return f"{ref.kind.value}/{ref.name}"


def _read_entries(ref: ConfigurationRef, configuration: Object | None) -> list[Entry] | CheckResult:
    """The entries of a configuration, or why there are none."""
    subject = _subject(ref)
    webhooks = (configuration or {}).get("webhooks") or []
    if not webhooks:
        message = "it does not exist" if configuration is None else "it contains no webhook"
        return CheckResult(subject, message, ok=False, hint=MISSING_HINT)
    if foreign := [w["name"] for w in webhooks if not w["name"].endswith(WEBHOOK_NAME_SUFFIX)]:
        message = f"not gpuward's, so it is not called: it contains the webhook {foreign[0]}"
        return CheckResult(subject, message, ok=False)
    return [_entry(webhook) for webhook in webhooks]


def _entry(webhook: Object) -> Entry:
    policy, seconds = webhook["failurePolicy"], webhook["timeoutSeconds"]
    return Entry(webhook["name"], _target(webhook["clientConfig"]), policy, seconds)


def _target(client_config: Object) -> Target:
    bundle = client_config.get("caBundle", "")
    if service := client_config.get("service"):
        namespace, name = service["namespace"], service["name"]
        path = service.get("path") or "/"
        return Target(
            host=f"{name}.{namespace}.svc",
            port=service["port"],
            path=path,
            bundle=bundle,
            service=(namespace, name),
        )
    url = urlsplit(client_config["url"])
    return Target(
        host=url.hostname or "",
        port=url.port or 443,
        path=url.path or "/",
        bundle=bundle,
        service=None,
    )


def _check_target(probe: Probe, target: Target) -> CheckResult:
    if not target.bundle:
        message = "caBundle is empty, so API servers do not trust the webhook"
        return CheckResult(target.url, message, ok=False, hint=hint_about_certificate(target))
    try:
        message, validity = probe(target)
    except CallError as error:
        return CheckResult(target.url, str(error), ok=False, hint=hint_after_error(error, target))
    message = f"{message}; certificate until {validity.end:%Y-%m-%d %H:%M} UTC"
    now = utc_now()
    if not expires_soon(*validity, now):
        return CheckResult(target.url, message)
    hint = hint_about_certificate(target)
    warning = f"its certificate {expiry_text(validity.end, now)}"
    return CheckResult(target.url, message, hint=hint, warning=warning)


# The sample review, and the response to it.

SAMPLE = "gpuward-check"
"""The name of the sample pod, of its namespace and user, as in the webhook's log."""
_VERSION = "admission.k8s.io/v1"
_REFUSING_PATH = "/validate/deny"
_EXCERPT_LENGTH = 200  # characters of an unexpected response


class NotGpuwardError(CallError):
    """The response does not come from gpuward."""


def send_sample(target: Target, address: Address | None = None) -> tuple[str, Validity]:
    """Send the sample; returns the outcome in words and the certificate's validity. CallError."""
    uid = str(uuid.uuid4())
    reply = post(target, _review(uid), address)
    return _interpret(target.path, reply, uid), reply.validity


def check_certificate(target: Target, address: Address | None = None) -> tuple[str, Validity]:
    """Only connect; returns this in words and the certificate's validity. Raises CallError."""
    return "only its certificate was checked", peer_validity(target, address)


def _review(uid: str) -> bytes:
    """The review of a pod that takes every GPU of its node without requesting one."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    container = {"name": "main", "image": "registry.example.com/sample", "env": [variable]}
    metadata = {"name": SAMPLE, "namespace": SAMPLE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        **metadata,
        "operation": "CREATE",
        "userInfo": {"username": SAMPLE},
        "object": pod,
        "oldObject": None,
        "dryRun": True,
    }
    review = {"apiVersion": _VERSION, "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def _interpret(path: str, reply: Reply, uid: str) -> str:
    """The outcome in words; NotGpuwardError if gpuward cannot have sent this response."""
    if reply.status != HTTPStatus.OK:
        raise NotGpuwardError(f"HTTP {reply.status}: {_excerpt(reply.body)}")
    response = _response(reply.body)
    if response.get("uid") != uid:
        raise NotGpuwardError("the response is to another request: its uid differs")
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise NotGpuwardError("the response neither allows nor refuses")
    if not path.endswith(_REFUSING_PATH):
        if not allowed:
            raise NotGpuwardError("it refuses the sample on a path that refuses nothing")
        return "answers"
    if not allowed:
        return "answers, and refuses the sample"
    return "answers; note: the policy allows a pod that takes every GPU without requesting one"


def _response(body: bytes) -> dict[str, Any]:
    try:
        review = json.loads(body)
        is_review = (review["apiVersion"], review["kind"]) == (_VERSION, "AdmissionReview")
        response = review["response"] if is_review else None
    except (ValueError, KeyError, TypeError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise NotGpuwardError(f"the response is no AdmissionReview: {_excerpt(body)}")
    return response


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:_EXCERPT_LENGTH].decode(errors="replace").split())
    return "".join(c if c.isprintable() else "?" for c in text) or "(nothing)"
