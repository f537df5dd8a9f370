"""The tables of what vendors require, and the answers that are read from them."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.profiles import merged_profile
from rules.placement.node_labels import values_without_wildcard
from rules.profile.platforms.ack import (
    COMPUTING_POWER,
    CONTAINER_OPTIMIZED_SYSTEM,
    FEATURES,
    MEMORY_ISOLATION,
    REGISTERED_CLUSTER_SHARING,
)
from rules.profile.platforms.cards import CARDS, memory_sizes_gb
from rules.profile.platforms.gke import PARTITION_SIZES, SIZES_OF_OTHER_CARDS
from rules.profile.platforms.label_values import LABELS, meant_values
from rules.profile.platforms.programs import TOOLKIT_ADVISORIES
from rules.profile.platforms.records import Component, Feature
from rules.profile.platforms.support import (
    Support,
    affecting_advisories,
    card_support,
    os_support,
    region_support,
    runtime_support,
    version_support,
)

PARTITION_SIZE = "cloud.google.com/gke-gpu-partition-size"
YES, NO, UNKNOWN = Support.SUPPORTED, Support.UNSUPPORTED, Support.UNKNOWN


@pytest.mark.parametrize(
    ("feature", "component", "version", "expected"),
    [
        (MEMORY_ISOLATION, "driver", "418.87.01", YES),
        (MEMORY_ISOLATION, "driver", "418.87.00", NO),
        (MEMORY_ISOLATION, "driver", "418.87", UNKNOWN),  # the last number decides
        (MEMORY_ISOLATION, "driver", "535", YES),
        (MEMORY_ISOLATION, "driver", "418.116.00", YES),  # by number, not by letter
        (MEMORY_ISOLATION, "driver", "", UNKNOWN),
        (MEMORY_ISOLATION, "driver", "latest", UNKNOWN),
        (MEMORY_ISOLATION, "kubernetes", "v1.31.0", UNKNOWN),  # the page states none
        (COMPUTING_POWER, "kubernetes", "v1.20.4-aliyun.1", YES),
        (COMPUTING_POWER, "kubernetes", "1.20", YES),
        (COMPUTING_POWER, "kubernetes", "v1.18.8-aliyun.1", NO),
        (COMPUTING_POWER, "kubernetes", "v1.9", NO),
        (COMPUTING_POWER, "cgpu", "1.0.5", YES),
        (COMPUTING_POWER, "cgpu", "v1.0.4", NO),
        (COMPUTING_POWER, "ack-ai-installer", "1.2.0", NO),  # only later versions
        (COMPUTING_POWER, "ack-ai-installer", "1.2.1", YES),
        (CONTAINER_OPTIMIZED_SYSTEM, "ack-ai-installer", "v1.12.6", YES),
        (CONTAINER_OPTIMIZED_SYSTEM, "ack-ai-installer", "1.9.0", NO),
        (REGISTERED_CLUSTER_SHARING, "kubernetes", "v1.22.0+k3s1", YES),
        (REGISTERED_CLUSTER_SHARING, "kubernetes", "v1.21.14-eks-1-21", NO),
        (REGISTERED_CLUSTER_SHARING, "kubernetes", "v1.22.0-rc.1", NO),  # precedes 1.22.0
    ],
)
def test_versions(feature: Feature, component: Component, version: str, expected: Support) -> None:
    assert version_support(feature, component, version) is expected


@pytest.mark.parametrize(
    ("cluster", "version", "expected"),
    [
        ("v1.28.3-aliyun.1", "v1.28.1-aliyun-5.6-998282b9", YES),
        ("1.28", "1.28.1-aliyun-5.10-0123abcd", YES),
        ("1.28", "1.28.1-aliyun-5.5-0123abcd", NO),
        ("1.28", "1.28.12-aliyun-6.7.1-0123abcd", YES),
        ("1.26", "1.26.3-aliyun-4.1-a520c096", YES),  # the page writes it with a `v`
        ("1.26", "v1.26.3-ack-4.1", UNKNOWN),  # builds of two kinds
        ("1.26", "v1.26.3", UNKNOWN),  # no build of ACK's
        ("1.24", "1.24.3-ack-1.9", NO),
        ("1.24", "1.24.6-ack-1.0", YES),
        ("1.22", "1.22.15-ack-2.0", YES),
        ("1.20", "v1.20.4-ack-7.0", NO),
        ("1.27", "1.28.1-aliyun-5.6-998282b9", UNKNOWN),  # no row of the table
        ("", "1.28.1-aliyun-5.6-998282b9", UNKNOWN),
    ],
)
def test_builds_of_the_scheduler(cluster: str, version: str, expected: Support) -> None:
    assert version_support(COMPUTING_POWER, "kube-scheduler", version, cluster) is expected


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("containerd://1.4.3", YES),
        ("containerd://1.6.28-0ubuntu1", YES),
        ("containerd://2.1.1", YES),
        ("containerd://1.4.1", NO),
        ("containerd://1.4.3-rc.1", NO),
        ("containerd://1.4", UNKNOWN),
        ("docker://19.3.5", YES),  # as the kubelet writes 19.03.5
        ("docker://19.3.4", NO),
        ("docker://18.9.9", NO),
        ("cri-o://1.30.0", UNKNOWN),
        ("1.6.28", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_container_runtimes(runtime: str, expected: Support) -> None:
    assert runtime_support(MEMORY_ISOLATION, runtime) is expected


@pytest.mark.parametrize(
    ("os_image", "isolated", "registered"),
    [
        ("Alibaba Cloud Linux 3 (Soaring Falcon)", YES, YES),
        ("Alibaba Cloud Linux (Aliyun Linux) 2.1903 LTS (Hunting Beagle)", YES, YES),
        ("CentOS Linux 7.9.2009 (Core)", YES, NO),
        ("CentOS Linux 7.7.1908 (Core)", YES, YES),
        ("CentOS Linux 7 (Core)", UNKNOWN, UNKNOWN),
        ("CentOS Linux 8", NO, NO),
        ("Ubuntu 22.04.4 LTS", YES, NO),
        ("Ubuntu 18.04.6 LTS", NO, YES),
        ("Debian GNU/Linux 12 (bookworm)", NO, NO),
        ("LifseaOS 3.2104", UNKNOWN, UNKNOWN),
        ("", UNKNOWN, UNKNOWN),
    ],
)
def test_operating_systems(os_image: str, isolated: Support, registered: Support) -> None:
    assert os_support(MEMORY_ISOLATION, os_image) is isolated
    assert os_support(REGISTERED_CLUSTER_SHARING, os_image) is registered


def test_the_two_lists_of_regions_differ_in_four() -> None:
    assert len(MEMORY_ISOLATION.regions) == len(COMPUTING_POWER.regions) == 15
    differing = set(MEMORY_ISOLATION.regions) ^ set(COMPUTING_POWER.regions)
    isolation_only = {"cn-wulanchabu", "eu-central-1"}
    assert differing == {*isolation_only, "ap-southeast-7", "cn-shanghai-finance-1"}
    for region in differing:
        answers = region_support(MEMORY_ISOLATION, region), region_support(COMPUTING_POWER, region)
        assert answers == ((YES, NO) if region in isolation_only else (NO, YES))
    assert region_support(MEMORY_ISOLATION, "") is UNKNOWN
    assert region_support(REGISTERED_CLUSTER_SHARING, "cn-beijing") is UNKNOWN


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("Tesla-T4", (16,), YES),
        ("nvidia-tesla-t4", (16,), YES),
        ("Tesla-V100-SXM2-16GB", (16,), YES),
        ("Tesla-V100-SXM2", (16, 32), YES),
        ("NVIDIA-A100-SXM4-80GB-SHARED", (80,), YES),
        ("nvidia-tesla-a100", (40,), YES),
        ("nvidia-a100-80gb", (80,), YES),
        ("NVIDIA-H100-80GB-HBM3", (80,), YES),
        ("nvidia-h200-141gb", (141,), YES),
        ("NVIDIA-L40S", (48,), NO),  # the page lists P, T, V, A and H
        ("nvidia-b200", (180,), NO),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", (), UNKNOWN),
        ("Tesla-K80", (), NO),  # by the letter of its series
        ("NVIDIA-M60", (), NO),
        ("NVIDIA-GeForce-RTX-4090", (), NO),
        ("Quadro-RTX-8000", (), NO),
        ("NVIDIA-T1000", (), UNKNOWN),
        ("NVIDIA-RTX-A6000", (), UNKNOWN),
        ("Example-9000", (), UNKNOWN),
        ("", (), UNKNOWN),
    ],
)
def test_cards(name: str, sizes: tuple[int, ...], expected: Support) -> None:
    assert memory_sizes_gb(name) == sizes
    assert card_support(MEMORY_ISOLATION, name) is expected


@given(st.sampled_from(FEATURES), st.text(st.characters(exclude_categories=["N"])))
def test_a_text_without_numbers_is_never_supported(feature: Feature, text: str) -> None:
    assert runtime_support(feature, text) is UNKNOWN
    assert os_support(feature, text) is not YES
    assert card_support(feature, text) is not YES
    for minimum in feature.minimums:
        assert version_support(feature, minimum.component, text) is UNKNOWN


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.19.1-ubi9", []),
        ("v1.20.0-rc.1", []),
        ("1.19.0", ["June 2026"]),
        ("v1.19.1-rc.1", ["June 2026"]),  # precedes 1.19.1
        ("v1.20.0-rc.1", None),  # may be older than 1.19.1
        ("v1.17.7-ubuntu20.04", ["July 2025", "June 2026"]),
        ("1.17.3", ["February 2025", "July 2025", "June 2026"]),
        ("1.19", None),  # the last number decides
        ("latest", None),
        ("", None),
    ],
)
def test_known_vulnerabilities(version: str, expected: list[str] | None) -> None:
    found = affecting_advisories(TOOLKIT_ADVISORIES, version)
    if expected is None:
        assert found is None
    else:
        assert [advisory.source.title.rpartition(" - ")[2] for advisory in found or ()] == expected


def test_every_bulletin_has_a_source_and_a_newer_version_than_the_last() -> None:
    for advisory in TOOLKIT_ADVISORIES:
        assert advisory.vulnerabilities
        assert advisory.source.url.startswith("https://nvidia.custhelp.com/")
    for before, after in pairwise(TOOLKIT_ADVISORIES):
        assert affecting_advisories([before], after.fixed_version) == []
    assert TOOLKIT_ADVISORIES[-1].source.update_date


def test_every_table_has_a_source_and_every_card_a_size() -> None:
    for card in CARDS:
        assert all(source.url.startswith("https://") for source in card.sources), card.model
        assert any(source.read_date for source in card.sources), card.model
    sources = [*(f.source for f in FEATURES), *(s for card in CARDS for s in card.sources)]
    assert all(source.publisher and source.title for source in sources)
    assert all(card.memory == tuple(sorted(set(card.memory))) for card in CARDS)
    assert len({card.model for card in CARDS}) == len(CARDS)


def test_a_plain_run_loads_no_table(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
        "  - {name: a, image: a, resources: {limits: {aliyun.com/gpu-mem: 3}}}\n"
    )
    code = (
        "import sys; from gpuward.__main__ import main\n"
        "try: main(['lint', sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "print([n for n in sys.modules if n.startswith('rules.platforms')])"
    )
    run = [sys.executable, "-c", code, str(file)]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert output.endswith("[]\n")


@pytest.mark.parametrize("label", LABELS)
def test_no_known_value_of_a_label_is_taken_for_another(label: str) -> None:
    values = LABELS[label]
    assert [v for v in (*values.known, *values.tolerated) if meant_values(values, v)] == []


@pytest.mark.parametrize("label", LABELS)
def test_every_known_value_is_meant_by_itself_in_another_case(label: str) -> None:
    values = LABELS[label]
    meant = {value: meant_values(values, value.swapcase()) for value in values.known}
    assert meant == {value: (value,) for value in values.known}


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("value", ["a" * 100_000, "l4-" * 30_000, "L4" * 40, "-", "\u212a80"])
def test_a_value_that_no_label_can_have_is_compared_in_no_time(label: str, value: str) -> None:
    if LABELS[label].others != "none":
        assert meant_values(LABELS[label], value) in {(), (value.lower(),)}


def test_sizes_of_other_cards_are_none_of_gke() -> None:
    assert not SIZES_OF_OTHER_CARDS & PARTITION_SIZES


def test_the_profile_of_gke_knows_every_size_of_its_cards() -> None:
    modes = merged_profile(["gke"]).node_modes[PARTITION_SIZE]
    assert set(values_without_wildcard(modes)) == PARTITION_SIZES
