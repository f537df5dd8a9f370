"""Make the controller from the options of the command line."""

from __future__ import annotations

import argparse
import datetime
from functools import partial

from certs.authority import service_names
from certs.controller.rotation_records import RotationPolicy
from certs.controller.served_certificates import served_certificates
from certs.keypairs import parse_certificates
from cluster.api.client import KubernetesCluster
from cluster.api.connection import Connection
from cluster.controllers.certificates import Controller, ControllerConfig
from cluster.protocols import ConfigurationKind, ConfigurationRef
from cluster.webhooks.watch import make_watch
from registration.policy_watch import make_policy_watch


def make_controller(options: argparse.Namespace) -> Controller:
    """The controller that `options` describe.

    Raises ClusterError without credentials, CertificateError if `also_trust` is broken.
    """
    names = service_names(options.service, options.namespace)
    policy = RotationPolicy(
        names,
        datetime.timedelta(days=options.ca_days),
        datetime.timedelta(days=options.leaf_days),
        datetime.timedelta(minutes=options.propagation_minutes),
    )
    names_by_kind = (
        (ConfigurationKind.MUTATING, options.mutating_configuration),
        (ConfigurationKind.VALIDATING, options.validating_configuration),
    )
    config = ControllerConfig(
        options.ca_secret,
        options.secret,
        options.lease,
        [
            ConfigurationRef(kind, name)
            for kind, text in names_by_kind
            for name in _split_names(text)
        ],
        options.interval,
        parse_certificates((options.also_trust or "").encode()),
    )
    watch, check_policy = None, None
    if expected := options.expected_registration:
        connection = Connection.in_cluster(options.kubeconfig)
        watch = make_watch(connection, expected, options.settle_seconds, options.interval)
    if options.policy:
        connection = Connection.in_cluster(options.kubeconfig)
        check_policy = make_policy_watch(connection, options.policy).check
    host = f"{options.headless_service}.{options.namespace}.svc"
    return Controller(
        KubernetesCluster(options.namespace, options.kubeconfig),
        config,
        policy,
        identity=options.identity,
        replicas=partial(served_certificates, host, options.serving_port, names[-1]),
        watch=watch,
        check_policy=check_policy,
    )


def _split_names(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]
