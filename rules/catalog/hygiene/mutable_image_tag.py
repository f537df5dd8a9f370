"""A GPU container runs an image whose tag is latest, or that has none.

What it does
------------
Finds containers that request a GPU and whose image has the tag `latest`, or no tag and no digest,
which means the same. A placeholder may become anything and is not reported.

Why it matters
--------------
What `latest` names changes. A restart, or one more replica, may bring another CUDA or another
version of the model server, which does not fit the node's driver, or answers differently. Kubelets
also pull such an image, often of many gigabytes, at every start.

References
----------
- https://kubernetes.io/docs/concepts/containers/images/#image-names
- https://kubernetes.io/docs/concepts/containers/images/#imagepullpolicy-defaulting
"""

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import requests_gpu
from rules.gpu.images import image_tag
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU container with an image of the tag `latest`, written or implied."""
    for container in pod.containers:
        image = container.image
        if not image or has_placeholder(image) or not requests_gpu(container):
            continue
        if image_tag(image) == "latest":
            yield Finding(
                path=(*container.path, "image"),
                key="image.tag",
                message=f"{container} asks for a GPU and runs {display(image)}, whose tag is "
                "latest: the next start may run something else",
                container=container,
                help="name a version, or better a digest",
            )


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,))
