"""The options of `gpuward serve`."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable

from webhook.lifecycle import Settings
from webhook.limits import Limits
from webhook.log import LEVELS, MAX_TEXT

EPILOG = """\
paths, with POST:   /mutate/MODE and /validate/MODE; MODE is deny, warn or audit
on the plain port:  /healthz, /readyz and /metrics

exit status:
  0  stopped after SIGTERM or SIGINT, with every call answered
  2  wrong usage, a policy that cannot be used, or an address that cannot be listened on
A second signal ends it at once.
"""


_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_DNS_NAME = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}")
_DEFAULT, _LIMITS = Settings(), Limits()
_PLACES = {
    "--listen HOST:PORT": "Answer reviews here, over TLS; no HOST means every address. "
    f"The default is {_DEFAULT.listen}, with --dev 127.0.0.1:8443.",
    "--metrics-listen HOST:PORT": "Answer probes and metrics here, without TLS. "
    f"The default is {_DEFAULT.metrics_listen}, with --dev a free port of 127.0.0.1.",
    "--certificate DIR": "Serve the certificate in this folder, tls.crt and tls.key, "
    "and every newer one.",
    "--server-name NAME": "Refuse a certificate without this name, such as "
    "gpuward.gpuward.svc; with --dev, what the cluster calls this machine.",
    "--client-ca FILE": "Let in only callers with a certificate of these authorities.",
    "--policy FILE": "Judge by this policy, read again when it changes.",
}
_SWITCHES = {
    "--dev": "Try it out: serve on this machine with a throw-away certificate and say how to call.",
    "--print-configuration": "With --dev, write the webhook configurations to standard output, "
    "to be piped to `kubectl apply -f -`, and the rest to standard error.",
}


def parser() -> argparse.ArgumentParser:
    """What understands the command line."""
    made = argparse.ArgumentParser(
        prog="gpuward serve",
        description="Run the admission webhook.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for place, text in _PLACES.items():
        flag, metavar = place.split()
        kind = _name if flag == "--server-name" else str
        made.add_argument(flag, metavar=metavar, help=text, type=kind)
    made.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="Expect this GPU estate, such as gke; may be repeated. The default is nvidia.",
    )
    _bounds(made)
    _manners(made)
    for flag, text in _SWITCHES.items():
        made.add_argument(flag, action="store_true", help=text)
    return made


def _bounds(made: argparse.ArgumentParser) -> None:
    for flag, kind, default, text in (
        (
            "--read-seconds",
            _number(float, 0.1),
            _LIMITS.read_seconds,
            "Give a body so long to arrive; less than the timeoutSeconds of the registration.",
        ),
        (
            "--max-in-flight",
            _number(int, 1),
            _LIMITS.in_flight,
            "Read at most so many bodies at once, others are told to try again in a second.",
        ),
        (
            "--max-connections",
            _number(int, 1),
            _LIMITS.connections,
            "Keep at most so many connections open, others are closed at once.",
        ),
    ):
        told = f"{text} The default is {default:g}."
        made.add_argument(flag, metavar="N", type=kind, default=default, help=told)


def _manners(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--drain-seconds",
        metavar="N",
        type=_number(float, 0),
        help="Go on answering for so long after SIGTERM, until nobody is sent here any more. "
        f"The default is {_DEFAULT.drain_seconds:g}, with --dev 0.",
    )
    made.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="The lowest level that is logged; decisions are info.",
    )
    made.add_argument(
        "--no-uvloop",
        dest="uvloop",
        action="store_false",
        help="Use Python's own event loop even where uvloop is installed.",
    )


def _name(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if len(text) <= MAX_TEXT and _DNS_NAME.fullmatch(text):
            return text
        raise argparse.ArgumentTypeError(f"{text!r} is no DNS name or IP address") from None


def _number(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} up")
        return value

    return number
