"""An image for the cards of one vendor is in a container that requests another vendor's.

What it does
------------
Finds containers that request GPUs of known vendors and run an image for another vendor's: images
with CUDA from NVIDIA, with ROCm from AMD, for Gaudi, Neuron, TPUs and Ascend, and those of Moore
Threads, Hygon, MetaX, Iluvatar, Cambricon, Enflame, Rebellions and Furiosa, and those for XPUs and
NPUs, which several vendors make. It knows them by registry, repository and tag.

Why it matters
--------------
The program does not find a card that it can use. The one that the pod holds stays idle.

References
----------
- https://hub.docker.com/u/rocm
- https://catalog.ngc.nvidia.com/containers
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import request_of
from rules.gpu.images import maker_of_image
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

# Cards that run no program for another vendor's cards. Others are compatible with CUDA or ROCm.
_INCOMPATIBLE_VENDORS = frozenset({"nvidia", "amd", "intel", "habana", "aws", "google", "huawei"})


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the image of each container that requests only cards which the image cannot use."""
    for container in pod.containers:
        vendors = request_of(container).vendors
        if not vendors or container.claims or not _INCOMPATIBLE_VENDORS.issuperset(vendors):
            continue
        maker = maker_of_image(container.image)
        if maker is None:
            continue
        makers = (maker.vendor,) if maker.vendor else maker.vendors
        if makers and not vendors.intersection(makers):
            yield Finding(
                path=(*container.path, "image"),
                key="image.vendor",
                message=f"{container} asks for {display(request_of(container).first_name)} "
                f"and runs {display(container.image, 120)}, an image for "
                f"{maker.devices}",
                container=container,
                help=f"run an image for the cards that it asks for, or ask for {maker.devices}",
            )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU_RESOURCE,), needs_resources=True
)
