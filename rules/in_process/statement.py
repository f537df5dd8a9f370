"""The statements of a rule in CEL, beside its `check` and in the same module.

A rule that API servers can evaluate themselves has a function `in_process` that returns its
statements. If they depend on the policy, it takes the options of the rule and the profile. They
use the constants of the module, as `check` does, and the words of this package. Tests compare the
two on a real API server, word for word. A rule that CEL cannot say has the reason in place of the
function: `in_process = "why not"`.

A rule whose fix API servers can make themselves has a function `in_process_fix`, which takes the
options of the rule and the profile of the policy, and returns its mutations. It may also use the
words of `rules.in_process.mutation`.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rules.in_process.expression import (
    OBJECT,
    POLICY,
    Expression,
    Value,
    choose,
    construct,
    dyn,
    let,
    name,
)

Subject: TypeAlias = Literal[
    "pod",
    "container",
    "variable",
    "deviceList",
    "volume",
    "completed",
    "mount",
    "annotation",
    "label",
    "changedAnnotation",
    "changedLabel",
]


CONTAINER: Final = name("c")
VARIABLE: Final = name("v")
MOUNT: Final = name("m")
VOLUME: Final = name("w")
DEVICE_LIST: Final = name("l")
COMPLETED: Final = name("x")
KEY: Final = name("a")
AT: Final = name("at")


class EvidenceInCel(NamedTuple):
    """The twin of `rules.placement.gpu_nodes.Evidence`."""

    pod: Expression
    devices: Expression
    is_certain: Expression
    is_there: Expression


EVIDENCE: Final = EvidenceInCel(
    pod=OBJECT.evidence[0],
    devices=OBJECT.evidence[1],
    is_certain=OBJECT.evidence[2] == "certain",
    is_there=OBJECT.evidence.size() > 0,
)
"""What the pod has to do with GPUs; nothing else of it may be read unless it `is_there`."""


class KeyStatement(NamedTuple):
    """The findings of a rule about keys of ConfigMaps and Secrets.

    - `patterns`: the keys; `message` and `help`: of the finding about each, which is KEY.
    - `is_excused`: whether nothing is found, because of who makes the request.
    """

    patterns: tuple[str, ...]
    message: Value
    help: Value
    is_excused: Value


SUB_PATHS = "a subPathExpr that refers to a variable counts as the whole volume"
"""A limit of the statements about volumes."""


class Statement(NamedTuple):
    """One kind of finding of a rule.

    - `each`: what is looked at, one after the other; it sets names:
      `container`: CONTAINER. `variable`: CONTAINER and VARIABLE. `mount`: CONTAINER and MOUNT.
      `deviceList`: CONTAINER and DEVICE_LIST, a mount at a path of a list of devices.
      `completed`: CONTAINER and COMPLETED, a variable that a prefix and a key may form.
      `volume`: VOLUME, a volume with a path of the node, and CONTAINER and MOUNT, the first
      container and mount of it that `where` fits.
      `annotation`, `label`: KEY; `changedAnnotation`, `changedLabel`: one that an update adds,
      changes or removes.
    - `where`: whether there is a finding.
    - `message` and `help`: those of the finding.
    - `facts`: constants that the expressions name as `POLICY.NAME`, which is quicker than to repeat
      them. The options of the rule are such constants too, as `option` names them; a list of
      patterns is one of regular expressions.
    - `words`: variables that the expressions name as `OBJECT.NAME`, each after those that it names.
    - `variables`: patterns of variables of containers that are read beside those about GPUs.
    - `leaves_out`: how it differs from `check`, in a sentence without a dot.
    - `action`: the finding's own action, a text: `deny`, `warn` or `audit`.
    """

    each: Subject
    where: Value
    message: Value
    help: Value
    action: Value = "deny"
    facts: Mapping[str, Any] = MappingProxyType({})
    words: Mapping[str, Value] = MappingProxyType({})
    variables: tuple[str, ...] = ()
    leaves_out: str = ""


def camel_case(rule: str) -> str:
    """Return the name of a rule as that of a variable: `gpuNamespace` for `gpu-namespace`."""
    first, *others = rule.split("-")
    return first + "".join(word.capitalize() for word in others)


def option_name(rule: str, option: str) -> str:
    """Return the name of the constant with an option of a rule; others may have the same option."""
    return camel_case(f"{rule}-{option.replace('_', '-')}")


def option(rule: str, word: str) -> Expression:
    """The option `word` of the rule."""
    found: Expression = getattr(POLICY, option_name(rule, word))
    return found


def shown(value: Expression, limit: int = 60) -> Expression:
    """`rules.base.json_values.display` of `value`, a text.

    A character that is not printable ASCII is a question mark: CEL cannot write its number.
    """
    end = '…"'
    return let(
        value,
        lambda t: choose((t.size() > limit, t.substring(0, limit)), otherwise=t),
        lambda t: choose((t.matches("^[ -~]*$"), t), otherwise=_printable(t)),
        lambda t: '"' + t.replace("\\", "\\\\").replace('"', '\\"') + '"',
        lambda t: choose((t.size() > limit, t.substring(0, limit - 4) + end), otherwise=t),
    )


def _printable(value: Expression) -> Expression:
    characters = value.split("")
    return characters.map(lambda s: choose((s.matches("[ -~]"), s), otherwise="?")).join("")


class VariableChange(enum.Enum):
    """A change of a variable of a container.

    - REMOVE: it is removed.
    - HIDE: it is left once, with the value that hides every device.
    """

    REMOVE = enum.auto()
    HIDE = enum.auto()


REMOVE: Final = VariableChange.REMOVE
HIDE: Final = VariableChange.HIDE


class Mutation(NamedTuple):
    """A fix of one kind of finding.

    - `each`: what is fixed, one after the other. `variable` sets the names CONTAINER and VARIABLE,
      `container` sets CONTAINER and AT, its JSON Pointer.
    - `where`: whether the rule reports it and has a fix for it.
    - `change`: for a variable `REMOVE` or `HIDE`; for a container `HIDE`, which is about
      NVIDIA_VISIBLE_DEVICES, or a list of JSONPatch, as for a pod.
    - `is_safe`: whether the fix is made by default.
    - `words`: variables that these expressions name as `OBJECT.NAME`, each after those that it
      names.
    """

    each: Literal["pod", "container", "variable"]
    where: Value
    change: VariableChange | Value
    is_safe: Value = True
    words: Mapping[str, Value] = MappingProxyType({})


def add(path: Value, value: Value) -> Expression:
    """Return the operation that sets `path`, or appends to a list."""
    return construct("JSONPatch", op="add", path=path, value=value)


def created(field: Expression, path: str, empty: Value) -> Expression:
    """Return operations that create the object or list at `path`, unless the pod has the `field`.

    `field` is an optional value, and `empty` is what is created.
    """
    return choose((field.hasValue(), []), otherwise=[add(path, empty)])


def dynamic(value: Any) -> Value:
    """Return `value`, whose parts may have different types."""
    if isinstance(value, Mapping):
        return {key: dyn(dynamic(item)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [dyn(dynamic(item)) for item in value]
    found: Value = value
    return found
