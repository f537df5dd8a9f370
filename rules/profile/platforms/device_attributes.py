"""The attributes that drivers publish for dynamic resource allocation, by driver.

Sources, read in November 2026:

- NVIDIA: kubernetes-sigs/dra-driver-nvidia-gpu, `cmd/gpu-kubelet-plugin/deviceinfo.go`,
  `partitions.go` and `consumable_shares.go`, and the classes of its chart;
- AMD: ROCm/k8s-gpu-dra-driver, `docs/driver-attributes.md`;
- Intel: intel/intel-resource-drivers-for-kubernetes, `cmd/kubelet-gpu-plugin/node_state.go`;
- Google: kubernetes-sigs/dra-driver-google-tpu, `cmd/tpu-dra-kubeletplugin/manager.go`;
- AWS: https://docs.aws.amazon.com/eks/latest/userguide/device-management-neuron.html (the class);
- the names of Kubernetes: `staging/src/k8s.io/dynamic-resource-allocation/deviceattribute`.
"""

from collections.abc import Mapping
from typing import NamedTuple

STRING_TYPE, INT_TYPE, BOOL_TYPE, VERSION_TYPE, UNKNOWN_TYPE = (
    "string",
    "int",
    "bool",
    "version",
    "",
)


class Driver(NamedTuple):
    """The attributes that the devices of a driver may have.

    - `attributes`: the type of each; UNKNOWN_TYPE if it differs between releases.
    - `capacity`: the names of quantities.
    - `values`: all values that an attribute can have.
    - `attributes_lacking_by_class`: for a device class, the attributes that its devices never have,
      and the class whose devices have them.
    """

    attributes: Mapping[str, str]
    capacity: frozenset[str]
    values: Mapping[str, tuple[str, ...]] = {}
    attributes_lacking_by_class: Mapping[str, tuple[frozenset[str], str]] = {}


_NVIDIA_STRINGS = (
    *("type", "uuid", "productName", "brand", "architecture", "addressingMode", "parentUUID"),
    *("profile", "deviceID", "vendorID"),
)
_NVIDIA = Driver(
    {
        **dict.fromkeys(_NVIDIA_STRINGS, STRING_TYPE),
        **dict.fromkeys(
            ("cudaComputeCapability", "driverVersion", "cudaDriverVersion"), VERSION_TYPE
        ),
        "iommuFDEnabled": BOOL_TYPE,
        **dict.fromkeys(("gpuModuleId", *(f"partition{n}" for n in (1, 2, 4, 8))), INT_TYPE),
        # Of earlier releases.
        **dict.fromkeys(("index", "minor", "parentIndex", "parentMinor"), INT_TYPE),
        **dict.fromkeys(("pcieBusID", "pciBusID", "pcieRoot", "numaNode", "numa"), UNKNOWN_TYPE),
    },
    frozenset(
        {
            *("memory", "shares", "addressableMemory", "multiprocessors", "copyEngines"),
            *("decoders", "encoders", "jpegEngines", "ofaEngines"),
            *(f"memorySlice{number}" for number in range(16)),
        }
    ),
    {"type": ("gpu", "mig", "vfio")},
    {
        "gpu.nvidia.com": (
            frozenset({"profile", "parentUUID", "parentIndex", "parentMinor"}),
            "mig.nvidia.com",
        )
    },
)
_AMD = Driver(
    {
        **dict.fromkeys(("type", "deviceID", "productName", "partitionProfile"), STRING_TYPE),
        **dict.fromkeys(("computePartition", "memoryPartition", "driverVersionFull"), STRING_TYPE),
        "driverVersion": VERSION_TYPE,
        **dict.fromkeys(("numaNode", "gpuIndex"), INT_TYPE),
        **dict.fromkeys(("pciAddr", "family", "cardIndex", "renderIndex", "driverSrcVersion"), ""),
        **dict.fromkeys(
            ("iommuGroup", "vfioModule", "vendorID", "uuid", "parentUUID"), UNKNOWN_TYPE
        ),
    },
    frozenset({"memory", "computeUnits", "simdUnits", "partitions"}),
    {"type": ("amdgpu", "amdgpu-partition", "vfio")},
)
_INTEL = Driver(
    {
        **dict.fromkeys(
            ("model", "family", "driver", "pciId", "pciAddress", "health"), STRING_TYPE
        ),
        "sriov": BOOL_TYPE,
        "pciRoot": STRING_TYPE,
    },
    frozenset({"memory", "millicores"}),
)
_TPU = Driver(
    {
        **dict.fromkeys(("uuid", "tpuGen", "brand", "accelerator", "topology"), STRING_TYPE),
        **dict.fromkeys(("index", "chipCount"), INT_TYPE),
    },
    frozenset(),
)
_STANDARD = Driver(
    {"pcieRoot": STRING_TYPE, "pciBusID": STRING_TYPE, "numaNode": INT_TYPE},
    frozenset(),
)

STANDARD_DOMAIN = "resource.kubernetes.io"
"""The domain of names that Kubernetes itself defines."""
DRIVERS: Mapping[str, Driver] = {
    "gpu.nvidia.com": _NVIDIA,
    "gpu.amd.com": _AMD,
    "gpu.intel.com": _INTEL,
    "tpu.google.com": _TPU,
    STANDARD_DOMAIN: _STANDARD,
}
"""By the domain of their attributes, which is the name of the driver."""
VENDOR_CLASSES = (
    *("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
    *("compute-domain-daemon.nvidia.com", "compute-domain-default-channel.nvidia.com"),
    *("gpu.amd.com", "gpu.intel.com", "vfio.gpu.intel.com", "gaudi.intel.com"),
    *("tpu.google.com", "neuron.aws.com"),
)
"""The classes that drivers of vendors install."""
