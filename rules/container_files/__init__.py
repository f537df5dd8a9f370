"""Rules about files that start containers or build images without Kubernetes.

Only the linter has them: no such file reaches an API server. Each is one file, with the name of the
rule.
"""

from typing import Any

from rules.container_files import compose_gpu, image_visible_devices, node_mode_by_kubectl, run_gpu
from rules.rule import Rule

RULES: tuple[Rule[Any], ...] = (
    image_visible_devices.RULE,
    compose_gpu.RULE,
    run_gpu.RULE,
    node_mode_by_kubectl.RULE,
)
