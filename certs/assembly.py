"""Put the controller together from the options of the command line."""

from __future__ import annotations

import argparse
import datetime
import sys
from functools import partial

import structlog
from structlog.typing import EventDict

from certs.api import Kind
from certs.authority import service_names
from certs.cluster import KubernetesCluster
from certs.controller import Controller, Work
from certs.pairs import parse_certificates
from certs.publish import Configuration
from certs.replicas import served
from certs.rotation import Plan
from certs.serving import utc_now


def assemble(options: argparse.Namespace) -> Controller:
    """The controller that `options` describe.

    Raises ClusterError without credentials, CertificateError if `also_trust` is broken.
    """
    names = service_names(options.service, options.namespace)
    plan = Plan(
        names,
        datetime.timedelta(days=options.ca_days),
        datetime.timedelta(days=options.leaf_days),
        datetime.timedelta(minutes=options.propagation_minutes),
    )
    given = (
        (Kind.MUTATING, options.mutating_configuration),
        (Kind.VALIDATING, options.validating_configuration),
    )
    work = Work(
        options.ca_secret,
        options.secret,
        options.lease,
        [Configuration(kind, name) for kind, text in given for name in _listed(text)],
        options.interval,
        parse_certificates((options.also_trust or "").encode()),
    )
    host = f"{options.headless_service}.{options.namespace}.svc"
    return Controller(
        KubernetesCluster(options.namespace, options.kubeconfig),
        work,
        plan,
        identity=options.identity,
        replicas=partial(served, host, options.serving_port, names[-1]),
    )


def log_as_json() -> None:
    """One JSON object a line, on standard error, in the form of the webhook's own log."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _in_order,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _in_order(_logger: object, _method: str, entry: EventDict) -> EventDict:
    now = utc_now().isoformat(timespec="milliseconds")
    return {"time": now, "level": entry.pop("level"), "event": entry.pop("event"), **entry}


def _listed(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]
