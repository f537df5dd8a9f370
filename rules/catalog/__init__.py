"""Every rule, in the order in which they run.

Rules with fixes run first, so that the other rules evaluate the fixed object. Each rule is one file
in the folder of its family, with the name of the rule. `checked` raises CatalogError for a wrong
list.
"""

from __future__ import annotations

from typing import Any

from rules.catalog.bypass import (
    cdi_annotation,
    device_hostpath,
    device_injector_annotation,
    device_list_mount,
    ephemeral_gpu,
    gpu_container_hidden,
    image_default_all,
    imex_channels,
    legacy_cuda_version,
    mig_admin_env,
    monitoring_resource,
    nodename_pinned,
    nri_cdi_annotation,
    plugin_dir_hostpath,
    run_gpu_command,
    runtime_socket,
    runtimeclass_nvidia_no_gpu,
    swarm_resource_env,
    visible_devices_configmap,
    visible_devices_env,
    visible_devices_envfrom,
    visible_devices_valuefrom,
)
from rules.catalog.checks import checked
from rules.catalog.components import (
    device_plugin_priority,
    device_plugin_toleration,
    webhook_blocks_system_pods,
    webhook_misses_ephemeral_containers,
)
from rules.catalog.hygiene import (
    cpu_or_memory_missing,
    idle_gpu_holder,
    job_without_deadline,
    memory_volume_without_limit,
    mutable_image_tag,
    rdma_without_ipc_lock,
    rollout_needs_spare_gpus,
    shared_memory_exceeds_limit,
    shared_memory_missing,
)
from rules.catalog.nodes import (
    cgpu_outside_ecs,
    legacy_gpushare_label,
    node_below_requirements,
    node_mode_without_resource,
    node_share_totals,
    placement_without_sharing,
    static_cpu_manager,
    unknown_node_mode,
)
from rules.catalog.quota import (
    limit_range_exceeded,
    limit_range_gpu,
    quota_exceeded,
    quota_fraction,
    quota_inert_key,
    quota_needs_requests,
    quota_replicas,
    unknown_quota_resource,
)
from rules.catalog.requests import (
    absurd_count,
    cuda_visible_devices,
    extended_resource_amount,
    fractional_gpu,
    image_vendor_mismatch,
    init_container_gpu,
    misplaced_gpu,
    mixed_families,
    parallel_size_mismatch,
    placeholder_quantity,
    redundant_request,
    request_ne_limit,
    request_only,
    unknown_gpu_resource,
    zero_gpu,
)
from rules.catalog.scheduling import (
    affinity_contradiction,
    affinity_default,
    enforced_affinity,
    node_mode_mismatch,
    scheduler_mismatch,
    scheduler_name,
    toleration_default,
    toleration_mismatch,
    unknown_node_label_value,
)
from rules.catalog.security import (
    admin_access_claim,
    host_namespaces,
    ld_preload,
    privileged_gpu,
    sys_admin_gpu,
)
from rules.catalog.sharing import (
    core_percentage_step,
    core_without_mem,
    fraction_annotation,
    gpu_count_label,
    gpu_mem_fraction,
    gpu_mem_unit,
    inconsistent_containers,
    memory_exceeds_card,
    placement_label,
    reserved_gpushare_keys,
    share_limit_override,
    share_visible_devices,
    share_without_card,
    small_share,
)
from rules.rule import Rule

NAME_CORRECTION = (unknown_gpu_resource.RULE,)
"""Corrects resource names first, because they decide which containers request a GPU."""
# The scheduler comes next: it decides whether annotations ask for a part of a GPU.
SAFE_FIXES = (
    scheduler_name.RULE,
    share_visible_devices.RULE,
    visible_devices_env.RULE,
    visible_devices_valuefrom.RULE,
    gpu_container_hidden.RULE,
    legacy_cuda_version.RULE,
    image_default_all.RULE,
    request_only.RULE,
    toleration_default.RULE,
    affinity_default.RULE,
    enforced_affinity.RULE,
)
"""Rules most of whose fixes are safe. Safe fixes are made by default."""
OPT_IN_FIXES = (
    visible_devices_envfrom.RULE,
    visible_devices_configmap.RULE,
    swarm_resource_env.RULE,
    mig_admin_env.RULE,
    imex_channels.RULE,
    device_list_mount.RULE,
    cdi_annotation.RULE,
    nri_cdi_annotation.RULE,
    device_injector_annotation.RULE,
    ephemeral_gpu.RULE,
    share_limit_override.RULE,
    reserved_gpushare_keys.RULE,
    gpu_mem_fraction.RULE,
    gpu_mem_unit.RULE,
    fractional_gpu.RULE,
    core_percentage_step.RULE,
    request_ne_limit.RULE,
    redundant_request.RULE,
    zero_gpu.RULE,
    privileged_gpu.RULE,
    sys_admin_gpu.RULE,
    host_namespaces.RULE,
    ld_preload.RULE,
    toleration_mismatch.RULE,
    unknown_quota_resource.RULE,
    quota_inert_key.RULE,
)
"""Rules whose fixes need `fix: true` in the policy; a rule's docstring states any exception."""
REPORTS = (
    device_hostpath.RULE,
    runtime_socket.RULE,
    run_gpu_command.RULE,
    plugin_dir_hostpath.RULE,
    runtimeclass_nvidia_no_gpu.RULE,
    nodename_pinned.RULE,
    monitoring_resource.RULE,
    absurd_count.RULE,
    misplaced_gpu.RULE,
    init_container_gpu.RULE,
    mixed_families.RULE,
    placeholder_quantity.RULE,
    extended_resource_amount.RULE,
    parallel_size_mismatch.RULE,
    cuda_visible_devices.RULE,
    image_vendor_mismatch.RULE,
    core_without_mem.RULE,
    share_without_card.RULE,
    fraction_annotation.RULE,
    inconsistent_containers.RULE,
    gpu_count_label.RULE,
    memory_exceeds_card.RULE,
    small_share.RULE,
    placement_label.RULE,
    scheduler_mismatch.RULE,
    affinity_contradiction.RULE,
    node_mode_mismatch.RULE,
    unknown_node_label_value.RULE,
    quota_fraction.RULE,
    limit_range_gpu.RULE,
    limit_range_exceeded.RULE,
    quota_exceeded.RULE,
    quota_needs_requests.RULE,
    quota_replicas.RULE,
    admin_access_claim.RULE,
    node_below_requirements.RULE,
    shared_memory_missing.RULE,
    shared_memory_exceeds_limit.RULE,
    memory_volume_without_limit.RULE,
    rdma_without_ipc_lock.RULE,
    cpu_or_memory_missing.RULE,
    mutable_image_tag.RULE,
    unknown_node_mode.RULE,
    placement_without_sharing.RULE,
    legacy_gpushare_label.RULE,
    node_mode_without_resource.RULE,
    node_share_totals.RULE,
    cgpu_outside_ecs.RULE,
    static_cpu_manager.RULE,
    idle_gpu_holder.RULE,
    rollout_needs_spare_gpus.RULE,
    job_without_deadline.RULE,
    device_plugin_priority.RULE,
    device_plugin_toleration.RULE,
    webhook_blocks_system_pods.RULE,
    webhook_misses_ephemeral_containers.RULE,
)
"""Rules without fixes."""

CATALOG: tuple[Rule[Any], ...] = checked(NAME_CORRECTION, SAFE_FIXES, OPT_IN_FIXES, REPORTS)
