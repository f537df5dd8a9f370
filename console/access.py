"""The viewers of the pages, and the namespaces that they may see."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, Protocol, TypeVar

from cluster.api.reviews import ALL_NAMESPACES, Identity, Reviewer
from terminal import printable, reason_of

AUDIENCE = "gpuward-console"
"""A token for this audience is of no use anywhere else."""
PROXY_SECRET_HEADER = "X-Gpuward-Proxy-Secret"  # noqa: S105  # the name, not the secret
PROXY_USER_HEADER, PROXY_GROUPS_HEADER = "X-Forwarded-User", "X-Forwarded-Groups"
SESSION_COOKIE = "gpuward-console"
SESSION_SECONDS = 8 * 3600
MAX_TOKEN_CHARACTERS = 16_384
MIN_SECRET_CHARACTERS = 32
MAX_NAMESPACES = 2_000
"""About so many the API server is asked for one viewer; what is beyond is not shown."""
_REVIEW_SECONDS = 60.0  # for which an answer of the API server counts
_MAX_REVIEWS = 100_000  # answers that are kept
_MAX_SESSIONS, _MAX_SESSIONS_OF_ONE = 2_000, 10
_MAX_USER_CHARACTERS, _MAX_GROUPS = 256, 500
_ASKED_AT_ONCE = 8
_MAX_SECRET_BYTES = 4_096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AccessError(Exception):
    """No user is known for a request; the message says what is missing."""


class SecretError(Exception):
    """The secret of the proxy cannot be used; the message says why."""


class Viewer(Protocol):
    """The user who looks at a page."""

    @property
    def name(self) -> str:
        """Return the name on the page; empty if viewers are not told apart."""

    @property
    def sees_all(self) -> bool:
        """Return whether they see all namespaces, and objects in none. Raises ClusterError."""

    def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those of the namespaces that they see. Raises ClusterError.

        Of more than MAX_NAMESPACES only the first are asked about.
        """


class Everybody:
    """The viewer where all who reach the console see what its account sees."""

    name = ""
    sees_all = True

    def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """All of them."""
        return frozenset(namespaces)


class Credentials(NamedTuple):
    """The credentials in a request: headers, each with all its values, and a cookie."""

    authorization: Sequence[str] = ()
    proxy_secret: Sequence[str] = ()
    proxy_user: Sequence[str] = ()
    proxy_groups: Sequence[str] = ()
    session: str = ""


