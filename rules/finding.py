"""The results of a rule: findings, and the fixes that they may carry."""

import enum
from collections.abc import Iterator
from typing import NamedTuple, Self

from rules.base.json_values import Edit, Path
from rules.objects.container import Container
from rules.objects.file_settings import ContainerSetting, LabelCommand
from rules.objects.kubernetes_objects import DeviceSpec, KubernetesObject, Quota
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod

# Tenants choose names, and an identity is made for every finding.
_MAX_PART_CHARACTERS = 1024


class Action(enum.IntEnum):
    """The effect of a finding on an object, from nothing to refusal."""

    OFF = 0
    AUDIT = 1
    WARN = 2
    DENY = 3

    @property
    def word(self) -> str:
        """The action as policies, URL paths and labels spell it."""
        return self.name.lower()


class FixScope(enum.IntEnum):
    """The fixes that are made: none, those that are safe by default, or all."""

    NONE = 0
    SAFE = 1
    ALL = 2


class Fix(NamedTuple):
    """Edits that remove the cause of a finding, and a title that completes "fix: …".

    A fix is made by default only if it is `safe`: it takes nothing from users that the object
    would have had, and makes no decision that is theirs.
    """

    title: str
    edits: tuple[Edit, ...]
    safe: bool = False


class _FindingFields(NamedTuple):
    path: Path
    key: str
    message: str
    container: Container | None
    containers: tuple[Container, ...]
    help: str
    fix: Fix | None
    action: Action
    api_refuses: bool
    rule: str
    object: ObjectRef | None
    stable_path: str
    fixable: bool


class Finding(_FindingFields):
    """One fault in one place. All arguments are keywords.

    A rule gives:

    - `path`: the field at fault. If that is missing, its place directly below a field that exists:
      `spec.tolerations` of a pod without tolerations, but not `spec.affinity.nodeAffinity` of one
      without `affinity`.
    - `key`: the field, variable or resource at fault, without list indices. No two findings about
      one container share a key, so some rules put a word in front, such as `count.`.
    - `message`: what is wrong; it must make sense on its own.
    - `container`: None if the finding concerns the whole pod, or a volume of it.
    - `containers`: those that mount the volume. It is no part of the identity: a volume is one
      fault, however many containers mount it.
    - `help`: what to do about it.
    - `fix`: None if there is no sound one.
    - `action`: may only weaken the rule's own action.
    - `api_refuses`: the API server itself refuses the object before it calls validating
      webhooks, so only the mutating webhook can explain why.

    The engine adds the rest by `with_rule`.
    """

    __slots__ = ()

    def __new__(
        cls,
        *,
        path: Path,
        key: str,
        message: str,
        container: Container | None = None,
        containers: tuple[Container, ...] = (),
        help: str = "",  # noqa: A002  # the word that reports print
        fix: Fix | None = None,
        action: Action = Action.DENY,
        api_refuses: bool = False,
        rule: str = "",
        object: ObjectRef | None = None,  # noqa: A002  # Kubernetes' word
        stable_path: str = "",
        fixable: bool = False,
    ) -> Self:
        """Keywords only: positions in a record of thirteen fields tell a reader nothing."""
        given = (path, key, message, container, containers, help, fix, action, api_refuses)
        # In the order of the fields, because passing them on by keyword takes half as long again.
        return tuple.__new__(cls, (*given, rule, object, stable_path, fixable))

    def with_rule(
        self,
        rule: str,
        subject: Pod | Quota | DeviceSpec | KubernetesObject | ContainerSetting | LabelCommand,
        action: Action,
        *,
        fixable: bool,
    ) -> Self:
        """The finding as made by `rule` about `subject`."""
        return self._replace(
            action=action,
            rule=rule,
            object=subject.object,
            stable_path=subject.stable_path,
            fixable=fixable,
        )

    def has_fix(self, scope: FixScope, *, is_partial: bool) -> bool:
        """Return whether there is a fix that is made within `scope`.

        `is_partial`: the object around the pod may have what the fix would add, or ask for what it
        would take away. Then no fix is safe.
        """
        if self.fix is None:
            return False
        is_safe = self.fix.safe and not is_partial
        return scope is FixScope.ALL or (scope is FixScope.SAFE and is_safe)

    @property
    def container_name(self) -> str:
        """The container's name, empty if the finding concerns the whole object."""
        return self.container.name if self.container else ""

    @property
    def identity(self) -> str:
        """Return what stays the same when lines move and containers are reordered."""
        place = (self.stable_path, self.container_name, self.key)
        return identity_of(self.rule, self.object, *place)

    @property
    def object_identity(self) -> str:
        """Kind, group, namespace and name of the object."""
        return object_identity_of(self.object)


Findings = Iterator[Finding]
"""The result of the check of a rule."""


def identity_of(rule: str, ref: ObjectRef | None, *place: str) -> str:
    """The identity of what `rule` finds in the object `ref`, at a place that stays the same."""
    parts = (object_identity_of(ref), *place)
    return "|".join((rule, *map(_abbreviate, parts)))


def object_identity_of(ref: ObjectRef | None) -> str:
    """Kind, group, namespace and name of the object `ref`; empty if there is none."""
    if ref is None:
        return ""
    kind, group, namespace, name = map(_abbreviate, ref)
    return f"{kind}.{group}/{namespace}/{name}"


def _abbreviate(text: str) -> str:
    """`text` itself, or a short text in place of one that is longer than any valid name."""
    if len(text) <= _MAX_PART_CHARACTERS:
        return text
    short = sha256_hex(text)
    return f"{text[: _MAX_PART_CHARACTERS - len(short)]}{short}"


def sha256_hex(text: str) -> str:
    """The SHA-256 of `text`, in 64 hexadecimal digits."""
    import hashlib  # noqa: PLC0415  # it loads OpenSSL, and few findings need it

    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
