"""A policy: which rules act, how, and for whom. It is resolved once into a rule set.

A policy may be inside another one, which it must not loosen: `keep_protected`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.base.text_matching import matches_any
from rules.catalog.index import CATALOG
from rules.engine.rule_set import ActiveRule, PolicyException, RuleSet
from rules.finding import Action, FixScope
from rules.profile.context import NO_OPTIONS
from rules.profile.profile import Profile
from rules.rule import Rule

DEFAULT_PROFILES = ("nvidia",)
"""The profiles of a policy that names none."""
SECURITY_FAMILIES = ("bypass", "security", "sharing")
"""Rules of these protect other tenants: an exception to one must name the namespaces it is for."""
GPU_EXCEPTION_API, GPU_EXCEPTION_KIND = "gpuward.io/v1alpha1", "GpuException"
"""The apiVersion and the kind of GpuExceptions; `gpu_exceptions` decides about them."""


class RuleSettings(NamedTuple):
    """The settings of a policy for one rule; None where it says nothing."""

    action: Action | None = None
    fix: bool | None = None
    options: Mapping[str, Any] = NO_OPTIONS
    suppressible: bool = True

    def overridden_by(self, other: "RuleSettings") -> "RuleSettings":
        """These settings, but for what `other` says."""
        return RuleSettings(
            action=self.action if other.action is None else other.action,
            fix=self.fix if other.fix is None else other.fix,
            options={**self.options, **other.options},
            suppressible=self.suppressible and other.suppressible,
        )


class GpuExceptionLimits(NamedTuple):
    """Exceptions that owners of the `namespaces` may make to `rules`, by GpuException objects.

    Each lasts at most `max_days` from the day on which it was created. With `needs_approval`,
    a user with the right to approve it must have done so.
    """

    rules: tuple[str, ...]
    namespaces: tuple[str, ...]
    max_days: int
    needs_approval: bool = True

    def covers(self, rule: str, namespace: str) -> bool:
        """Return whether owners of `namespace` may make exceptions to `rule`."""
        return rule in self.rules and matches_any(self.namespaces, namespace)


class PathSettings(NamedTuple):
    """The settings of a policy in `folder` for the files that fit one of `path_patterns`.

    The patterns are relative to `folder`. A setting that is None or empty stays as in the policy.
    `has_profiles` says that it names profiles, whether or not the command line replaces them: the
    files are those of a cluster of their own.
    """

    path_patterns: tuple[str, ...]
    folder: str
    profile: Profile | None = None
    namespace: str | None = None
    rules: Mapping[str, RuleSettings] = MappingProxyType({})
    exceptions: tuple[PolicyException, ...] = ()
    has_profiles: bool = False


class Policy(NamedTuple):
    """One policy, checked, with its profiles merged.

    `per_path` and `lint` are for the linter alone.
    """

    profile: Profile
    rules: Mapping[str, RuleSettings] = MappingProxyType({})
    exceptions: tuple[PolicyException, ...] = ()
    gpu_exception_limits: tuple[GpuExceptionLimits, ...] = ()
    catalog: str | None = None
    on_rule_error: Literal["allow", "deny"] = "allow"
    workloads: Literal["warn", "fix", "deny"] = "warn"
    void_every_container: bool = False
    contact: str = ""
    docs_url: str = ""
    nag: bool = False
    per_path: tuple[PathSettings, ...] = ()
    lint: Mapping[str, Any] = MappingProxyType({})

    def with_path_settings(self, settings: PathSettings) -> "Policy":
        """The policy for files to which `settings` apply."""
        rules = dict(self.rules)
        for name, own in settings.rules.items():
            rules[name] = rules.get(name, RuleSettings()).overridden_by(own)
        return self._replace(
            profile=settings.profile or self.profile,
            rules=rules,
            exceptions=(*self.exceptions, *settings.exceptions),
        )

    def rule_set(self) -> RuleSet:
        """The rules that are not off, as they act."""
        active = (self.activate(rule) for rule in CATALOG)
        return RuleSet(
            rules=tuple(rule for rule in active if rule.action is not Action.OFF),
            profile=self.profile,
            exceptions=self.exceptions,
        )

    def activate(self, rule: Rule[Any]) -> ActiveRule:
        """The rule as it acts, perhaps not at all: its action may be off."""
        settings = self.rules.get(rule.name, RuleSettings())
        action = rule.action if settings.action is None else settings.action
        scope = {None: FixScope.SAFE, False: FixScope.NONE, True: FixScope.ALL}[settings.fix]
        if self.catalog is not None and parse_catalog_version(rule.since) > parse_catalog_version(
            self.catalog
        ):
            action, scope = min(action, Action.AUDIT), FixScope.NONE
        options, needs = {**rule.options, **settings.options}, rule.needs
        if "every_container" in rule.options:
            options["every_container"] = self.void_every_container
            needs = () if self.void_every_container else needs
        return ActiveRule(rule, action, scope, options, settings.suppressible, needs)


def parse_catalog_version(text: str) -> tuple[int, ...]:
    """A dotted version for comparison, 1 as good as 1.0; ValueError if it is none."""
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


class LayerError(ValueError):
    """A policy that loosens what one around it protects; the message says what."""


def keep_protected(inner: Policy, outer: Policy, name: str) -> Policy:
    """`inner`, with the rules that `outer`, the file called `name`, lets no user suppress.

    These act as `outer` says, or more strictly. Raises LayerError if `inner` makes an exception to
    one of them that `outer` does not make.
    """
    protected = {rule: s for rule, s in outer.rules.items() if not s.suppressible}
    if not protected:
        return inner
    for exception in inner.exceptions:
        for rule in exception.rules:
            if rule in protected and exception not in outer.exceptions:
                raise LayerError(
                    f"an exception to {rule}, which {name} lets nobody suppress "
                    "(suppressible: false): make the exception there"
                )
    defaults = {rule.name: rule.action for rule in CATALOG}
    rules = dict(inner.rules)
    for rule, settings in protected.items():
        default = defaults.get(rule, Action.OFF)
        own = rules.get(rule, RuleSettings())
        actions = [default if one.action is None else one.action for one in (own, settings)]
        rules[rule] = settings._replace(action=max(actions))
    # An older catalog would turn newer rules into notes.
    return inner._replace(rules=rules, catalog=outer.catalog)
