"""The command `gpuward doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from cluster.doctor.checks.callers import check_callers
from cluster.doctor.checks.cards import (
    check_cards_given_twice,
    check_sick_cards,
    check_two_plugins,
    check_whole_cards_and_partitions,
)
from cluster.doctor.checks.devices import (
    check_autoscaler,
    check_cards_offered_twice,
    check_claims,
    check_device_classes,
    check_device_plugins,
    check_exporter,
    check_failed_pods,
    check_operator,
)
from cluster.doctor.checks.dry_runs import (
    FROM_FILES,
    NOT_WANTED,
    check_dry_runs,
    groups_of_namespaces,
    rows_of,
)
from cluster.doctor.checks.failed_calls import (
    CountedCalls,
    ReportError,
    check_failed_calls,
    counted_calls,
    read_counted_calls,
)
from cluster.doctor.checks.gpuward import check_exclusion, check_namespaces, check_own_webhook
from cluster.doctor.checks.in_process import check_in_process, check_static_manifests
from cluster.doctor.checks.kubernetes_faults import check_kubernetes_faults
from cluster.doctor.checks.kueue import (
    check_kueue,
    check_mismatched_flavors,
    check_untolerated_flavors,
)
from cluster.doctor.checks.nodes import (
    check_by_catalog,
    check_cpu_policy,
    check_gpu_nodes,
    check_job_types,
    check_pods_per_card,
    check_requirements,
)
from cluster.doctor.checks.nvidia import check_mig, check_toolkit_settings
from cluster.doctor.checks.priority import check_own_priority
from cluster.doctor.checks.programs import (
    check_component_priority,
    check_container_toolkit,
    check_programs,
    check_schedulers,
)
from cluster.doctor.checks.release import check_policy, check_registration, check_release
from cluster.doctor.checks.webhooks import check_ca_bundles, check_webhook_order
from cluster.doctor.facts import DoctorFacts, Request, read_facts
from cluster.doctor.rows import Row, as_headline, as_table, exit_status, to_document
from cluster.doctor.verdict import Verdict, verdict
from cluster.source.objects import ObjectReader, SourceError
from cluster.source.options import add_options, open_source
from cluster.structured_output import format_document
from cluster.webhooks.dry_runs import IMAGE, NotTried, SendPod, open_with_dry_runs
from policies.loading import PolicyError, load_policy_file
from sources.sources import reduce_garbage_collection
from terminal import CommandParser, use_color, width_of, write_error

_DESCRIPTION = """\
Say whether a cluster is guarded, and prove it: in a namespace of each mode the command
creates pods that take GPUs, by dry runs, which store nothing. Below is what it has checked
about gpuward's own health, and whether the cluster is fit for GPUs: other webhooks, node
labels, versions, device plugins, shared cards. Every row is ok, wrong with what to do, or
not known. Nothing is created or changed; the webhook is also called with a sample, as
`gpuward webhooks check` does."""
_EPILOG = """\
exit status: 0 all is well, 1 something is wrong, 2 wrong usage, or nothing could be read,
3 nothing is wrong as far as is known, but something is not known"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward doctor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--output",
        "-o",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help="wide: what to do is a column, instead of a list below the table",
    )
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to color text; default: auto, on a terminal",
    )
    made.add_argument(
        "--policy", metavar="FILE", help="a policy, whose profiles and rules are used"
    )
    made.add_argument(
        "--ask-kubelets",
        action="store_true",
        help="ask the kubelets of nodes with shared cards for their CPU policy; needs the right "
        "to get nodes/proxy, with which one can do much more",
    )
    made.add_argument(
        "--tls-only",
        action="store_true",
        help="only check the certificate of the webhook: for servers that demand a client "
        "certificate",
    )
    made.add_argument(
        "--no-dry-run",
        action="store_true",
        help="create no pods by dry runs, which needs the right to create pods; then it is not "
        "known whether the cluster is guarded",
    )
    made.add_argument(
        "--image",
        metavar="IMAGE",
        help="an image that pods may have there, if a policy restricts images; no container "
        f"starts; default: {IMAGE}",
    )
    made.add_argument(
        "--static-manifests",
        metavar="DIR",
        help="see whether the API server has loaded the files in this folder, which gpuward export "
        "static has written",
    )
    made.add_argument(
        "--since-report",
        metavar="FILE",
        help="what an earlier run wrote with -o json: calls of the webhook that had failed before "
        "do not count",
    )
    made.add_argument(
        "--allow-not-known",
        action="store_true",
        help="exit with 0 instead of 3 if something is not known, and nothing is wrong",
    )
    add_options(made, namespaced=False)
    return made


