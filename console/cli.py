"""The command `gpuward console`, and what it writes as one file."""

from __future__ import annotations

import argparse
import base64
import hashlib
import ipaddress
import os
import sys
import threading

from aiohttp import web

from cluster.service_options import port
from cluster.source.files import FileSource
from cluster.source.objects import SourceError
from cluster.source.options import add_connection_options, add_file_option, open_connection
from console.access import Access, SecretError, read_secret
from console.demo import demo_log, demo_source
from console.pages import findings
from console.pages.gpus import Filter, gpus_page
from console.rendering import FOLDER, Templates, safe
from console.server import LOOPBACK_NAMES, Console
from console.state import FOLLOWED, ClusterState, state_of
from console.utilisation import Prometheus, PrometheusUrl, UrlError, parse_url
from lint.options import add_policy_options
from policies.loading import PolicyError
from sources.policy_file import FilePolicy, PolicyChoice
from terminal import CommandParser, printable, write_error

_PORT = 8088
_DESCRIPTION = """\
Serve a page that shows the GPUs of a cluster, what is wrong, why a pod is Pending, and what
a manifest would get. It only reads: it creates and changes nothing."""
_EPILOG = "exit status: 0 stopped, 2 wrong usage, or nothing could be read"
_LOOPBACK, _ANY = "127.0.0.1", "*"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward console",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = add_connection_options(made)
    add_file_option(where, "--from")
    where.add_argument("--demo", action="store_true", help="show a small made-up cluster")
    where.add_argument(
        "--team-label",
        metavar="KEY",
        default="",
        help="the label of namespaces whose value is the team that they belong to: totals by team",
    )
    where.add_argument(
        "--prometheus",
        metavar="URL",
        type=_prometheus_url,
        help="the address of a Prometheus with the metrics of NVIDIA's dcgm-exporter, to say how "
        "busy cards were; a user and a password in it are sent to it, and shown nowhere",
    )
    add_policy_options(made.add_argument_group("rules"))
    serving = made.add_argument_group("serving")
    serving.add_argument(
        "--port",
        metavar="PORT",
        type=port,
        default=_PORT,
        help=f"the port; default: {_PORT}",
    )
    serving.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=_address,
        default=_LOOPBACK,
        help="the IP address to listen on, or * for all; default: the loopback address, which no "
        "other machine reaches. Others need --authenticate",
    )
    serving.add_argument(
        "--authenticate",
        action="store_true",
        help="ask the API server who viewers are, by their tokens, and show them only the "
        "namespaces in which they may list pods",
    )
    serving.add_argument(
        "--proxy-secret",
        metavar="FILE",
        help="with --authenticate: trust X-Forwarded-User and X-Forwarded-Groups of a proxy that "
        "sends the secret in this file as X-Gpuward-Proxy-Secret",
    )
    serving.add_argument(
        "--export",
        metavar="FILE",
        help="write the whole into one HTML file, which loads nothing, instead of serving it; "
        "- for standard output",
    )
    return made


