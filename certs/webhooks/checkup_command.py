"""The command `gpuward webhooks check`: whether the webhook works."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from certs.api import ClusterError
from certs.publish import Configuration
from certs.webhooks.call import Address, Target, look
from certs.webhooks.checkup import Checkup, check, patiently, summary
from certs.webhooks.review import asked

DESCRIPTION = """\
Read gpuward's webhook configurations and do as API servers do: call every place that
they name, over TLS, trusting what their caBundle says and no more, with a pod that
takes GPUs without asking. Nothing is made and nothing is changed."""
EPILOG = """\
The credentials are those that kubectl would take: of a kubeconfig file, or else of
the pod that this runs in. They must allow to get the configurations.

exit status: 0 all answer, 1 something does not, 2 wrong usage"""
_LONGEST = 86_400  # a day


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that the other commands do not have."""
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        type=_address,
        help="Where to connect in place of the Service, as with kubectl port-forward.",
    )
    parser.add_argument(
        "--tls-only",
        action="store_true",
        help="Only look at the certificate: where callers must show one too, which this has not.",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="How long to ask again until all is well. The default is 0.",
    )


def run(options: argparse.Namespace, wanted: list[Configuration]) -> int:
    """Call the webhook, and say what came of it; the exit status."""
    from certs.cluster import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from certs.connection import Connection  # noqa: PLC0415

    try:
        connection = Connection.of_kubectl(options.kubeconfig, options.context)
    except ClusterError as error:
        sys.stderr.write(f"gpuward webhooks: {error}\n")
        return 1
    get = KubernetesConfigurations(connection).get_configuration
    ask = partial(_not_asked if options.tls_only else asked, address=options.address)
    checkup = patiently(lambda: check(get, ask, wanted), options.wait, _impatience())
    _tell(checkup)
    return 0 if checkup.is_well else 1


def _not_asked(target: Target, address: Address | None) -> tuple[str, datetime.datetime]:
    return "was not asked", look(target, address)


def _impatience() -> Callable[[Checkup], None]:
    complained = set()

    def not_yet(checkup: Checkup) -> None:
        for line in _faults(checkup, "not yet: "):
            if line not in complained:  # at each attempt the same
                sys.stderr.write(line)
            complained.add(line)
        sys.stderr.flush()

    return not_yet


def _tell(checkup: Checkup) -> None:
    for found in checkup.found:
        if found.is_well:
            sys.stdout.write(f"{found.where}: {found.said}\n")
    if checkup.is_well:
        sys.stdout.write(f"all is well: {summary(checkup.entries)}\n")
    sys.stdout.flush()
    sys.stderr.writelines(_faults(checkup))
    remedies = dict.fromkeys(found.remedy for found in checkup.found if found.remedy)
    sys.stderr.writelines(f"{remedy}\n" for remedy in remedies)


def _faults(checkup: Checkup, prefix: str = "") -> list[str]:
    return [
        f"gpuward webhooks: {prefix}{found.where}: {found.said}\n"
        for found in checkup.found
        if not found.is_well
    ]


def _address(text: str) -> tuple[str, int]:
    try:
        place = urlsplit(f"//{text}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port or place.path or place.username is not None:
        raise argparse.ArgumentTypeError(f"{text}: expected HOST:PORT")
    return host, port


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number <= _LONGEST:  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds")
    return number
