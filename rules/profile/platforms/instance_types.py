"""The number of GPUs or other accelerators of a machine, by its instance type.

AWS: Karpenter's list of instance types (https://karpenter.sh/preview/reference/instance-types/, as
of 2026-08-21). Google Cloud: Compute Engine, GPU machine types
(https://cloud.google.com/compute/docs/gpus, read 2026-11-22).
"""

import re
from collections.abc import Mapping

# By family: how many accelerators the sizes have that are named.
_AWS_SIZES_BY_FAMILY_AND_COUNT: Mapping[str, Mapping[int, str]] = {
    "dl2q": {8: "24xlarge"},
    "g4ad": {1: "xlarge 2xlarge 4xlarge", 2: "8xlarge", 4: "16xlarge"},
    "g4dn": {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge", 8: "metal"},
    "g5": {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g5g": {1: "xlarge 2xlarge 4xlarge 8xlarge", 2: "16xlarge metal"},
    "g6": {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g6e": {1: "xlarge 2xlarge 4xlarge 8xlarge 16xlarge", 4: "12xlarge 24xlarge", 8: "48xlarge"},
    "g7": {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"},
    "g7e": {1: "2xlarge 4xlarge 8xlarge", 2: "12xlarge", 4: "24xlarge", 8: "48xlarge"},
    "gr6": {1: "4xlarge 8xlarge"},
    "inf1": {1: "xlarge 2xlarge", 4: "6xlarge", 16: "24xlarge"},
    "inf2": {1: "xlarge 8xlarge", 6: "24xlarge", 12: "48xlarge"},
    "p3dn": {8: "24xlarge"},
    "p4d": {8: "24xlarge"},
    "p4de": {8: "24xlarge"},
    "p5": {1: "4xlarge", 8: "48xlarge"},
    "p5e": {8: "48xlarge"},
    "p5en": {8: "48xlarge"},
    "p6-b200": {8: "48xlarge"},
    "p6-b300": {8: "48xlarge"},
    "trn1": {1: "2xlarge", 16: "32xlarge"},
    "trn1n": {16: "32xlarge"},
    "trn2": {16: "48xlarge"},
}
_AWS_COUNT_BY_TYPE = {
    f"{family}.{size}": count
    for family, counts in _AWS_SIZES_BY_FAMILY_AND_COUNT.items()
    for count, sizes in counts.items()
    for size in sizes.split()
}
# The name ends with the number of GPUs: a2-highgpu-4g.
_GOOGLE_TYPE_PATTERN = re.compile(r"a[2-4]x?-[a-z]+gpu-([1-9][0-9]?)g")


def accelerator_count_of(instance_type: str) -> int | None:
    """Return how many accelerators a machine of `instance_type` has; None if that is not known."""
    if named := _GOOGLE_TYPE_PATTERN.fullmatch(instance_type):
        return int(named[1])
    return _AWS_COUNT_BY_TYPE.get(instance_type)
