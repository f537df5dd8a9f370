"""The policy in force, replaced when its file changes.

The file is read every few seconds rather than watched: that sees a ConfigMap's swapped
links, a network file system and an editor's rename alike. A change is taken when two
readings agree, because half a policy may well be a valid one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from policies.load import MAX_CHARACTERS, PolicyError, default_policy, load_policy
from rules.policy import Policy
from webhook.decide import Judge

MAX_BYTES = 4 * MAX_CHARACTERS  # the longest that UTF-8 makes of a policy
Change = Literal["", "loaded", "refused", "restored"]


class Acting(NamedTuple):
    """A policy in force; `digest` names its text (empty: the default), `since` is a Unix time."""

    judge: Judge
    denies_on_failure: bool
    digest: str
    since: float


class PolicyFile:
    """The policy in the file at `path`, or the default one if that is None.

    Nothing is read until `load()` is called. `poll()` may be called from any thread, by one
    at a time; `acting` is replaced in one step.
    """

    def __init__(
        self, path: str | None, profiles: Sequence[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._profiles = list(profiles)
        self._clock = clock
        self._content = b""
        self._seen: bytes | None = None
        self._refused: bytes | None = None
        self._acting: Acting | None = None
        self.loads = 0
        """How many policies have been taken, the first one included."""
        self.refusals = 0
        """How many times the file held something new that could not be used."""
        self.last_error = ""
        """Why the file is not what is in force; empty if it is."""

    @property
    def acting(self) -> Acting:
        """The policy in force; there is one once `load()` has returned."""
        if self._acting is None:
            raise RuntimeError("no policy is loaded")
        return self._acting

    @property
    def loaded(self) -> bool:
        """Whether there is a policy in force."""
        return self._acting is not None

    def load(self) -> None:
        """Take the policy as it is now; PolicyError says what is wrong with it."""
        if self._path is None:
            self._take(default_policy(self._profiles), b"")
            return
        content = _content(self._path)
        self._take(self._parsed(content), content)

    def poll(self) -> Change:
        """Look at the file again; what came of it, if that is news."""
        if self._path is None:
            return ""
        try:
            content = _content(self._path)
        except PolicyError as error:
            self._seen = None
            return self._refuse(str(error))
        if content == self._content:
            return self._keep()
        if content != self._seen or content == self._refused:
            self._seen = content
            return ""
        try:
            policy = self._parsed(content)
        except PolicyError as error:
            self._refused = content
            return self._refuse(str(error))
        self._take(policy, content)
        return "loaded"

    def _keep(self) -> Change:
        """The file holds what is in force, maybe again."""
        self._seen, self._refused = None, None
        restored, self.last_error = bool(self.last_error), ""
        return "restored" if restored else ""

    def _refuse(self, why: str) -> Change:
        if why == self.last_error:
            return ""
        self.last_error = why
        self.refusals += 1
        return "refused"

    def _parsed(self, content: bytes) -> Policy:
        name = self._path or ""
        try:
            return load_policy(content.decode("utf-8"), name, self._profiles)
        except UnicodeDecodeError as error:
            raise PolicyError(f"{name}: not UTF-8 (byte {error.start})") from error

    def _take(self, policy: Policy, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest() if self._path is not None else ""
        denies = policy.on_rule_error == "deny"
        self._acting = Acting(Judge(policy), denies, digest, self._clock())
        self._content, self._seen, self._refused = content, None, None
        self.last_error = ""
        self.loads += 1


def _content(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PolicyError(f"{path}: not a regular file")
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if len(content) > MAX_BYTES:
        raise PolicyError(f"{path}: a policy may have at most {MAX_CHARACTERS} characters")
    return content
