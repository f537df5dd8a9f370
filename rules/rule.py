"""The definition of a rule.

A rule is a module under `catalog/` with a docstring, a generator `check` and one `RULE`. It knows
nothing of other rules, of policies, or of whether the linter or the webhook runs it.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from rules.finding import Action, Finding, Findings, Fix
from rules.objects.container import Container
from rules.objects.file_settings import ContainerSetting, LabelCommand
from rules.objects.kubernetes_objects import DeviceClaim, DeviceSpec, KubernetesObject, Quota
from rules.objects.pod import Pod
from rules.profile.context import NO_OPTIONS, Context

# Rules import these from here, in one line.
__all__ = ["Action", "Container", "ContainerSetting", "Context", "DeviceClaim"]
__all__ += ["DeviceSpec", "Finding"]
__all__ += ["Findings", "Fix", "KubernetesObject", "LabelCommand", "Pod", "Quota", "Rule"]
__all__ += ["define_rule", "indexed_rule"]

S = TypeVar(
    "S", Pod, Quota, DeviceClaim, DeviceSpec, KubernetesObject, ContainerSetting, LabelCommand
)

Check = Callable[[S, Context], Iterable[Finding]]
"""Yields the findings about one subject. The engine catches and reports whatever it raises."""


class Rule(NamedTuple, Generic[S]):
    """One fault that gpuward knows; made by `define_rule`, which explains the fields."""

    name: str
    summary: str
    subject: type[S]
    action: Action
    since: str
    check: Check[S]
    needs: tuple[int, ...]
    supersedes: tuple[str, ...] = ()
    options: Mapping[str, Any] = NO_OPTIONS
    needs_resources: bool = False

    @property
    def family(self) -> str:
        """The folder of the rule's module, such as `bypass`."""
        return self.check.__module__.split(".")[-2]

    @property
    def documentation(self) -> Mapping[str, str]:
        """The docstring of the rule's module, by heading."""
        return sections_of_docstring(load_module(self).__doc__ or "")


def load_module(rule: Rule[Any]) -> ModuleType:
    """Import the module of `rule` now, rather than when the rule first runs."""
    return import_module(rule.check.__module__)


class LazyCheck:
    """The check of the rule in `module`, which is imported at the first call.

    If that fails, it raises the same error at every call, and imports nothing again.
    """

    def __init__(self, module: str) -> None:
        self.__module__ = module
        self._check: Check[Any] | None = None

    def __call__(self, subject: Any, context: Context) -> Iterable[Finding]:
        """Return what the check of the module yields."""
        if self._check is None:
            self._check = self._import()
        return self._check(subject, context)

    def _import(self) -> Check[Any]:
        try:
            check: Check[Any] = import_module(self.__module__).check
        except MemoryError:  # the next call may have enough
            raise
        except Exception as error:  # noqa: BLE001  # whatever a module may raise
            return _failing_check(error)
        return check


def _failing_check(error: Exception) -> Check[Any]:
    def fail(_subject: Any, _context: Context) -> Iterable[Finding]:
        raise error.with_traceback(None)  # which would grow at every call

    return fail


def define_rule(
    check: Check[S],
    *,
    action: Action,
    since: str = "",
    needs: tuple[int, ...],
    supersedes: tuple[str, ...] = (),
    options: Mapping[str, Any] = NO_OPTIONS,
    needs_resources: bool = False,
) -> Rule[S]:
    """The rule of the module that `check` is in.

    The name is that of the module, with dashes; the summary is the first line of its docstring.
    The subject is the type of the first parameter of `check`: Pod, Quota, DeviceClaim, DeviceSpec
    for claims and classes, KubernetesObject, ContainerSetting or LabelCommand.

    - `action`: what happens by default.
    - `since`: the version of the catalog that brought the rule. `make docs` fills it in, and it
      never changes.
    - `needs`: an AND of ORs. Each entry is one or several traits, joined by `|`; the engine runs
      the rule only for a subject that has at least one trait of *every* entry. API servers do
      not even send pods that meet the `needs` of no rule: they are a promise, not a hint.
    - `supersedes`: names of later rules that stay silent about a container and key that this
      rule has reported.
    - `options`: each option's default.
    - `needs_resources`: the rule reads or writes `resources`, so it does not run for kinds that
      ask for GPUs in a field of their own, such as the `gpu` of Spark's driver.
    """
    title = (sys.modules[check.__module__].__doc__ or "").partition("\n")[0].rstrip(".")
    # A sentence begins with a capital; a name such as CUDA_VISIBLE_DEVICES keeps its own.
    summary = title if title[1:2].isupper() else title[:1].lower() + title[1:]
    return Rule(
        name=_rule_name(check.__module__),
        summary=summary,
        subject=next(iter(get_type_hints(check).values())),
        action=action,
        since=since,
        check=check,
        needs=needs,
        supersedes=supersedes,
        options=options,
        needs_resources=needs_resources,
    )


def indexed_rule(
    module: str, summary: str, *, subject: type[Any] = Pod, **fields: Any
) -> Rule[Any]:
    """Return the rule of `module`, which is not imported: an entry of the index."""
    check = LazyCheck(module)
    return Rule(name=_rule_name(module), summary=summary, subject=subject, check=check, **fields)


def _rule_name(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def sections_of_docstring(docstring: str) -> Mapping[str, str]:
    """The text below each heading (a line underlined with dashes) of a rule's docstring."""
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    lines = docstring.splitlines()
    for line, below in pairwise((*lines, "")):
        if line.strip() and below.strip() and not below.strip().strip("-"):
            current = found.setdefault(line.strip(), [])
        elif line.strip().strip("-") or not line.strip():
            current.append(line)
    return {heading: "\n".join(text).strip() for heading, text in found.items()}
