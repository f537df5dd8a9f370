"""The requirements of Alibaba Cloud's Container Service for Kubernetes (ACK) for shared GPUs."""

from collections.abc import Iterable
from types import MappingProxyType

from rules.profile.platforms.records import Feature, MinimumVersion, OperatingSystem, SourcePage

ALIBABA = "Alibaba Cloud"
SHARING_COMPONENT = SourcePage(ALIBABA, "Manage the shared GPU scheduling component", "2026-06-23")
COMPUTING_POWER_PAGE = SourcePage(
    ALIBABA, "Allocate computing power by scheduling shared GPU", "2026-03-26"
)
REGISTERED_CLUSTERS = SourcePage(ALIBABA, "Shared GPU scheduling in registered clusters")

# Both lists have fifteen regions. Thirteen are the same.
_COMMON_REGIONS = {
    "cn-beijing": "China (Beijing)",
    "cn-shanghai": "China (Shanghai)",
    "cn-hangzhou": "China (Hangzhou)",
    "cn-zhangjiakou": "China (Zhangjiakou)",
    "cn-shenzhen": "China (Shenzhen)",
    "cn-chengdu": "China (Chengdu)",
    "cn-heyuan": "China (Heyuan)",
    "cn-hongkong": "China (Hong Kong)",
    "ap-southeast-5": "Indonesia (Jakarta)",
    "ap-southeast-1": "Singapore",
    "us-east-1": "US (Virginia)",
    "us-west-1": "US (Silicon Valley)",
    "ap-northeast-1": "Japan (Tokyo)",
}
_ALIBABA_LINUX = OperatingSystem(
    "Alibaba Cloud Linux", ("alibaba cloud linux", "aliyun linux"), ("2", "3")
)

# The page's list of Kubernetes versions is empty.
MEMORY_ISOLATION = Feature(
    name="ack-memory-isolation",
    title="isolation of GPU memory by cGPU",
    source=SHARING_COMPONENT,
    minimums=(
        MinimumVersion("driver", "418.87.01"),
        MinimumVersion("containerd", "1.4.3"),
        MinimumVersion("docker", "19.03.5"),
    ),
    operating_systems=(
        _ALIBABA_LINUX,
        OperatingSystem("CentOS", ("centos",), ("7.6", "7.7", "7.9")),
        OperatingSystem("Ubuntu", ("ubuntu",), ("22.04",)),
    ),
    regions=MappingProxyType(
        {
            **_COMMON_REGIONS,
            "cn-wulanchabu": "China (Wulanchabu)",
            "eu-central-1": "Germany (Frankfurt)",
        }
    ),
    card_families=("P", "T", "V", "A", "H"),
    max_pods_per_card=20,
)

COMPUTING_POWER = Feature(
    name="ack-computing-power",
    title="allocation of computing power by cGPU",
    source=COMPUTING_POWER_PAGE,
    minimums=(
        MinimumVersion("kubernetes", "1.20"),
        MinimumVersion("kube-scheduler", "1.28.1-aliyun-5.6-998282b9", cluster_version="1.28"),
        MinimumVersion("kube-scheduler", "v1.26.3-aliyun-4.1-a520c096", cluster_version="1.26"),
        MinimumVersion("kube-scheduler", "1.24.3-ack-2.0", cluster_version="1.24"),
        MinimumVersion("kube-scheduler", "1.22.15-ack-2.0", cluster_version="1.22"),
        MinimumVersion("kube-scheduler", "1.20.4-ack-8.0", cluster_version="1.20"),
        MinimumVersion("ack-ai-installer", "1.2.0", is_exclusive=True),
        MinimumVersion("cgpu", "1.0.5"),
    ),
    regions=MappingProxyType(
        {
            **_COMMON_REGIONS,
            "ap-southeast-7": "Thailand (Bangkok)",
            "cn-shanghai-finance-1": "China East 2 Finance",
        }
    ),
    clusters_since="2022-03-01",
)

# The container-optimized edition of Alibaba Cloud Linux 3.
CONTAINER_OPTIMIZED_SYSTEM = Feature(
    name="ack-container-optimized",
    title="isolation of GPU memory on the container-optimized edition of Alibaba Cloud Linux 3",
    source=SHARING_COMPONENT,
    minimums=(MinimumVersion("ack-ai-installer", "1.12.6"),),
)

REGISTERED_CLUSTER_SHARING = Feature(
    name="ack-registered",
    title="shared GPU scheduling in registered clusters",
    source=REGISTERED_CLUSTERS,
    minimums=(MinimumVersion("kubernetes", "1.22"),),
    operating_systems=(
        _ALIBABA_LINUX,
        OperatingSystem("CentOS", ("centos",), ("7.6", "7.7")),
        OperatingSystem("Ubuntu", ("ubuntu",), ("16.04", "18.04")),
    ),
)

FEATURES = (
    MEMORY_ISOLATION,
    COMPUTING_POWER,
    CONTAINER_OPTIMIZED_SYSTEM,
    REGISTERED_CLUSTER_SHARING,
)

# What a node with the value of `ack.node.gpu.schedule` needs, whatever the cluster.
_FEATURES_BY_MODE = MappingProxyType(
    {
        "share": (),
        "cgpu": (MEMORY_ISOLATION,),
        "core_mem": (MEMORY_ISOLATION, COMPUTING_POWER),
    }
)
REGISTERED_SCHEDULER = "ack-co-scheduler"
"""The scheduler that registered clusters have, and managed ones have not."""


def features_of(mode: str, os_image: str, *, is_registered: bool) -> tuple[Feature, ...]:
    """Return what a node with this value of `ack.node.gpu.schedule` and this system needs."""
    if mode not in _FEATURES_BY_MODE:
        return ()
    features = _FEATURES_BY_MODE[mode]
    if features and _is_container_optimized(os_image):
        features = (*features, CONTAINER_OPTIMIZED_SYSTEM)
    return (REGISTERED_CLUSTER_SHARING, *features) if is_registered else features


def _is_container_optimized(os_image: str) -> bool:
    text = os_image.lower()
    return "container" in text and any(word in text for word in _ALIBABA_LINUX.words)


def titles_of_pages_listing(region: str, features: Iterable[Feature]) -> str:
    """The pages of `features` that list `region`, for a message; empty if none does.

    The pages disagree about four regions.
    """
    titles = (f'"{f.source.title}"' for f in features if region in f.regions)
    return " and ".join(dict.fromkeys(titles))