def main(arguments: list[str]) -> int:
    """Run the command with these arguments; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.demo and options.files:
        parser.error("--demo and --from are two clusters: leave one out")
    if why := _unsafe(options):
        parser.error(why)
    stop = threading.Event()
    try:
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        access = _access(options)
        state = _state(options, choice.load(), stop)
        if options.prometheus:
            state.prometheus = Prometheus(options.prometheus)
        if options.export:
            return _export(state, options.export)
    except (PolicyError, SecretError, SourceError) as error:
        write_error("gpuward console", error)
        return 2
    try:
        return _serve(Console(state, None if access else LOOPBACK_NAMES, access), options)
    finally:
        stop.set()


def _address(text: str) -> str:
    """The IP address in `text`, or `*`; for argparse."""
    if text == _ANY:
        return text
    try:
        return str(ipaddress.ip_address(_LOOPBACK if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected an IP address, or *") from None


def _prometheus_url(text: str) -> PrometheusUrl:
    """The address in `text`, which may have a password; for argparse."""
    try:
        return parse_url(text)
    except UrlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _unsafe(options: argparse.Namespace) -> str:
    """Return why the options would open the cluster to all users, or make no sense; else empty."""
    listen = options.listen
    is_loopback = listen != _ANY and ipaddress.ip_address(listen).is_loopback
    if not (is_loopback or options.authenticate or options.export):
        return (
            f"--listen {listen}: everybody who reaches it would see all that your account "
            "sees: add --authenticate, or listen on the loopback address"
        )
    if options.authenticate and (options.demo or options.files or options.export):
        return "--authenticate asks an API server: leave --demo, --from and --export out"
    if options.proxy_secret and not options.authenticate:
        return "--proxy-secret is for --authenticate: add it"
    return ""


def _access(options: argparse.Namespace) -> Access | None:
    """Return the access of viewers; None if all see all. Raises SourceError and SecretError."""
    if not options.authenticate:
        return None
    from cluster.api.reviews import KubernetesReviewer  # noqa: PLC0415  # not with files

    reviewer = KubernetesReviewer(open_connection(options))
    file = options.proxy_secret
    if not file:
        return Access(reviewer)
    read_secret(file)  # fail now rather than at the first request
    return Access(reviewer, lambda: read_secret(file))


def _export(state: ClusterState, file: str) -> int:
    """Write the file; the exit status. Raises SourceError."""
    page = export(state)
    if file == "-":
        sys.stdout.write(page)
        return 0
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(page)
    except OSError as error:
        write_error("gpuward console", f"{file}: {(error.strerror or str(error)).lower()}")
        return 2
    return 0


def _serve(console: Console, options: argparse.Namespace) -> int:
    name = "localhost" if options.listen == _LOOPBACK else options.listen
    where = f"http://{f'[{name}]' if ':' in name else name}:{options.port}/"
    sys.stderr.write(f"{printable(f'gpuward console: {console.title}: {where}')} until Ctrl-C\n")
    try:
        web.run_app(
            console.application(),
            host=None if options.listen == _ANY else options.listen,
            port=options.port,
            print=None,
            access_log=None,
        )
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        write_error("gpuward console", f"port {options.port}: {why}; choose another one by --port")
        return 2
    return 0


def _state(options: argparse.Namespace, found: FilePolicy, stop: threading.Event) -> ClusterState:
    if options.demo or options.files:
        if not options.demo and (options.kubeconfig or options.context):
            raise SourceError("--from reads files: leave --kubeconfig and --context out")
        title = "demo cluster" if options.demo else ", ".join(options.files)
        source = demo_source() if options.demo else FileSource(options.files, sys.stdin.buffer)
        state = state_of(title, source, found.policy, found.file, options.team_label)
        if options.demo:
            take_demo_log(state)
        return state
    return _followed_cluster(options, found, stop)


def take_demo_log(state: ClusterState) -> None:
    """Have the state of the demo know what the webhook of its cluster has decided."""
    state.decision_log.take("gpuward-5f7d9c6b8-x2x7k", demo_log())


def _followed_cluster(
    options: argparse.Namespace, found: FilePolicy, stop: threading.Event
) -> ClusterState:
    """The state of a cluster, which threads follow until `stop` is set. Raises SourceError."""
    # With files, the Kubernetes client need not be installed.
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415
    from cluster.source.following import Following  # noqa: PLC0415

    connection = open_connection(options)
    title, source = options.context or "cluster", ApiServerSource(connection)
    if options.export:
        return state_of(title, source, found.policy, found.file, options.team_label)
    state = ClusterState(
        title,
        source,
        found.policy,
        found.file,
        read_log=source.get_text,
        team_label=options.team_label,
    )
    for resource in FOLLOWED:
        following = Following(connection, resource, state, stop)
        threading.Thread(target=following.run, name=str(resource), daemon=True).start()
    return state


_MAX_NODES = 2_000
_MAX_PENDING = 100
_MAX_FINDINGS = 500
_PARTS = (("#gpus", "GPUs"), ("#pending", "Pending"), ("#findings", "Findings"))


def export(state: ClusterState) -> str:
    """The file about what is known now. Raises SourceError."""
    usage, missing = state.usage()
    page = gpus_page(usage, Filter(), state.teams(), most=_MAX_NODES, all_resources=True)
    waiting = [c for c in usage.consumers if not c.node and not c.name.startswith("resourceclaim/")]
    found = (state.why(one.namespace, one.name) for one in waiting[:_MAX_PENDING])
    results = state.audit().result.results
    wanted = findings.Filter(level="note")
    listed = findings.findings_page(results, wanted, most=_MAX_FINDINGS)
    by_mark = dict(findings.by_mark(results))
    with open(os.path.join(FOLDER, "static", "console.css"), encoding="utf-8") as file:
        style = file.read()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Templates().render(
        "export.html",
        {
            "heading": f"GPUs of {state.title}",
            "exported": True,
            "viewer": "",
            "is_open": False,
            "style": safe(style),
            "style_hash": safe(f"'sha256-{digest}'"),
            "state": state,
            "state_version": state.version,
            "navigation": _PARTS,
            "current": "",
            "missing": (*missing, *usage.notes(), *usage.remarks()),
            "page": page,
            "filter": Filter(),
            "explanations": [why for why in found if why],
            "other_pending": max(len(waiting) - _MAX_PENDING, 0),
            "found": listed,
            "rows": [(row, state.fix_preview(by_mark[row.mark])) for row in listed.rows],
            "other_rows": listed.matching - len(listed.rows),
        },
    )
