"""The annotations and labels by which schedulers and device plugins know who holds which card."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from rules.base.caching import cached_by_text
from rules.base.text_matching import matches, matches_any

# Patterns of annotations that only schedulers and device plugins write.
ALLOCATION_ANNOTATIONS = (
    # ACK, and koordinator (koordinator-sh/koordinator apis/extension/device_share.go and
    # apis/extension/reservation.go).
    "ALIYUN_COM_GPU_MEM_*",
    "scheduler.framework.gpushare.*",
    "gpushare.alibabacloud.com/*",
    "scheduling.koordinator.sh/device-allocated*",
    "scheduling.koordinator.sh/reservation-allocated",
    # HAMi (Project-HAMi/HAMi pkg/util/types.go), under another domain before version 2.3, and
    # Volcano's device plugin (Project-HAMi/volcano-vgpu-device-plugin, the same file in
    # pkg/plugin/vgpu).
    *(
        f"{domain}/{name}"
        for domain in ("hami.io", "4pd.io", "volcano.sh")
        for name in ("vgpu-node", "vgpu-time", "vgpu-ids-new", "bind-phase", "bind-time")
    ),
    *("4pd.io/devices-to-allocate", "volcano.sh/devices-to-allocate"),
    # One pair for each maker of cards, such as vgpu-devices-to-allocate.
    *("hami.io/*-allocated*", "hami.io/*-to-allocate*"),
    # The MIG devices of a pod: HAMi's device plugin removes those that no pod names
    # (pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go).
    "hami.io/vgpu-mig-allocations",
    # Volcano's older device plugin; its gpu-assigned is among the next.
    "volcano.sh/gpu-index",
    # Tencent's gpu-manager (tkestack/gpu-manager pkg/types/types.go). Other makers' plugins have
    # the same names in domains of their own: Iluvatar, Moore Threads, MetaX, Inspur.
    *("*/predicate-gpu-idx-*", "*/predicate-time", "*/predicate-node", "*/gpu-assigned"),
    # What HAMi writes for the makers' own device plugins: MetaX, Moore Threads, Kunlunxin,
    # Cambricon (the misspelt key is the one that its plugin reads), Enflame
    # (Project-HAMi/HAMi pkg/device/*/device.go).
    *("metax-tech.com/gpu-devices-allocated", "mthreads.com/gpu-index", "BAIDU_COM_DEVICE_IDX"),
    *("CAMBRICON_DSMLU_PROFILE", "CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_ASSIGNED"),
    *("enflame.com/gcu-assigned*", "assigned-containers"),
    # Ascend's cards, such as huawei.com/Ascend910, by Volcano and HAMi (volcano-sh/volcano
    # pkg/scheduler/api/devices/ascend/mindcluster/ascend310p/vnpu/type.go).
    # What the kubelet chose, and the time by which Huawei's device plugin finds the pod, are beside
    # them (Ascend/ascend-device-plugin pkg/common/constants.go).
    *("huawei.com/Ascend*", "huawei.com/npu-core", "huawei.com/kltDev", "predicate-time"),
    # Intel's extender of the scheduler, and its device plugin with `-resource-manager`
    # (intel/platform-aware-scheduling gpu-aware-scheduling/pkg/gpuscheduler/scheduler.go,
    # intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin/rm/gpu_plugin_resource_manager.go).
    *("gas-container-cards", "gas-container-tiles", "gas-ts"),
    # TensorFusion's scheduler and hypervisor (NexusGPU/tensor-fusion pkg/constants/constants.go).
    # The hypervisor limits a pod by effective-hard-sm-percent, whatever the pod asked for
    # (pkg/hypervisor/worker/allocation.go).
    *(f"tensor-fusion.ai/{name}" for name in ("gpu-ids", "container-gpus", "index")),
    *("tensor-fusion.ai/partition-uuids", "tensor-fusion.ai/effective-hard-sm-percent"),
    # elastic-ai/elastic-gpu-scheduler pkg/utils, which lists the pods of a node by the label below.
    *("elasticgpu.io/assumed", "elasticgpu.io/container-*"),
    # KAI's binder (kai-scheduler/KAI-Scheduler pkg/common/constants/constants.go,
    # pkg/binder/binding/binder.go).
    "received-resource-type",
)
# The same of labels: KAI's binder names the card that a pod shares by the first, several by the
# second (pkg/common/resources/gpu_sharing.go).
ALLOCATION_LABELS = ("runai-gpu-group", "runai-gpu-group/*", "elasticgpu.io/assumed")
# Annotations by which a new pod asks for a part of a card, and by which the scheduler goes on
# counting what the pod holds (kai-scheduler/KAI-Scheduler pkg/common/resources/gpu_sharing.go,
# pkg/podgroupcontroller/controllers/resources; volcano-sh/volcano
# pkg/scheduler/api/devices/nvidia/vgpu/utils.go). By TensorFusion's its scheduler counts when it
# starts, and the hypervisor limits the pod whenever it changes (NexusGPU/tensor-fusion
# internal/utils/resource.go ComposeAllocationRequest,
# pkg/hypervisor/backend/kubernetes/pod_cache.go).
COUNTED_ANNOTATIONS = frozenset(
    {
        *("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "volcano.sh/vgpu-mode"),
        *(
            f"tensor-fusion.ai/{resource}-{part}"
            for resource in ("tflops", "vram", "compute-percent")
            for part in ("request", "limit")
        ),
        *("tensor-fusion.ai/gpu-count", "tensor-fusion.ai/isolation"),
        # Which kind of part it gets: docs/cross-vendor-test-matrix.md, and internal/gpuallocator,
        # which counts what the kind has.
        "tensor-fusion.ai/partition-id",
    }
)
# The same of labels: by this one TensorFusion's scheduler lists the pods that hold cards
# (internal/gpuallocator/gpuallocator.go).
COUNTED_LABELS = frozenset({"tensor-fusion.ai/component"})
# By scheduler, the keys that say which queue or quota pays for a pod: the group or the application
# that is in a queue, the queue, or the quota itself. KAI and Run:ai, of which it is a part, know
# groups by their names alone, whatever the namespace, and a pod without an owner may choose any
# (kai-scheduler/KAI-Scheduler pkg/scheduler/cache/cluster_info/cluster_info.go,
# pkg/podgrouper/pod_controller.go; volcano-sh/volcano pkg/scheduler/api/job_info.go;
# koordinator-sh/koordinator pkg/scheduler/plugins/elasticquota/pod_handler.go). YuniKorn looks the
# application up with every event of a pod, and the queue when it starts
# (apache/yunikorn-k8shim pkg/common/utils/utils.go, pkg/cache/context.go).
KAI_SCHEDULER, KAI_GROUP = "kai-scheduler", "pod-group-name"
_YUNIKORN_KEYS = ("yunikorn.apache.org/app-id", "yunikorn.apache.org/queue")
PAYER_KEYS_BY_SCHEDULER: Mapping[str, Collection[tuple[str, str]]] = MappingProxyType(
    {
        KAI_SCHEDULER: (("annotations", KAI_GROUP),),
        "runai-scheduler": (("annotations", KAI_GROUP),),
        "volcano": (("annotations", "scheduling.k8s.io/group-name"),),
        "koord-scheduler": (("labels", "quota.scheduling.koordinator.sh/name"),),
        "yunikorn": (
            *(("annotations", key) for key in _YUNIKORN_KEYS),
            *(("labels", key) for key in _YUNIKORN_KEYS),
            *(("labels", key) for key in ("applicationId", "queue", "spark-app-selector")),
        ),
    }
)
PAYER_LABELS = frozenset(
    key for keys in PAYER_KEYS_BY_SCHEDULER.values() for field, key in keys if field == "labels"
)


@cached_by_text
def is_allocation_annotation(key: str) -> bool:
    """Return whether only schedulers and device plugins write the annotation `key`."""
    return any(matches(pattern, key) for pattern in ALLOCATION_ANNOTATIONS)


def is_allocation_label(key: str) -> bool:
    """Return whether only schedulers write the label `key`."""
    return matches_any(ALLOCATION_LABELS, key)
