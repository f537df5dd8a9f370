"""Serve the console as `gpuward console` was told to, or write what it shows as one file."""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import sys
import threading

from aiohttp import web

from cluster.source.files import FileSource
from cluster.source.objects import SourceError
from cluster.source.options import open_connection
from console.access import Access, SecretError, read_secret
from console.demo import demo_log, demo_source
from console.options import ANY, LOOPBACK
from console.pages import findings
from console.pages.gpus import Filter, gpus_page
from console.rendering import FOLDER, Templates, safe
from console.server import LOOPBACK_NAMES, Console
from console.state import FOLLOWED, ClusterState, state_of
from console.utilisation import Prometheus
from policies.loading import PolicyError
from sources.policy_file import FilePolicy, PolicyChoice
from terminal import printable, reason_of, write_error


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or write the file; the exit status."""
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
        write_error("gpuward console", f"{file}: {reason_of(error)}")
        return 2
    return 0


def _serve(console: Console, options: argparse.Namespace) -> int:
    name = "localhost" if options.listen == LOOPBACK else options.listen
    where = f"http://{f'[{name}]' if ':' in name else name}:{options.port}/"
    sys.stderr.write(f"{printable(f'gpuward console: {console.title}: {where}')} until Ctrl-C\n")
    try:
        web.run_app(
            console.application(),
            host=None if options.listen == ANY else options.listen,
            port=options.port,
            print=None,
            access_log=None,
        )
    except OSError as error:
        why = reason_of(error)
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