def main(arguments: list[str]) -> int:
    """Run the command with these arguments; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.files and (options.ask_kubelets or options.tls_only):
        parser.error("--ask-kubelets and --tls-only call the cluster: leave --filename out")
    if options.image and (options.files or options.no_dry_run):
        parser.error("--image is for dry runs: leave --filename and --no-dry-run out")
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


def examine(
    facts: DoctorFacts,
    send: SendPod | NotTried,
    before: CountedCalls | None = None,
    *,
    image: str = IMAGE,
    ask_kubelets: bool = False,
    tls_only: bool = False,
) -> tuple[Verdict, list[Row]]:
    """Return the verdict on whether the cluster is guarded, and each check's rows, gpuward's first.

    `send` makes the dry runs, or says why there are none. Calls that failed `before` do not count.
    """
    groups = groups_of_namespaces(facts)
    trials = send if isinstance(send, NotTried) else [*check_dry_runs(facts, groups, send, image)]
    own = [
        *rows_of(trials, groups),
        *_own_rows(facts, before, tls_only=tls_only),
        *check_callers(facts, send, image),
    ]
    found = verdict(facts, groups, trials, own)
    return found, [*own, *_cluster_rows(facts, ask_kubelets=ask_kubelets)]


def _own_rows(facts: DoctorFacts, before: CountedCalls | None, *, tls_only: bool) -> Iterator[Row]:
    yield from check_own_webhook(facts, tls_only=tls_only)
    yield from check_registration(facts)
    yield from check_policy(facts)
    yield from check_release(facts)
    yield from check_own_priority(facts)
    yield from check_ca_bundles(facts, of_gpuward=True)
    yield from check_in_process(facts)
    yield from check_namespaces(facts)
    yield from check_webhook_order(facts)
    yield from check_failed_calls(facts, before)
    yield from check_exclusion(facts)


def _cluster_rows(facts: DoctorFacts, *, ask_kubelets: bool) -> Iterator[Row]:
    yield from check_ca_bundles(facts, of_gpuward=False)
    yield from check_gpu_nodes(facts)
    yield from check_sick_cards(facts)
    yield from check_cards_given_twice(facts)
    yield from check_cards_offered_twice(facts)
    yield from check_two_plugins(facts)
    yield from check_whole_cards_and_partitions(facts)
    yield from check_device_plugins(facts)
    yield from check_operator(facts)
    yield from check_device_classes(facts)
    yield from check_kueue(facts)
    yield from check_untolerated_flavors(facts)
    yield from check_mismatched_flavors(facts)
    yield from check_autoscaler(facts)
    yield from check_claims(facts)
    yield from check_exporter(facts)
    yield from check_failed_pods(facts)
    yield from check_component_priority(facts)
    yield from check_container_toolkit(facts)
    yield from check_toolkit_settings(facts)
    yield from check_mig(facts)
    yield from check_programs(facts)
    yield from check_schedulers(facts)
    yield from check_kubernetes_faults(facts)
    yield from check_by_catalog(facts)
    yield from check_requirements(facts)
    yield from check_pods_per_card(facts)
    yield from check_job_types(facts)
    yield from check_cpu_policy(facts, ask=ask_kubelets)


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
