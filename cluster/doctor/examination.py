"""The checks of `gpuward doctor`, in the order in which their rows are shown."""

from __future__ import annotations

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
    check_dry_runs,
    groups_of_namespaces,
    rows_of,
)
from cluster.doctor.checks.failed_calls import (
    CountedCalls,
    check_failed_calls,
)
from cluster.doctor.checks.gpuward import check_exclusion, check_namespaces, check_own_webhook
from cluster.doctor.checks.in_process import check_in_process
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
from cluster.doctor.facts import DoctorFacts
from cluster.doctor.rows import Row
from cluster.doctor.verdict import Verdict, verdict
from cluster.webhooks.dry_runs import IMAGE, NotTried, SendPod


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


def examine_objects(facts: DoctorFacts) -> list[Row]:
    """Return the rows of the checks that only read objects, gpuward's first.

    They make no dry run, and call neither the webhook nor a kubelet.
    """
    return [*_rows_of_own_objects(facts), *_cluster_rows(facts, ask_kubelets=False)]


def _rows_of_own_objects(facts: DoctorFacts) -> Iterator[Row]:
    yield from check_registration(facts)
    yield from check_policy(facts)
    yield from check_release(facts)
    yield from check_own_priority(facts)
    yield from check_ca_bundles(facts, of_gpuward=True)
    yield from check_namespaces(facts)
    yield from check_webhook_order(facts)
    yield from check_exclusion(facts)


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
