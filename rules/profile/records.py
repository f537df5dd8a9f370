"""The records of which a profile is made."""

from typing import Literal, NamedTuple


class Resource(NamedTuple):
    """One extended resource by which a GPU platform hands out GPUs or shares of them.

    `sharing` is how much of a card it stands for: the whole card, a hardware partition
    (MIG), or a share that software divides. `unit` is what a quantity of 1 means, and amounts are
    multiples of `step`. `companions` are resources of another name that belong in the same
    container. `maximum` is the largest amount that a card has, 0 if there is none. `exclusive` says
    that nodes which offer the resource have cards of no other vendor.
    """

    name: str
    vendor: str
    sharing: Literal["whole", "partition", "share"] = "whole"
    unit: str = "device"
    companions: tuple[str, ...] = ()
    maximum: int = 0
    exclusive: bool = False
    step: int = 1


class VisibleDevices(NamedTuple):
    """A variable by which a container runtime learns which cards a container gets.

    `name` may contain one `*`. `maker` is what messages call the cards; `vendors` are the vendors
    of the resources whose cards the variable names. What a value means:

    - an empty value hides every card, and so does one of `overrides` at any position;
    - `driver_only` before any `all` means the libraries without a card;
    - a value of `hides` alone hides every card.

    `hidden_value` is the value to write in order to hide every card; None if none is known.
    `from_annotation` says that the maker tells users to refer to the annotation in which its
    scheduler records the chosen cards. The annotation is named after the requested resource.
    """

    name: str
    maker: str
    vendors: tuple[str, ...]
    hides: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    driver_only: str = ""
    hidden_value: str | None = None
    from_annotation: bool = False


class Taint(NamedTuple):
    """A taint that the platform puts on the nodes which offer `resources`.

    `tolerated_for` are the resources for which the platform itself adds the toleration to a pod.
    """

    resources: tuple[str, ...]
    key: str
    value: str | None = None
    effect: str = "NoSchedule"
    tolerated_for: tuple[str, ...] = ()


class NodeAffinity(NamedTuple):
    """The label by which pods that ask for `resources` should be drawn to nodes.

    Without `values` the label must merely exist. `required` forbids every other node,
    which also forbids a node that an autoscaler has yet to create and label. `enforce` requires
    the label whatever else the pod says about its nodes.
    """

    resources: tuple[str, ...]
    key: str
    values: tuple[str, ...] = ()
    required: bool = False
    enforce: bool = False


class Scheduler(NamedTuple):
    """The scheduler that must place pods which ask for `resources` or carry `annotations`.

    `alternatives` are other schedulers that can place them as well. `required` says that the pod
    itself must name the scheduler: no webhook of the platform does.
    """

    name: str
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    required: bool = False


class Component(NamedTuple):
    """Pods of the GPU platform itself: device plugins, exporters, validators.

    Known by namespace *and* service account, which tenants cannot choose freely. At
    admission the creator counts too: the DaemonSet controller or one of `creators`.
    """

    namespaces: tuple[str, ...]
    service_accounts: tuple[str, ...]
    creators: tuple[str, ...] = ()


class InjectedReference(NamedTuple):
    """A reference that the platform's own webhook writes into `variable`; rules ignore it.

    The ConfigMap's name begins as the pod annotation `annotation` says and ends with a number.
    """

    variable: str
    key: str
    annotation: str


class Fraction(NamedTuple):
    """Pod annotations that ask for part of a GPU; `target` names the container, else the first.

    The value of `portion` is a part of a card, that of `memory` an amount of memory, and that of
    `cards` the number of cards. The scheduler refuses the resources in `excludes` beside them.
    """

    annotations: tuple[str, ...]
    target: str | None = None
    portion: str = ""
    memory: str = ""
    cards: str = ""
    excludes: tuple[str, ...] = ()
    vendor: str = "nvidia"
