"""Twins of `rules.gpu.components`: pods for which rules are not run, in CEL."""

from collections.abc import Iterator

from rules.gpu.components import DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER
from rules.gpu.images import AGENT_PROGRAMS
from rules.gpu.visibility import DEBUGGER_LABEL
from rules.in_process.images import is_cuda_image
from rules.in_process.own_programs import runs_own_program
from rules.in_process.patterns import matches_any
from rules.in_process.statement import cel
from rules.objects.pod import MIRROR_ANNOTATION
from rules.profile.profile import Component, Profile

_USER = "request.userInfo.username"
IS_POD = '(request.kind.kind == "Pod")'
"""Whether the object is a pod; else it is a built-in workload."""


def is_mirror() -> str:
    """Return, as CEL, whether the pod is the mirror of a static pod, made by its kubelet."""
    return f'{cel(MIRROR_ANNOTATION)} in $annotations && {_USER}.startsWith("system:node:")'


def is_made_by_controller() -> str:
    """Return, as CEL, whether a controller makes the workload from another, evaluated itself."""
    return "$objectMetadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"


def components(profile: Profile) -> Iterator[tuple[tuple[str, ...], str]]:
    """The rules that are not run for a component, none for all, and whether the pod is one.

    The first that holds decides: the components with the fewest rules come first.
    """
    for component in sorted(profile.components, key=lambda component: len(component.rules)):
        yield component.rules, _is_component(component)


def _is_component(component: Component) -> str:
    account = (
        '[$spec.?serviceAccountName.orValue("")].map(t, t != "" ? t : "default")'
        f".exists(t, {matches_any('t', component.service_accounts)})"
    )
    creators = component.creators or DAEMON_SET_CONTROLLERS
    tests = [
        f"{IS_POD} ? {_USER} in {cel(creators)} : ({_may_be_created(component)})",
        matches_any("request.namespace", component.namespaces),
        account,
    ]
    if component.images:
        image = matches_any('b.raw.?image.orValue("")', component.images)
        tests.append(f"$base.all(b, {image})")
    if component.programs:
        own = runs_own_program("b.raw", component.programs)
        tests.append(f"$base.all(b, {own})")
    return " && ".join(f"({test})" for test in tests)


def _may_be_created(component: Component) -> str:
    """`_may_have_created`, where the user is not known: whether those who may make such pods."""
    creators = component.creators or DAEMON_SET_CONTROLLERS
    of_deployments = cel(REPLICA_SET_CONTROLLER in creators)
    of_daemon_sets = cel(not {*DAEMON_SET_CONTROLLERS}.isdisjoint(creators))
    known = {*DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER}
    of_others = cel(bool(component.creators) and any(c not in known for c in creators))
    return (
        f'request.kind.kind in ["Deployment", "ReplicaSet"] ? {of_deployments}'
        ' : request.kind.kind == "DaemonSet" || ($isDaemon && request.operation == "UPDATE")'
        f" ? {of_daemon_sets} : {of_others}"
    )


def is_daemon() -> str:
    """`is_made_by_daemon_set`. Who will create the pods of a workload is not known."""
    owner = 'o.kind == "DaemonSet" && o.?controller.orValue(false)'
    is_owned = f"$metadata.?ownerReferences.orValue([]).exists(o, {owner})"
    of_pod = f"{is_owned} && {_USER} in {cel(DAEMON_SET_CONTROLLERS)}"
    return f'{IS_POD} ? {of_pod} : request.kind.kind == "DaemonSet" || {is_owned}'


def image_grants_gpus(container: str) -> str:
    """`image_grants_gpus` of the CEL `container`, one of `$containers`."""
    no_agent = is_cuda_image(f"string({container}.image)", with_agents=False)
    is_own = runs_own_program(f"{container}.raw", AGENT_PROGRAMS)
    has_image = f"{container}.hasCudaImage"
    return f"($isDaemon ? {no_agent} || ({has_image} && !({is_own})) : {has_image})"


def is_node_debugger() -> str:
    """`is_node_debugger`."""
    key, value = DEBUGGER_LABEL
    return f'$metadata.?labels[?{cel(key)}].orValue("") == {cel(value)}'
