"""Every rule about files that are no manifests."""

from typing import Any

from rules.container_files import compose_gpu, image_visible_devices, node_mode_by_kubectl, run_gpu
from rules.rule import Rule

ORDER: tuple[Rule[Any], ...] = (
    image_visible_devices.RULE,
    compose_gpu.RULE,
    run_gpu.RULE,
    node_mode_by_kubectl.RULE,
)
