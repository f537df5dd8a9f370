"""What to do where the webhook does not answer as it should."""

from __future__ import annotations

from certs.webhooks.call import (
    CallError,
    ClosedError,
    Target,
    UnknownNameError,
    UnreachedError,
    UntrustedError,
)

MISSING = (
    "gpuward is not installed, or has another name here, or was taken out by hand: "
    "`helm upgrade` makes the configurations again."
)
SECRETIVE = (
    "Must callers show a certificate (clientCAConfigMap in the chart's values)? This has none; "
    "add --tls-only."
)
_LABEL = "app.kubernetes.io/component"


def after(error: CallError, target: Target) -> str:
    """What to do after such an error."""
    if isinstance(error, UntrustedError):
        return certificate(target)
    if isinstance(error, UnknownNameError):
        return _name(target)
    if isinstance(error, UnreachedError):
        return _way(target)
    if isinstance(error, ClosedError):
        return SECRETIVE
    return _stranger(target)


def certificate(target: Target) -> str:
    """What to do where certificate and caBundle are not there, or do not fit."""
    told = (
        "Certificate and caBundle come from the certificate controller, unless the chart's values"
    )
    told += "\nname cert-manager or a Secret of yours (docs/certificates.md)."
    return f"{told} {_look(target, 'logs', 'certs')}".rstrip()


def _stranger(target: Target) -> str:
    if target.service is None:
        return "Is it gpuward that answers at this URL?"
    namespace, name = target.service
    slices = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}"
    return f"Is it gpuward that answers? Who does:\n  {slices}"


def _name(target: Target) -> str:
    if target.service is None:
        return "The name in the URL must be known to API servers, and here."
    namespace, name = target.service
    forward = f"kubectl port-forward -n {namespace} service/{name} 8443:{target.port}"
    return (
        "Names of Services are known only inside the cluster. From outside, leave this running\n"
        f"  {forward}\nand add --address 127.0.0.1:8443"
    )


def _way(target: Target) -> str:
    told = "Are its pods ready, or does a network policy or a firewall stand between?"
    return f"{told} {_look(target, 'get pods', 'webhook')}".rstrip()


def _look(target: Target, verb: str, component: str) -> str:
    if target.service is None:
        return ""
    return f"See\n  kubectl {verb} -n {target.service[0]} -l {_LABEL}={component}"
