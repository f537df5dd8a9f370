"""A container without a GPU makes its image look older than NVIDIA_VISIBLE_DEVICES.

What it does
------------
Finds a container that asks for no GPU, sets `CUDA_VERSION` in `env` without a
`NVIDIA_REQUIRE_CUDA` that holds something, and says nothing of `NVIDIA_VISIBLE_DEVICES`.

Why it matters
--------------
NVIDIA's container toolkit takes an image with `CUDA_VERSION` and without
`NVIDIA_REQUIRE_CUDA` for one from the time before `NVIDIA_VISIBLE_DEVICES`, and gives it
every GPU of the node. Setting the one variable is enough, unless the image sets the other.

Fix safety
----------
`NVIDIA_VISIBLE_DEVICES=void` is added, unasked. The container asked for no GPU and says
nothing of one, so it loses none that it was meant to have.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go` (`IsLegacy`)
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.container import Container
from rules.context import Context
from rules.devices import holds_gpu
from rules.pod import Pod
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.visibility import NVIDIA, looks_legacy, says_nothing, voiding

VERSION = "CUDA_VERSION"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each container that would be given all GPUs for the sake of its old image."""
    for container in pod.containers:
        if (
            VERSION in container.env
            and looks_legacy(container)
            and says_nothing(container)
            and not holds_gpu(container)
        ):
            yield _finding(container)


def _finding(container: Container) -> Finding:
    return Finding(
        path=(*container.path, "env", container.env[VERSION][-1][0]),
        key=VERSION,
        message=(
            f"{container} sets {VERSION}={shown(container.value_of(VERSION))} without "
            f"NVIDIA_REQUIRE_CUDA or {NVIDIA} and asks for no GPU: "
            "NVIDIA's runtime may give it every GPU of the node"
        ),
        container=container,
        help=f"add {NVIDIA} with the value void, or remove {VERSION}",
        fix=Fix(f"set {NVIDIA}=void", voiding(container), safe=True),
    )


RULE = Rule(
    name="legacy-cuda-version",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="a container without a GPU makes its image look older than NVIDIA_VISIBLE_DEVICES",
    check=check,
)
