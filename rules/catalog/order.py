"""Every rule, in the order in which they run: the one list of the catalog.

Rules with fixes run first, so that the other rules evaluate the fixed object. Each rule is one file
in the folder of its family, with the name of the rule. A wrong list raises CatalogError when this
module is imported. `make docs` writes the index from this list.
"""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from rules.rule import Rule


class CatalogError(ValueError):
    """A list of rules that cannot be right. The text names the rule and what to change."""


def validated_order(*groups: Sequence[Rule[Any]]) -> tuple[Rule[Any], ...]:
    """The rules of all `groups`, in order.

    Raises CatalogError if two rules have the same name, if a rule has no summary or no `needs`, or
    if a rule supersedes one that is not listed after it.
    """
    rules = tuple(chain(*groups))
    position = {rule.name: number for number, rule in enumerate(rules)}
    times = Counter(rule.name for rule in rules)
    name = max(times, key=times.__getitem__)
    if times[name] > 1:
        raise CatalogError(f"{name} is listed {times[name]} times: name it once, in one group")
    for rule in rules:
        if not rule.summary:
            raise CatalogError(f"{rule.name} has no docstring: its first line is the summary")
        if not rule.needs:
            raise CatalogError(f"{rule.name} needs no trait: name those that it cannot do without")
        for other in rule.supersedes:
            if position.get(other, -1) <= position[rule.name]:
                raise CatalogError(
                    f"{rule.name} supersedes {other}, which must be listed after it: "
                    "a rule that ran already cannot be silenced"
                )
    return rules


def _import_rules(*modules: str) -> tuple[Rule[Any], ...]:
    return tuple(import_module(f"rules.catalog.{module}").RULE for module in modules)


