"""The active policy, replaced when its file changes.

The file is read every few seconds instead of watched: this works for the links that the kubelet
swaps in a mounted ConfigMap, for network file systems and for editors alike. A change is taken
when two readings agree, because half of a policy may be valid too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from policies.loading import PolicyError, default_policy, load_policy, read_policy_file
from policies.policy import Policy
from rules.engine.rule_set import PolicyException
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from webhook.admission.decider import Decider
from webhook.reload.exceptions_and_inventory import GpuExceptionsFile, InventoryFiles


class PolicySource(NamedTuple):
    """The source of a policy: the content of the file `name`, or None for the default policy.

    `profiles`, if not empty, replace those that the policy names. `gpu_exceptions` are those
    that the policy accepts. `inventory` is what is known of other objects.
    """

    content: bytes | None
    name: str
    profiles: tuple[str, ...]
    gpu_exceptions: tuple[PolicyException, ...] = ()
    inventory: Inventory = EMPTY_INVENTORY

    def load(self) -> Policy:
        """The policy with all exceptions; PolicyError says what is wrong with it."""
        if self.content is None:
            policy = default_policy(self.profiles)
        else:
            policy = load_policy(self.content, self.name, self.profiles)
        return policy._replace(exceptions=policy.exceptions + self.gpu_exceptions)

    def decider(self) -> Decider:
        """Return the decider for this policy. Raises PolicyError if the policy is not valid."""
        return Decider(self.load(), self.inventory)


class ActivePolicy(NamedTuple):
    """The policy by which requests are decided.

    `exceptions` are those of the policy itself, and `source` is what it was loaded from. `digest`
    is the SHA-256 of its file, empty for the default policy; `since` is a Unix time.
    """

    decider: Decider
    exceptions: tuple[PolicyException, ...]
    source: PolicySource
    digest: str
    since: float


ReloadResult = Literal["", "loaded", "refused", "restored"]


class PolicyReloader:
    """The policy in the file at `path`, or the default one if that is None.

    `fallback` is a file with another policy, which is used if the first one cannot be used when
    the process starts. `gpu_exceptions` has exceptions that owners of namespaces made, `inventory`
    what is known of other objects of the cluster. Nothing is read until `load()` is called.
    `reload()` may be called from any thread, by one at a time; it replaces `active` in one step.
    """

    def __init__(
        self,
        path: str | None,
        profiles: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        *,
        fallback: str | None = None,
        gpu_exceptions: GpuExceptionsFile | None = None,
        inventory: InventoryFiles | None = None,
    ) -> None:
        self._path = path
        self._fallback = fallback
        self.gpu_exceptions = gpu_exceptions
        """The file with further exceptions, if there is one."""
        self.inventory = inventory
        """The files with the inventory of the cluster, if there are any."""
        self._profiles = tuple(profiles)
        self._clock = clock
        self._content = b""
        self._pending: bytes | None = None
        self._failed: bytes | None = None
        self._active: ActivePolicy | None = None
        self.loads = 0
        """How many policies have been loaded, including the first."""
        self.failures = 0
        """How many times the file had new content that could not be used."""
        self.last_error = ""
        """Why the policy in the file is not the active one; empty if it is."""

    @property
    def active(self) -> ActivePolicy:
        """The active policy; there is one once `load()` has returned."""
        if self._active is None:
            raise RuntimeError("no policy is loaded")
        return self._active

    @property
    def is_loaded(self) -> bool:
        """Return whether there is an active policy."""
        return self._active is not None

    def load(self) -> None:
        """Load the policy as it is now, or else the fallback.

        Raises PolicyError, which says what is wrong with the policy, if neither can be used. After
        the fallback was loaded, the next `reload()` says what is wrong with the policy.
        """
        content = None
        try:
            source = self._read(self._path)
            content = source.content
            self._activate(source)
        except PolicyError:
            if not self._load_fallback():
                raise
            self._pending = content

    def _load_fallback(self) -> bool:
        """Load the fallback; returns whether there is one that can be used."""
        if self._fallback is None:
            return False
        try:
            self._activate(self._read(self._fallback))
        except PolicyError:
            return False
        return True

    def reload(self) -> ReloadResult:
        """Read the files again; what changed about the policy, empty if nothing did."""
        are_new = self.gpu_exceptions is not None and self.gpu_exceptions.reload()
        are_new |= self.inventory is not None and self.inventory.reload()
        change = self._reload_policy()
        if are_new and change != "loaded":
            active = self.active
            self._active = self._with_decider(active.source)._replace(since=active.since)
        return change

    def _reload_policy(self) -> ReloadResult:
        if self._path is None:
            return ""
        try:
            content = read_policy_file(self._path)
        except PolicyError as error:
            self._pending = None
            return self._keep_after_failure(str(error))
        if content == self._content:
            return self._keep_active()
        if content != self._pending or content == self._failed:
            self._pending = content
            return ""
        try:
            self._activate(PolicySource(content, self._path, self._profiles))
        except PolicyError as error:
            self._failed = content
            return self._keep_after_failure(str(error))
        return "loaded"

    def _keep_active(self) -> ReloadResult:
        """The file holds the active policy, perhaps again after a faulty one."""
        self._pending, self._failed = None, None
        restored, self.last_error = bool(self.last_error), ""
        return "restored" if restored else ""

    def _keep_after_failure(self, reason: str) -> ReloadResult:
        if reason == self.last_error:
            return ""
        self.last_error = reason
        self.failures += 1
        return "refused"

    def _read(self, path: str | None) -> PolicySource:
        content = None if path is None else read_policy_file(path)
        return PolicySource(content, path or "", self._profiles)

    def _activate(self, source: PolicySource) -> None:
        """Make the policy of `source` the active one; PolicyError leaves the present one."""
        active, content = self._with_decider(source), source.content
        self._active = active
        self._content, self._pending, self._failed = content or b"", None, None
        self.last_error = ""
        self.loads += 1

    def _with_decider(self, source: PolicySource) -> ActivePolicy:
        """The policy of `source` with the GpuExceptions that it accepts now; PolicyError."""
        policy, content = source._replace(gpu_exceptions=()).load(), source.content
        accepted = self.gpu_exceptions.accepted_by(policy) if self.gpu_exceptions else ()
        known = self.inventory.inventory if self.inventory else EMPTY_INVENTORY
        decider = Decider(policy._replace(exceptions=policy.exceptions + accepted), known)
        digest = "" if content is None else hashlib.sha256(content).hexdigest()
        source = source._replace(gpu_exceptions=accepted, inventory=known)
        return ActivePolicy(decider, policy.exceptions, source, digest, self._clock())
