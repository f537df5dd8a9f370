"""Run `gpuward doctor`: examine a cluster, and print the rows."""

from __future__ import annotations

import argparse
import sys

from cluster.doctor.checks.dry_runs import FROM_FILES, NOT_WANTED
from cluster.doctor.checks.failed_calls import (
    ReportError,
    counted_calls,
    read_counted_calls,
)
from cluster.doctor.checks.in_process import check_static_manifests
from cluster.doctor.examination import examine
from cluster.doctor.facts import Request, read_facts
from cluster.doctor.rows import as_headline, as_table, exit_status, to_document
from cluster.source.objects import ObjectReader, SourceError
from cluster.source.options import open_source
from cluster.structured_output import format_document
from cluster.webhooks.dry_runs import IMAGE, NotTried, SendPod, open_with_dry_runs
from policies.loading import PolicyError, load_policy_file
from sources.sources import reduce_garbage_collection
from terminal import use_color, width_of, write_error


def run(options: argparse.Namespace) -> int:
    """Examine the cluster that the options name; the exit status."""
    reduce_garbage_collection()
    try:
        before = read_counted_calls(options.since_report) if options.since_report else None
        policy = load_policy_file(options.policy, [])
        source, request, send = _open(options)
        facts = read_facts(source, policy, request)
    except (PolicyError, ReportError, SourceError) as error:
        write_error("gpuward doctor", error)
        return 2
    asked = {"ask_kubelets": options.ask_kubelets, "tls_only": options.tls_only}
    image = options.image or IMAGE
    answer, rows = examine(facts, send, before, image=image, **asked)
    if options.static_manifests is not None:
        rows = [*check_static_manifests(facts, options.static_manifests), *rows]
    if options.output in {"json", "yaml"}:
        calls = counted_calls(facts)
        document = {
            **to_document(rows),
            **answer.to_document(),
            "failedCalls": calls.to_document() if calls else None,
        }
        sys.stdout.write(format_document(document, options.output))
    else:
        color, wide = use_color(options.color, sys.stdout), options.output == "wide"
        sys.stdout.write(as_headline(str(answer), answer.state, color=color))
        sys.stdout.write(as_table(rows, color=color, wide=wide, width=width_of(sys.stdout)))
    return exit_status(rows, allow_not_known=options.allow_not_known)


def _open(
    options: argparse.Namespace,
) -> tuple[ObjectReader, Request | None, SendPod | NotTried]:
    """Return the options' objects, and the functions for requests and dry runs.

    Raises SourceError.
    """
    if options.files:
        return open_source(options), None, FROM_FILES
    source, send = open_with_dry_runs(options)
    return source, source.get_text, NOT_WANTED if options.no_dry_run else send
