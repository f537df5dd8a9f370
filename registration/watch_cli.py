"""The command `gpuward webhooks watch`: report changes of the webhook configurations."""

from __future__ import annotations

import argparse

from cluster.durations import seconds
from cluster.service_options import add_service_options

DESCRIPTION = """\
Compare gpuward's webhook configurations with those that this release should have, every
ten seconds. Differences that persist are logged, become a Kubernetes Event, and set a
metric to 0. With --policy, a policy that cannot be used is logged and becomes an Event.
Nothing is changed. The certificate controller does the same, so this command is for
clusters without it."""
EPILOG = """\
The credentials are those of the pod in which this runs, or of a kubeconfig file. They must
allow getting the configurations, and creating events in the namespace of the pod. The
events are about the pod that the variables POD_NAMESPACE, POD_NAME and POD_UID name;
without them, none is created."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument(
        "--expected",
        metavar="FILE",
        required=True,
        help="The webhook configurations that this release should have, as the chart renders them.",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="The policy of the webhook, to report also if that cannot be used.",
    )
    add_service_options(parser, 10.0, "comparisons")
    parser.add_argument(
        "--settle-seconds",
        metavar="SECONDS",
        type=seconds,
        default=180.0,
        help="Seconds for which a difference must persist before it is reported, so that an "
        "upgrade is no change. The default is 180.",
    )


def run(options: argparse.Namespace) -> int:
    """Watch until SIGTERM or SIGINT; the exit status."""
    from cluster.api.connection import Connection  # noqa: PLC0415  # --help needs none of this
    from cluster.service import Service, repeat, run_or_report  # noqa: PLC0415
    from cluster.webhooks.watch import make_watch  # noqa: PLC0415
    from registration.policy_watch import make_policy_watch  # noqa: PLC0415

    def make() -> Service:
        connection = Connection.in_cluster(options.kubeconfig)
        watch = make_watch(connection, options.expected, options.settle_seconds, options.interval)
        policy_watch = make_policy_watch(connection, options.policy) if options.policy else None

        def compare() -> None:
            watch.compare()
            if policy_watch is not None:
                policy_watch.check()

        return Service(repeat(compare, options.interval), lambda: watch.alive, watch.metrics)

    return run_or_report(make, options.status_port, "webhooks")
