"""A GPU container runs an image that the policy does not trust.

What it does
------------
Finds containers that request a GPU or use a resource claim, and whose image is in none of the
repositories that the option `repositories` lists, or, with `require_digest`, has no digest. The
rule is off by default, and a policy that turns it on must set one of these options. A placeholder
may become anything and is not reported.

A reference is compared as Kubernetes reads it: `pytorch/pytorch:2.4` is
`docker.io/pytorch/pytorch`, and `ubuntu` is `docker.io/library/ubuntu`. Nodes may be configured to
look for such short names elsewhere, so let pods write the registry.

Why it matters
--------------
NVIDIA's container toolkit runs with the rights of the node, and reads files and variables of the
image when it starts a container with a GPU. By CVE-2024-0132, CVE-2025-23359 and CVE-2025-23266 an
image could take over the node in this way. Until such nodes are upgraded, let only trusted images
have GPUs. `gpuward doctor` says which nodes these are, where it can know. A tag can be moved to
another image afterwards; a digest cannot.

gpuward reads the reference alone. Whether a signer that you trust signed the image is the question
of a verifier such as Sigstore's policy-controller or Kyverno.

Options
-------
`repositories`: the repositories whose images may run, with their registry, in which `*` stands for
any characters. What is below a repository belongs to it: `registry.example.com/ml` and
`registry.example.com/ml/*` both fit `registry.example.com/ml/train`, and only the first fits
`registry.example.com/ml`. Those of Docker Hub begin with `docker.io/`, its official images with
`docker.io/library/`; a policy with shorter names is refused. End the name of a registry with `/`
before a `*`: `registry.example.com*` also fits `registry.example.com.evil.example/…`.

`require_digest`: images must be named by digest (`…@sha256:…`).

References
----------
- https://nvidia.custhelp.com/app/answers/detail/a_id/5659
- https://kubernetes.io/docs/concepts/containers/images/#image-names
"""

from collections.abc import Iterable

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder, matches
from rules.base.traits import GPU
from rules.gpu.devices import requests_gpu
from rules.gpu.images import full_repository, has_digest
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# Of the repositories, in a message.
_MAX_LISTED = 3


def check(pod: Pod, context: Context) -> Findings:
    """Yield each container of a GPU pod whose image the policy does not allow."""
    trusted, by_digest = context.options["repositories"], context.options["require_digest"]
    if not (trusted or by_digest):
        return
    for container in pod.containers:
        image = container.image
        if not image or has_placeholder(image) or not requests_gpu(container):
            continue
        if trusted and not _is_trusted(trusted, full_repository(image)):
            advice = f"use an image from {' or '.join(map(display, trusted[:_MAX_LISTED]))}"
            yield _finding(container, "repository", "which the policy does not trust", advice)
        elif by_digest and not has_digest(image):
            advice = "name the image by its digest (…@sha256:…)"
            yield _finding(container, "digest", "which is not named by digest", advice)


def _is_trusted(trusted: Iterable[str], repository: str) -> bool:
    return any(
        matches(own, repository) or matches(f"{own}/*", repository)
        for own in (pattern.rstrip("/") for pattern in trusted)
    )


def _finding(container: Container, part: str, fault: str, advice: str) -> Finding:
    return Finding(
        path=(*container.path, "image"),
        key=f"image.{part}",
        message=f"{container} asks for a GPU and runs {display(container.image)}, {fault}",
        container=container,
        help=advice,
    )


RULE = define_rule(
    check,
    action=Action.OFF,
    since="0.1",
    needs=(GPU,),
    options={"repositories": (), "require_digest": False},
)
