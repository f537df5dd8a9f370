"""What a rule is, and what it yields.

A rule is a module under `catalog/` with a docstring, a `check` generator and one `RULE`.
It knows nothing of the other rules, of policy, or of who asks.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from rules.container import Container
from rules.context import NO_OPTIONS, Context
from rules.document import Edit, Path
from rules.pod import ObjectRef, Pod
from rules.quota import Quota

S = TypeVar("S", Pod, Quota)


class Action(enum.IntEnum):
    """What is done about a finding, from nothing to refusal."""

    OFF = 0
    AUDIT = 1
    WARN = 2
    DENY = 3

    @property
    def word(self) -> str:
        """The action as policies, paths and labels spell it."""
        return self.name.lower()


class FixScope(enum.IntEnum):
    """Which fixes are made: none, those that are safe unasked, or all."""

    NONE = 0
    SAFE = 1
    ALL = 2


class Fix(NamedTuple):
    """Edits that mend a finding, and a title that completes "fix: …".

    A fix is made unasked only if it is `safe`: it cannot take from the user anything that
    the object would have had, nor decide what the user should decide.
    """

    title: str
    edits: tuple[Edit, ...]
    safe: bool = False


class Finding(NamedTuple):
    """One fault in one place.

    A rule gives the path of the offending field (or where a missing one belongs), a
    message that stands alone, and a `key`: the field, variable or resource at fault,
    without indices. `action` may only weaken what the rule does. `api_refuses` marks what
    the API server refuses by itself before it asks validating webhooks, so that only the
    mutating one can explain it. The rest is stamped by the engine.
    """

    path: Path
    key: str
    message: str
    container: Container | None = None
    help: str = ""
    fix: Fix | None = None
    action: Action = Action.DENY
    api_refuses: bool = False
    rule: str = ""
    object: ObjectRef | None = None
    place: str = ""
    fixable: bool = False

    def stamped(self, rule: str, subject: Pod | Quota, action: Action, *, fixable: bool) -> Finding:
        """The finding as `rule` made it about `subject`; `_replace` costs several times as much."""
        path, key, message, container, advice, fix, _, refused = self[:8]
        about = (refused, rule, subject.object, subject.place, fixable)
        return Finding(path, key, message, container, advice, fix, action, *about)

    @property
    def container_name(self) -> str:
        """The container's name, empty if the finding concerns the whole object."""
        return self.container.name if self.container else ""

    @property
    def identity(self) -> str:
        """What stays the same when lines move and containers are reordered."""
        parts = (self.object_identity, self.place, self.container_name, self.key)
        return "|".join((self.rule, *parts))

    @property
    def object_identity(self) -> str:
        """Kind, group, namespace and name of the object."""
        ref = self.object
        return f"{ref.kind}.{ref.group}/{ref.namespace}/{ref.name}" if ref else ""


Check = Callable[[S, Context], Iterable[Finding]]


class Rule(NamedTuple, Generic[S]):
    """One fault that we know.

    `since` is the catalogue's version that brought the rule. `instead_of` names rules that
    stay silent about a container and key about which this rule has spoken. `options` maps
    each option to its default. `needs` are traits: of each of these sets a subject must
    have one, or the rule has nothing to say about it and is not asked.
    """

    name: str
    subject: type[S]
    action: Action
    since: str
    summary: str
    check: Check[S]
    instead_of: tuple[str, ...] = ()
    options: Mapping[str, Any] = NO_OPTIONS
    needs: tuple[int, ...] = ()

    @property
    def family(self) -> str:
        """The folder that the rule lives in, such as `bypass`."""
        return self.check.__module__.split(".")[-2]

    @property
    def documentation(self) -> Mapping[str, str]:
        """The docstring of the rule's module by heading."""
        return sections(_module_docstring(self.check.__module__))


def _module_docstring(module: str) -> str:
    return sys.modules[module].__doc__ or ""


def sections(docstring: str) -> Mapping[str, str]:
    """The text below each heading (a line underlined with dashes) of a rule's docstring."""
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    lines = docstring.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.strip() and below.strip() and not below.strip().strip("-"):
            current = found.setdefault(line.strip(), [])
        elif line.strip().strip("-") or not line.strip():
            current.append(line)
    return {heading: "\n".join(text).strip() for heading, text in found.items()}
