"""What to do if a check of the webhook fails."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.protocols import ConfigurationRef
from cluster.webhooks.webhook_client import (
    CallError,
    ConnectionClosedError,
    Target,
    UnknownNameError,
    UnreachableError,
    UntrustedError,
)

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
    """What to do if configurations of `refs` are not what the release should have."""
    names = " ".join(f"{ref.kind.value}/{ref.name}" for ref in refs)
    return (
        "Somebody has changed the configurations. To see who did:\n"
        f"  kubectl get {names} -o yaml --show-managed-fields\n"
        "To undo it, delete them and run `helm upgrade` with the values of the release, which "
        "creates\nthem again. `helm upgrade` alone does not remove what somebody has added:\n"
        f"  kubectl delete {names}"
    )


def hint_after_error(error: CallError, target: Target) -> str:
    """What to do after `error` of a call to `target`."""
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
    """What to do if certificate or caBundle is missing or has expired, or if they do not match."""
    if target.service is None:
        return f"{_MODES} (docs/certificates.md)."
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
