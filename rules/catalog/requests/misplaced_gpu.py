"""A GPU is asked for in a place where no container gets it.

What it does
------------
Finds GPU resources in a pod's own `resources`, in its `overhead`, and in the `resources` of an
ephemeral container. CPU and memory are fine in the pod's own `resources`.

In files it also finds those in fields that a container does not have: `resources.limit`, a resource
directly under `resources`, and `limits` beside `resources`. In the services of a
DynamoGraphDeployment (v1alpha1) these are resources by their names in `limits` and `requests`,
where the operator reads `gpu`, and others below `custom`.

Why it matters
--------------
Kubernetes gives GPUs to containers, and only to those that a pod starts with. The API server
refuses a GPU in the resources of a pod, and any resources in an ephemeral container. A GPU in the
overhead reaches no container. A field that it does not know the API server drops with a warning:
kubectl refuses the file, and clients that ask for no strict validation create the pod without its
GPU.

Fix safety
----------
The fix corrects `limit` and `request` only if the policy says `fix: true`.

References
----------
- https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
- https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/
- Kubernetes, `pkg/apis/core/validation/validation.go`
- ai-dynamo/dynamo, `deploy/operator/api/v1alpha1` (`ResourceItem`)
"""

from rules.base.json_values import as_object, display, rename
from rules.base.traits import EPHEMERAL_CONTAINER, NVIDIA_CARD, POD_RESOURCES
from rules.gpu.devices import devices, misplaced_resources
from rules.objects.pod import is_pod_spec
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule
from rules.workloads.dynamo import MAIN_CONTAINER_FIELD, POD_FIELD

ADVICE = "write the GPU under resources.limits of the container that uses it"
CORRECT_FIELDS = {"resources.limit": "limits", "resources.request": "requests"}
POD_FIELDS_WITH_REASONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("resources", "limits"), "the API server allows only cpu, memory and hugepages there"),
    (("resources", "requests"), "the API server allows only cpu, memory and hugepages there"),
    (("overhead",), "no container gets it from there"),
)


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU resource of the pod itself and of its ephemeral containers."""
    if ("overhead" in pod.spec or "resources" in pod.spec) and is_pod_spec(pod):
        yield from _findings_in_pod_fields(pod)
    for container in pod.containers:
        if container.role != "ephemeral":
            continue
        for name, device in devices(container).items():
            field = "limits" if device.limit is not None else "requests"
            message = (
                f"{container} asks for {display(name)}: an ephemeral container cannot have "
                "resources, and the API server refuses it"
            )
            path = (*container.resources_path, field, name)
            advice = "remove its resources, and debug in a container that holds the GPU"
            key = f"resources.{field}.{name}"
            yield Finding(
                path=path,
                key=key,
                message=message,
                container=container,
                help=advice,
                api_refuses=True,
            )
    if pod.layout.is_service:
        yield from _findings_in_service(pod)
    if is_pod_spec(pod):
        for container in pod.containers:
            if container.role != "ephemeral":
                yield from _findings_in_unknown_fields(container)


def _findings_in_service(pod: Pod) -> Findings:
    """Yield each GPU resource that a service of Dynamo names where its operator does not look."""
    main = as_object(as_object(pod.holder.get(POD_FIELD)).get(MAIN_CONTAINER_FIELD))
    resources = {} if main.get("resources") else as_object(pod.holder.get("resources"))
    for field in ("limits", "requests"):
        for name in as_object(resources.get(field)):
            if pod.profile.resource(name):
                right = "gpu" if name == NVIDIA_CARD else f"custom.{name}"
                yield Finding(
                    path=(*pod.path, MAIN_CONTAINER_FIELD, "resources", field, name),
                    key=f"resources.{field}.{name}",
                    message=f"the service asks for {display(name)} in resources.{field}, where "
                    "Dynamo's operator does not read it: its pods get no GPU",
                    help=f"write it as resources.{field}.{right}",
                )


def _findings_in_unknown_fields(container: Container) -> Findings:
    for path, name in misplaced_resources(container):
        field = path[len(container.path) : -1]
        place = ".".join(map(str, field))
        message = (
            f"{container} asks for {display(name)} in {display(place)}: resources stand in "
            "resources.limits and resources.requests, and elsewhere Kubernetes ignores them"
        )
        fix, right = None, CORRECT_FIELDS.get(place)
        if right and right not in container.resources:
            fix = Fix(f"rename {place} to resources.{right}", (rename(path[:-1], right),))
        key = f"{place}.{name}"
        yield Finding(
            path=path, key=key, message=message, container=container, help=ADVICE, fix=fix
        )


def _findings_in_pod_fields(pod: Pod) -> Findings:
    reported = set()
    for location, reason in POD_FIELDS_WITH_REASONS:
        parent = pod.spec
        for step in location:
            parent = as_object(parent.get(step))
        for name in parent:
            if pod.profile.resource(name) and (location[0], name) not in reported:
                reported.add((location[0], name))
                message = f"the pod asks for {display(name)} in its own {location[0]}: {reason}"
                key = ".".join((*location, name))
                path, refused = (*pod.path, *location, name), location[0] == "resources"
                yield Finding(path=path, key=key, message=message, help=ADVICE, api_refuses=refused)


in_process = "API servers refuse such pods, and drop fields that they do not know"


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(POD_RESOURCES | EPHEMERAL_CONTAINER,)
)
