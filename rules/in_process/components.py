"""Twins of `rules.gpu.components`: pods for which rules are not run, in CEL."""

from collections.abc import Iterator, Sequence

from rules.gpu.components import (
    DAEMON_SET_CONTROLLERS,
    REPLICA_SET_CONTROLLER,
    SYSTEM_USER_PREFIX,
)
from rules.gpu.images import AGENT_PROGRAMS
from rules.gpu.visibility import DEBUGGER_LABEL
from rules.in_process.expression import (
    OBJECT,
    REQUEST,
    Expression,
    all_of,
    any_of,
    choose,
    entry,
    expression,
    get,
    is_in,
    name,
    not_,
    optional,
    string,
)
from rules.in_process.images import is_cuda_image
from rules.in_process.own_programs import runs_own_program
from rules.in_process.patterns import matches_any
from rules.in_process.statement import option
from rules.objects.pod import MIRROR_ANNOTATION
from rules.profile.profile import Component, Profile

USER = REQUEST.userInfo.username
KIND = REQUEST.kind.kind
IS_POD = KIND == "Pod"
"""Whether the object is a pod; else it is a built-in workload."""


def is_mirror() -> Expression:
    """Return whether the pod is the mirror of a static pod, made by its kubelet."""
    return all_of(is_in(MIRROR_ANNOTATION, OBJECT.annotations), USER.startsWith("system:node:"))


def is_made_by_controller() -> Expression:
    """Return whether a controller makes the workload from another, evaluated itself."""
    owners = get(OBJECT.objectMetadata, "ownerReferences", [])
    return all_of(owners.exists(lambda o: get(o, "controller", False)), is_controller())


def is_controller() -> Expression:
    """`is_controller` of the user and the namespace of the request."""
    own = expression(f"{SYSTEM_USER_PREFIX}serviceaccount:") + REQUEST.namespace + ":"
    return all_of(USER.startsWith(SYSTEM_USER_PREFIX), not_(USER.startsWith(own)))


def components(profile: Profile) -> Iterator[tuple[tuple[str, ...], Expression]]:
    """Yield the rules that are not run for a component, none for all, and whether the pod is one.

    The first that holds decides: the components with the fewest rules come first.
    """
    for component in sorted(profile.components, key=lambda component: len(component.rules)):
        yield component.rules, _is_component(component)


def account_of_pod() -> Expression:
    """Return the service account of the pod."""
    written = get(OBJECT.spec, "serviceAccountName", "")
    return choose((written == "", "default"), otherwise=string(written))


def _is_component(component: Component) -> Expression:
    creators = component.creators
    tests = [
        _is_created_by(creators) if creators else OBJECT.isOfDaemonSet,
        matches_any(REQUEST.namespace, component.namespaces),
        matches_any(OBJECT.account, component.service_accounts),
    ]
    if component.images:
        images = component.images
        tests.append(OBJECT.base.all(lambda b: matches_any(get(b.raw, "image", ""), images)))
    if component.programs:
        programs = component.programs
        tests.append(OBJECT.base.all(lambda b: runs_own_program(b.raw, programs)))
    return all_of(*tests)


def is_of_daemon_set() -> Expression:
    """Return whether a DaemonSet has created the pod, or may create those of the workload."""
    return _is_created_by(DAEMON_SET_CONTROLLERS)


def _is_created_by(creators: Sequence[str]) -> Expression:
    """`_may_have_created`; of a workload, whether one of `creators` may create its pods."""
    known = {*DAEMON_SET_CONTROLLERS, REPLICA_SET_CONTROLLER}
    is_daemon_set = any_of(
        KIND == "DaemonSet", all_of(OBJECT.isDaemon, REQUEST.operation == "UPDATE")
    )
    return choose(
        (IS_POD, is_in(USER, creators)),
        (is_in(KIND, ["Deployment", "ReplicaSet"]), REPLICA_SET_CONTROLLER in creators),
        (is_daemon_set, not {*DAEMON_SET_CONTROLLERS}.isdisjoint(creators)),
        otherwise=any(c not in known for c in creators),
    )


def is_daemon() -> Expression:
    """`is_made_by_daemon_set`. Who will create the pods of a workload is not known."""
    owners = get(OBJECT.metadata, "ownerReferences", [])
    is_owned = owners.exists(lambda o: all_of(o.kind == "DaemonSet", get(o, "controller", False)))
    return choose(
        (IS_POD, all_of(is_owned, is_in(USER, DAEMON_SET_CONTROLLERS))),
        otherwise=any_of(KIND == "DaemonSet", is_owned),
    )


def image_grants_gpus(container: Expression) -> Expression:
    """`image_grants_gpus` of `container`, one of `OBJECT.containers`."""
    is_own = runs_own_program(container.raw, AGENT_PROGRAMS)
    in_agent = any_of(
        is_cuda_image(container, with_agents=False),
        all_of(container.hasCudaImage, not_(is_own)),
    )
    return choose((OBJECT.isDaemon, in_agent), otherwise=container.hasCudaImage)


def is_node_debugger() -> Expression:
    """`is_node_debugger`."""
    key, value = DEBUGGER_LABEL
    return entry(optional(OBJECT.metadata, "labels"), key, "") == value


def is_chosen_namespace(rule: str) -> Expression:
    """`rules.profile.namespaces.is_chosen` for the options of `rule`. Labels are always known."""
    labels = get(name("namespaceObject"), "metadata.labels", {})

    def is_wanted(key: Expression) -> Expression:
        pair = key + "=" + string(labels[key])
        return option(rule, "labels").exists(lambda p: any_of(key.matches(p), pair.matches(p)))

    by_name = option(rule, "namespaces").exists(lambda p: REQUEST.namespace.matches(p))
    return any_of(by_name, labels.exists(is_wanted))
