"""The settings of a policy as typed records: made of its YAML once, read by all later steps."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from policies.exceptions import (
    ExceptionEntry,
    GpuExceptionEntry,
    as_patterns,
    to_exception,
    to_exception_entry,
    to_gpu_exception_entry,
)
from policies.policy import DEFAULT_PROFILES, PathSettings, Policy, RuleSettings
from policies.profiles import merged_profile
from rules.finding import Action

FIELD_BY_KEY: Mapping[str, str] = {
    "catalog": "catalog",
    "onRuleError": "on_rule_error",
    "workloads": "workloads",
    "voidEveryContainer": "void_every_container",
    "contact": "contact",
    "docsUrl": "docs_url",
    "nag": "nag",
}
"""The keys of a policy that have one value, each with the field of a `Policy` that it sets."""


class Setting(NamedTuple):
    """A value that a policy sets for a rule; `source` names the bundle or file that it is from.

    It is empty for what the policy itself says.
    """

    value: Any
    source: str = ""


RuleValues: TypeAlias = Mapping[tuple[str, ...], Setting]
"""The settings of a policy for a rule, by path: `("action",)`, or `("options", "max_devices")`."""


class PathEntry(NamedTuple):
    """An entry of `perPath`: settings for the files in `folder` that fit one of `path_patterns`.

    `profiles` is empty if it names none. `raw` is the entry as it is written.
    """

    path_patterns: tuple[str, ...]
    raw: Mapping[str, Any]
    folder: str = ""
    profiles: tuple[str | Mapping[str, Any], ...] = ()
    namespace: str | None = None
    rules: Mapping[str, RuleValues] = MappingProxyType({})
    exceptions: tuple[ExceptionEntry, ...] = ()


class PolicySettings(NamedTuple):
    """The settings of a policy. A field is None, or empty, if the policy does not set it.

    `extends` names bundles and files. `merged_with` adds the settings of these: then `bases` are
    their policies in the same order.
    """

    profiles: tuple[str | Mapping[str, Any], ...] = ()
    extends: tuple[str, ...] = ()
    bases: tuple["ExtendedPolicy", ...] = ()
    rules: Mapping[str, RuleValues] = MappingProxyType({})
    exceptions: tuple[ExceptionEntry, ...] = ()
    gpu_exceptions: tuple[GpuExceptionEntry, ...] = ()
    per_path: tuple[PathEntry, ...] = ()
    lint: Mapping[str, Any] = MappingProxyType({})
    catalog: str | None = None
    on_rule_error: Literal["allow", "deny"] | None = None
    workloads: Literal["warn", "fix", "deny"] | None = None
    void_every_container: bool | None = None
    contact: str | None = None
    docs_url: str | None = None
    nag: bool | None = None

    def single_values(self) -> dict[str, Any]:
        """Return the values of the keys in `FIELD_BY_KEY`, by the fields of a `Policy`."""
        values = {field: getattr(self, field) for field in FIELD_BY_KEY.values()}
        return {field: value for field, value in values.items() if value is not None}

    def merged_with(self, bases: Iterable["ExtendedPolicy"], folder: str) -> "PolicySettings":
        """Return these settings, of a policy in `folder`, with those of `bases`, which it extends.

        A later base wins over an earlier one, and this policy over all. Exceptions and settings
        per path are added. A bundle adds its rules alone.
        """
        bases = tuple(bases)
        rules: dict[str, dict[tuple[str, ...], Setting]] = {}
        for layer in (*(base.settings for base in bases), self):
            for rule, values in layer.rules.items():
                rules.setdefault(rule, {}).update(values)
        own = self._replace(per_path=tuple(one._replace(folder=folder) for one in self.per_path))
        layers = [*(base.settings for base in bases if not base.is_bundle), own]
        single = {field: v for one in layers for field, v in one.single_values().items()}
        return own._replace(
            bases=bases,
            rules=rules,
            profiles=next((one.profiles for one in reversed(layers) if one.profiles), ()),
            exceptions=tuple(entry for one in layers for entry in one.exceptions),
            gpu_exceptions=tuple(entry for one in layers for entry in one.gpu_exceptions),
            per_path=tuple(entry for one in layers for entry in one.per_path),
            **single,
        )

    def with_source(self, source: str) -> "PolicySettings":
        """Return these settings, in which `source` is the source of those that have none."""
        rules = {
            rule: {path: Setting(one.value, one.source or source) for path, one in values.items()}
            for rule, values in self.rules.items()
        }
        return self._replace(rules=rules)


class ExtendedPolicy(NamedTuple):
    """A policy that another one extends: the bundle or the file called `name`."""

    name: str
    settings: PolicySettings
    is_bundle: bool = False


def to_settings(raw: Mapping[str, Any]) -> PolicySettings:
    """Return the settings of the policy `raw`, all of whose parts fit the schema."""
    return PolicySettings(
        profiles=tuple(raw.get("profiles", ())),
        extends=tuple(raw.get("extends", ())),
        rules=_to_rules(raw),
        exceptions=tuple(map(to_exception_entry, raw.get("exceptions", ()))),
        gpu_exceptions=tuple(map(to_gpu_exception_entry, raw.get("gpuExceptions", ()))),
        per_path=tuple(map(_to_path_entry, raw.get("perPath", ()))),
        lint=raw.get("lint", {}),
        catalog=raw.get("catalog"),
        on_rule_error=raw.get("onRuleError"),
        workloads=raw.get("workloads"),
        void_every_container=raw.get("voidEveryContainer"),
        contact=raw.get("contact"),
        docs_url=raw.get("docsUrl"),
        nag=raw.get("nag"),
    )


def _to_path_entry(raw: Mapping[str, Any]) -> PathEntry:
    return PathEntry(
        path_patterns=as_patterns(raw["paths"]),
        raw=raw,
        profiles=tuple(raw.get("profiles", ())),
        namespace=raw.get("namespace"),
        rules=_to_rules(raw),
        exceptions=tuple(map(to_exception_entry, raw.get("exceptions", ()))),
    )


def _to_rules(raw: Mapping[str, Any]) -> dict[str, RuleValues]:
    return {name: _to_rule_values(settings) for name, settings in raw.get("rules", {}).items()}


def _to_rule_values(settings: Mapping[str, Any]) -> dict[tuple[str, ...], Setting]:
    values = {(key,): Setting(value) for key, value in settings.items() if key != "options"}
    options = settings.get("options", {}).items()
    return values | {("options", option): Setting(value) for option, value in options}


class LoadedPolicy(NamedTuple):
    """A policy, and the settings of its file and of those that it extends."""

    policy: Policy
    settings: PolicySettings


def to_policy(settings: PolicySettings, profiles: list[str]) -> Policy:
    """Return the policy that `settings` make. `profiles`, if not empty, replace theirs.

    Raises ProfileError for profiles that do not exist, or that cannot be combined.
    """
    listed = settings.profiles or DEFAULT_PROFILES
    custom = [profile for profile in listed if not isinstance(profile, str)]
    single = settings.single_values()
    texts = {key: single[key].strip() for key in ("contact", "docs_url") if key in single}
    return Policy(
        profile=merged_profile(profiles, custom) if profiles else merged_profile(listed),
        rules=_to_rule_settings(settings.rules),
        exceptions=tuple(map(to_exception, settings.exceptions)),
        gpu_exception_limits=tuple(entry.limits for entry in settings.gpu_exceptions),
        per_path=tuple(_to_path_settings(entry, profiles) for entry in settings.per_path),
        lint=settings.lint,
        **(single | texts),
    )


def _to_path_settings(entry: PathEntry, profiles: list[str]) -> PathSettings:
    listed = entry.profiles
    return PathSettings(
        path_patterns=entry.path_patterns,
        folder=entry.folder,
        profile=merged_profile(listed) if listed and not profiles else None,
        namespace=entry.namespace,
        rules=_to_rule_settings(entry.rules),
        exceptions=tuple(map(to_exception, entry.exceptions)),
        has_profiles=bool(listed),
    )


def _to_rule_settings(rules: Mapping[str, RuleValues]) -> dict[str, RuleSettings]:
    return {name: _to_settings_of_rule(values) for name, values in rules.items()}


def _to_settings_of_rule(values: RuleValues) -> RuleSettings:
    plain = {path[0]: given.value for path, given in values.items() if len(path) == 1}
    options = {path[1]: given.value for path, given in values.items() if len(path) > 1}
    return RuleSettings(
        action=Action[plain["action"].upper()] if "action" in plain else None,
        fix=plain.get("fix"),
        options={k: tuple(v) if isinstance(v, list) else v for k, v in options.items()},
        suppressible=plain.get("suppressible", True),
    )
