"""The statements of a rule in CEL, beside its `check` and in the same module.

A rule that API servers can evaluate themselves has a function `in_process` that returns its
statements. They use the constants of the module, as `check` does, and the words of this package.
Tests compare the two on a real API server, word for word. A rule that CEL cannot say has the reason
in place of the function: `in_process = "why not"`.

A rule whose fix API servers can make themselves has a function `in_process_fix`, which takes the
options of the rule and the profile of the policy, and returns its mutations. It may also use the
words of `rules.in_process.mutation`.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

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


SUB_PATHS = "a subPathExpr that refers to a variable counts as the whole volume"
"""A limit of the statements about volumes."""


class Statement(NamedTuple):
    """One kind of finding of a rule. All texts are CEL; the words in them are those that follow.

    - `each`: what is looked at, one after the other; it sets words:
      `container`: `c`. `variable`: `c` and `v`. `mount`: `c` and `m`. `deviceList`: `c` and `l`,
      a mount at a path of a list of devices.
      `completed`: `c` and `x`, a variable that a prefix and a key may form. `volume`: `w`, a volume
      with a path of the node, and `c` and `m`, the first container and mount of it that `where`
      fits.
      `annotation`, `label`: `a`, the key; `changedAnnotation`, `changedLabel`: one that an update
      adds, changes or removes.
    - `where`: whether there is a finding.
    - `message` and `help`: those of the finding.
    - `facts`: constants that the texts name as `variables.NAME`, which is quicker than to repeat
      them. The options of the rule are such constants too; a list of patterns is one of regular
      expressions.
    - `words`: variables that the texts name as `$NAME`, each after those that it names.
    - `variables`: patterns of variables of containers that the texts read beside those about GPUs.
    - `leaves_out`: how it differs from `check`, in a sentence without a dot.
    - `action`: the finding's own action as CEL of the text `deny`, `warn` or `audit`.
    """

    each: Subject
    where: str
    message: str
    help: str
    action: str = '"deny"'
    facts: Mapping[str, Any] = MappingProxyType({})
    words: Mapping[str, str] = MappingProxyType({})
    variables: tuple[str, ...] = ()
    leaves_out: str = ""


def cel(value: Any) -> str:
    """A text, a list or an object of texts as a literal of CEL."""
    if isinstance(value, str):
        # JSON's escapes are CEL's too, but for a character in two halves, which this never writes.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{cel(key)}: {cel(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(cel, value)) + "]"


def any_of(tests: Iterable[str]) -> str:
    """One test that holds if any of `tests` does."""
    return " || ".join(f"({test})" for test in tests) or "false"


def concat(*parts: str) -> str:
    """The text of `parts`, which are CEL, one after the other."""
    return " + ".join(parts)


def shown(text: str, limit: int = 60) -> str:
    """`rules.base.json_values.display` of the CEL `text`.

    A character that is not printable ASCII is a question mark: CEL cannot write its number.
    """
    return (
        f"[{text}].map(t, t.size() > {limit} ? t.substring(0, {limit}) : t)"
        r""".map(t, t.matches("^[ -~]*$") ? t : t.split("")"""
        r""".map(s, s.matches("[ -~]") ? s : "?").join(""))"""
        r""".map(t, "\"" + t.replace("\\", "\\\\").replace("\"", "\\\"") + "\"")"""
        f'.map(t, t.size() > {limit} ? t.substring(0, {limit - 4}) + "…\\"" : t)[0]'
    )


REMOVE: Literal["remove"] = "remove"
"""The change that removes a variable."""
HIDE: Literal["hide"] = "hide"
"""The change that leaves a variable once, with the value that hides every device."""


class Mutation(NamedTuple):
    """A fix of one kind of finding. All texts are CEL.

    - `each`: what is fixed, one after the other. `variable` sets the words `c` and `v`,
      `container` sets `c` and `at`.
    - `where`: whether the rule reports it and has a fix for it.
    - `change`: for a variable `REMOVE` or `HIDE`; for a container `HIDE`, which is about
      NVIDIA_VISIBLE_DEVICES, or a list of JSONPatch, as for a pod.
    - `is_safe`: whether the fix is made by default.
    - `words`: variables that these texts name as `$NAME`, each after those that it names.
    """

    each: Literal["pod", "container", "variable"]
    where: str
    change: str
    is_safe: str = "true"
    words: Mapping[str, str] = MappingProxyType({})


def add(path: str, value: str) -> str:
    """The operation that sets `path`, or appends to a list; both are CEL."""
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


def created(field: str, path: str, empty: str) -> str:
    """Operations that create the object or list at `path`, unless the pod has the `field`.

    `field` is an optional value in CEL, and `empty` is what is created.
    """
    return f"({field}.hasValue() ? [] : [{add(cel(path), empty)}])"


def dynamic(value: Any) -> str:
    """`value` as CEL whose parts may have different types."""
    if isinstance(value, Mapping):
        members = (f"{cel(key)}: dyn({dynamic(item)})" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(f"dyn({dynamic(item)})" for item in value) + "]"
    return cel(value)