NAME_CORRECTIONS = _import_rules("requests.misplaced_gpu", "requests.unknown_gpu_resource")
"""Correct fields and names of resources first: they decide which containers request a GPU."""
# The scheduler comes next: it decides whether annotations ask for a part of a GPU.
SAFE_FIXES = _import_rules(
    "scheduling.scheduler_name",
    "claims.claim_layout",
    "claims.invalid_claim_reference",
    "sharing.share_visible_devices",
    "bypass.visible_devices_env",
    "bypass.visible_devices_valuefrom",
    "bypass.gpu_container_hidden",
    "bypass.legacy_cuda_version",
    "bypass.image_default_all",
    "requests.request_only",
    "scheduling.toleration_mismatch",
    "quota.untolerated_flavor",
    "quota.left_queue",
    "scheduling.toleration_default",
    "scheduling.affinity_default",
    "scheduling.enforced_affinity",
    "bypass.gpu_node_without_request",
)
"""Rules most of whose fixes are safe. Safe fixes are made by default."""
OPT_IN_FIXES = _import_rules(
    "bypass.visible_devices_envfrom",
    "bypass.visible_devices_configmap",
    "bypass.swarm_resource_env",
    "bypass.mig_admin_env",
    "bypass.imex_channels",
    "bypass.gated_device_env",
    "requests.visible_devices_none",
    "bypass.device_list_mount",
    "bypass.cdi_annotation",
    "bypass.nri_cdi_annotation",
    "bypass.device_injector_annotation",
    "bypass.ephemeral_gpu",
    "sharing.share_limit_override",
    "sharing.reserved_gpushare_keys",
    "bypass.reserved_claim_annotation",
    "sharing.gpu_mem_fraction",
    "sharing.gpu_mem_unit",
    "requests.fractional_gpu",
    "sharing.core_percentage_step",
    "requests.request_ne_limit",
    "requests.redundant_request",
    "requests.zero_gpu",
    "security.privileged_gpu",
    "security.sys_admin_gpu",
    "security.host_namespaces",
    "security.ld_preload",
    "quota.unknown_quota_resource",
    "quota.unknown_limit_range_resource",
    "quota.quota_inert_key",
    "quota.queue_without_scheduler",
    "quota.missing_queue",
    "components.device_plugin_priority",
)
"""Rules whose fixes need `fix: true` in the policy; a rule's docstring states any exception."""
REPORTS = _import_rules(
    "bypass.device_hostpath",
    "bypass.runtime_socket",
    "bypass.run_gpu_command",
    "bypass.plugin_dir_hostpath",
    "security.mps_hostpath",
    "security.reserved_priority_class",
    "security.untrusted_gpu_image",
    "bypass.runtimeclass_nvidia_no_gpu",
    "bypass.nodename_cuda_image",
    "bypass.nodename_pinned",
    "bypass.monitoring_resource",
    "bypass.visible_devices_key",
    "requests.absurd_count",
    "requests.init_container_gpu",
    "requests.init_and_app_gpu",
    "requests.mixed_families",
    "requests.placeholder_quantity",
    "requests.extended_resource_amount",
    "requests.parallel_size_mismatch",
    "requests.cuda_visible_devices",
    "requests.image_vendor_mismatch",
    "requests.unknown_driver_capability",
    "claims.undeclared_claim",
    "claims.unused_claim",
    "claims.claim_and_resource",
    "claims.missing_claim",
    "claims.shared_claim",
    "claims.uncounted_claim",
    "sharing.core_without_mem",
    "sharing.share_without_card",
    "sharing.fraction_annotation",
    "sharing.mixed_share_kinds",
    "sharing.job_type_mixing",
    "sharing.gpu_count_label",
    "sharing.koordinator_share",
    "sharing.tencent_share",
    "sharing.managed_memory",
    "sharing.memory_exceeds_card",
    "sharing.small_share",
    "sharing.several_mig_devices",
    "sharing.several_shared_gpus",
    "sharing.placement_label",
    "sharing.sharing_config",
    "scheduling.scheduler_mismatch",
    "scheduling.kai_queue",
    "scheduling.scheduler_without_request",
    "scheduling.invalid_placement",
    "scheduling.affinity_contradiction",
    "scheduling.open_affinity_term",
    "scheduling.node_mode_mismatch",
    "scheduling.partition_size_mismatch",
    "scheduling.unknown_node_label_value",
    "scheduling.no_fitting_node",
    "quota.quota_fraction",
    "quota.unknown_queue_resource",
    "quota.queue_fraction",
    "quota.queue_without_resource",
    "quota.flavor_mismatch",
    "quota.unusable_kai_queue",
    "quota.limit_range_gpu",
    "quota.limit_range_exceeded",
    "quota.made_up_owner",
    "quota.quota_exceeded",
    "quota.quota_needs_requests",
    "quota.quota_replicas",
    "quota.quota_scope_gap",
    "quota.quota_incomplete",
    "quota.quota_without_gpu",
    "security.admin_access_claim",
    "security.gpu_namespace",
    "security.gpu_share_namespace",
    "claims.invalid_claim",
    "claims.unknown_device_class",
    "claims.invalid_device_selector",
    "claims.claim_exceeds_card",
    "claims.claim_tolerates_every_taint",
    "claims.claim_of_all_devices",
    "claims.invalid_claim_parameters",
    "claims.doubled_extended_resource",
    "claims.device_taint_rule_without_selector",
    "nodes.node_below_requirements",
    "hygiene.shared_memory_missing",
    "hygiene.shared_memory_exceeds_limit",
    "hygiene.memory_volume_without_limit",
    "hygiene.rdma_without_ipc_lock",
    "hygiene.liveness_without_startup",
    "hygiene.cpu_or_memory_missing",
    "hygiene.mutable_image_tag",
    "nodes.unknown_node_mode",
    "nodes.unknown_mig_config",
    "nodes.unknown_node_taint",
    "nodes.placement_without_sharing",
    "nodes.legacy_gpushare_label",
    "nodes.node_mode_without_resource",
    "nodes.node_share_totals",
    "hygiene.gpu_taint_missing",
    "hygiene.toleration_without_gpu",
    "nodes.cgpu_outside_ecs",
    "nodes.static_cpu_manager",
    "hygiene.idle_gpu_holder",
    "hygiene.rollout_needs_spare_gpus",
    "hygiene.gpu_daemonset",
    "hygiene.driver_library_hostpath",
    "hygiene.spot_job_without_retry",
    "hygiene.job_without_deadline",
    "components.device_list_strategy",
    "components.overlapping_drivers",
    "components.device_plugin_toleration",
    "components.gpu_exporter_toleration",
    "components.webhook_blocks_system_pods",
    "components.webhook_misses_ephemeral_containers",
    "components.webhook_side_effects",
    "components.webhook_timeout",
)
"""Rules without fixes."""

ORDER: tuple[Rule[Any], ...] = validated_order(NAME_CORRECTIONS, SAFE_FIXES, OPT_IN_FIXES, REPORTS)