class Access:
    """Asks an API server who a viewer is and what they may see, and keeps its answers briefly.

    `proxy_secret` reads the secret by which an authenticating proxy is known; None: no proxy is
    trusted.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        proxy_secret: Callable[[], bytes] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer, self._proxy_secret = reviewer, proxy_secret
        self._monotonic = monotonic
        self._identities: _Kept[bytes, Identity | None] = _Kept(monotonic)
        self._rights: _Kept[tuple[Identity, str], bool] = _Kept(monotonic)
        self._threads = ThreadPoolExecutor(_ASKED_AT_ONCE, "access")
        self._sessions: dict[bytes, _Session] = {}
        self._lock = threading.Lock()

    def viewer(self, shown: Credentials) -> Viewer:
        """Return the viewer. Raises AccessError; ClusterError if the API server does not say it."""
        if shown.proxy_secret:
            return _Reviewed(self, self._by_proxy(shown))
        if shown.authorization:
            scheme, _, token = shown.authorization[0].partition(" ")
            if len(shown.authorization) > 1 or scheme.lower() != "bearer":
                raise AccessError("the header Authorization must be one bearer token")
            return _Reviewed(self, self._by_token(token.strip()))
        if shown.session:
            with self._lock:
                session = self._sessions.get(_digest(shown.session))
            if session and self._monotonic() < session.ends:
                return _Reviewed(self, self._by_token(session.token))
            raise AccessError("the session has ended: sign in again")
        raise AccessError("sign in, or send a bearer token")

    def sign_in(self, token: str) -> str:
        """Return the secret of a new session of the user with this token. Raises as `viewer`."""
        identity = self._by_token(token.strip())
        secret = secrets.token_urlsafe(32)
        now = self._monotonic()
        with self._lock:
            kept = {key: one for key, one in self._sessions.items() if now < one.ends}
            own = [key for key, one in kept.items() if one.user == identity.user]
            for key in own[: max(len(own) - _MAX_SESSIONS_OF_ONE + 1, 0)]:
                del kept[key]
            for key in [*kept][: max(len(kept) - _MAX_SESSIONS + 1, 0)]:
                del kept[key]
            kept[_digest(secret)] = _Session(token.strip(), identity.user, now + SESSION_SECONDS)
            self._sessions = kept
        return secret

    def sign_out(self, secret: str) -> None:
        """End a session, if there is such a one."""
        with self._lock:
            self._sessions.pop(_digest(secret), None)

    def _by_token(self, token: str) -> Identity:
        if not token or len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            raise AccessError("this is no token")
        identity = self._identities.get(_digest(token), lambda: self._reviewed(token))
        if identity is None:
            raise AccessError("the API server does not accept this token")
        return identity

    def _reviewed(self, token: str) -> Identity | None:
        found = self._reviewer.identity(token, AUDIENCE)
        return found or self._reviewer.identity(token, "")

    def _by_proxy(self, shown: Credentials) -> Identity:
        """Return the viewer by the headers of a proxy that shows the secret."""
        try:
            expected = self._proxy_secret() if self._proxy_secret else b""
        except SecretError as error:
            raise AccessError(str(error)) from error
        given = shown.proxy_secret[0].encode(errors="surrogateescape")
        # An empty secret is none: every client would know it.
        if not expected or not hmac.compare_digest(given, expected):
            raise AccessError(f"the header {PROXY_SECRET_HEADER} has not the secret of the proxy")
        if max(map(len, (shown.proxy_secret, shown.proxy_user, shown.proxy_groups))) > 1:
            raise AccessError("the proxy must send each of its headers once")
        user = (*shown.proxy_user, "")[0].strip()
        groups = [g.strip() for g in (*shown.proxy_groups, "")[0].split(",") if g.strip()]
        # These names are those of Kubernetes itself, and some of them may do everything.
        if not user or user.startswith("system:") or len(user) > _MAX_USER_CHARACTERS:
            raise AccessError(f"the header {PROXY_USER_HEADER} names no user")
        own = [group for group in groups[:_MAX_GROUPS] if not group.startswith("system:")]
        return Identity(user, (*own, "system:authenticated"))

    def may_list_pods(self, identity: Identity, namespace: str) -> bool:
        """Return whether a user may list pods in a namespace, or in all. Raises ClusterError."""
        return self._rights.get(
            (identity, namespace), lambda: self._reviewer.may_list_pods(identity, namespace)
        )

    def visible(self, identity: Identity, namespaces: Iterable[str]) -> frozenset[str]:
        """Those of the first namespaces in which a user may list pods. Raises ClusterError."""
        asked = [*dict.fromkeys(filter(None, namespaces))][:MAX_NAMESPACES]
        answers = self._threads.map(lambda name: self.may_list_pods(identity, name), asked)
        return frozenset(name for name, may in zip(asked, answers, strict=True) if may)


class _Reviewed:
    """A viewer whose rights the API server knows."""

    def __init__(self, access: Access, identity: Identity) -> None:
        self._access, self._identity = access, identity
        self.name = identity.user

    @property
    def sees_all(self) -> bool:
        return self._access.may_list_pods(self._identity, ALL_NAMESPACES)

    def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        if self.sees_all:
            return frozenset(namespaces)
        return self._access.visible(self._identity, namespaces)


class _Session(NamedTuple):
    token: str
    user: str
    ends: float


class _Kept(Generic[K, V]):
    """Answers by what was asked, each for a minute, and not more than a bound."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answers: dict[K, tuple[float, V]] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The answer that is kept, or that of `ask`."""
        with self._lock:
            found = self._answers.get(key)
        if found and self._monotonic() < found[0]:
            return found[1]
        answer = ask()
        with self._lock:
            self._answers.pop(key, None)
            if len(self._answers) >= _MAX_REVIEWS:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = self._monotonic() + _REVIEW_SECONDS, answer
        return answer


def read_secret(file: str) -> bytes:
    """The secret of a proxy, from a file, without white space around it. Raises SecretError."""
    try:
        with open(file, "rb") as content:
            found = content.read(_MAX_SECRET_BYTES + 1).strip()
    except OSError as error:
        why = reason_of(error)
        raise SecretError(f"the secret of the proxy: {printable(file)}: {why}") from error
    if not MIN_SECRET_CHARACTERS <= len(found) <= _MAX_SECRET_BYTES:
        limits = f"{MIN_SECRET_CHARACTERS} to {_MAX_SECRET_BYTES:,}"
        raise SecretError(
            f"the secret of the proxy: {printable(file)} must have {limits} characters; make one "
            "with: openssl rand -hex 32"
        )
    return found


def _digest(text: str) -> bytes:
    """Kept and compared instead of a secret, so that no time tells a part of it."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
