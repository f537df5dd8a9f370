"""The connection to an API server, by the Kubernetes client.

It uses only the client's configuration (in-cluster or kubeconfig) and connection pool. The client's
models change with every release, and refuse values that they do not know.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.config import kube_config
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from cluster.api.errors import ClusterError, Object, TooLargeError, UnreachableError, error_of
from cluster.api.proxies import Proxy, proxy_for
from terminal import reason_of

# Kubeconfig files: fields that the Kubernetes client ignores, or reads otherwise than kubectl.


def current_context(files: str) -> str | None:
    """The context of the first file that names one, as kubectl chooses it.

    The client takes the last one, and so might connect to another cluster than kubectl.
    """
    found = (content.get("current-context") for content in _contents(files))
    return next(filter(None, found), None)


def contexts_of_clusters(kubeconfig: str | None = None) -> list[str]:
    """One context for each cluster that the files know, the current one before others.

    Raises ClusterError if there is no file.
    """
    files = _files(kubeconfig)
    if not _exists(files):
        raise _no_file(files)
    current = current_context(files)
    chosen: dict[str, str] = {}
    for content in _contents(files):
        for entry in content.get("contexts") or ():
            name, cluster = entry.get("name"), (entry.get("context") or {}).get("cluster")
            if name and cluster and (name == current or cluster not in chosen):
                chosen[str(cluster)] = str(name)
    return [*chosen.values()]


def impersonation(files: str, context: str | None) -> list[tuple[str, str]]:
    """The headers with which the user of `context` acts as another user; most act as themselves.

    Without them a command would have other rights than kubectl. Raises ClusterError. Source:
    Kubernetes, `staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go`, AuthInfo.
    """
    chosen = _named(files, "contexts", context).get("context") or {}
    user = _named(files, "users", chosen.get("user")).get("user") or {}
    # The HTTP client sends text as Latin-1; API servers read UTF-8.
    return [(name, value.encode().decode("latin-1")) for name, value in _headers(user)]


def _headers(user: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for field, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if user.get(field) not in (None, ""):
            yield header, _text(user[field], field)
    for group in _texts(user, "as-groups"):
        yield "Impersonate-Group", group
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise _wrong_type("as-user-extra", "a map of lists of texts")
    for key in extra:
        name = quote(_text(key, "each key of as-user-extra"), safe="")
        for value in _texts(extra, key, "as-user-extra."):
            yield f"Impersonate-Extra-{name}", value


def _texts(holder: dict[str, Any], field: str, prefix: str = "") -> list[str]:
    """The texts of the list `field`, which may be missing."""
    found = holder.get(field)
    if not isinstance(found, list | None):
        raise _wrong_type(f"{prefix}{field}", "a list of texts")
    return [_text(text, f"each of {prefix}{field}") for text in found or ()]


def _text(value: object, what: str) -> str:
    if not (isinstance(value, str) and value.isprintable()):
        raise _wrong_type(what, "a text without control characters")
    return value


def _wrong_type(what: str, expected: str) -> ClusterError:
    return ClusterError(f"the user in the kubeconfig file: {what} must be {expected}")


def _named(files: str, field: str, name: str | None) -> dict[str, Any]:
    """The first entry of this name in the list `field` of the files; empty if there is none."""
    entries = (entry for content in _contents(files) for entry in content.get(field) or ())
    return next((entry for entry in entries if entry.get("name") == name), {})


def _files(kubeconfig: str | None) -> str:
    """The paths of the kubeconfig files, as kubectl chooses them."""
    return kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"


def _contents(files: str) -> list[dict[str, Any]]:
    return [*kube_config.KubeConfigMerger(files).config_files.values()]  # type: ignore[no-untyped-call]  # the client's own code has no types


_SECONDS = 10.0  # for one request
_CHUNK_BYTES = 64 * 1024
_MAX_ERROR_BYTES = 1024 * 1024
_MAX_EVENT_BYTES = 16 * 1024 * 1024
WATCH_SECONDS = 240
"""For which a watch lasts. Another one follows, because a connection may be lost unnoticed."""
_NO_CREDENTIALS = "no credentials for the Kubernetes API"


class _AsKubectlVerifies(urllib3.connection.HTTPSConnection):
    """Trusts the authorities that kubectl trusts, also those without key identifiers.

    Python 3.13 and newer refuse them by VERIFY_X509_STRICT, and EKS has such authorities. Chain,
    dates and names are verified as before.
    """

    def connect(self) -> None:
        context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.ca_certs and not self.ca_cert_data:
            context.load_default_certs()  # as urllib3 does for a context of its own
        self.ssl_context = context
        super().connect()


def _let_verify_as_kubectl(pools: urllib3.PoolManager) -> None:
    pool: Any = pools.pool_classes_by_scheme["https"]  # another one with a proxy by SOCKS
    connection = type("Connection", (_AsKubectlVerifies, pool.ConnectionCls), {})
    own = type("Pool", (pool,), {"ConnectionCls": connection})
    pools.pool_classes_by_scheme = {**pools.pool_classes_by_scheme, "https": own}


def _connect_by(proxy: Proxy | None, configuration: client.Configuration) -> None:
    """Let the client connect by `proxy`, and not by what it would find in the environment."""
    if proxy and proxy.is_socks and importlib.util.find_spec("socks") is None:
        raise ClusterError(f"{proxy}: SOCKS needs the Python package PySocks: pip install pysocks")
    configuration.proxy = proxy.url if proxy else None
    configuration.proxy_headers = proxy.headers if proxy else None
    configuration.no_proxy = ""


class Connection:
    """A connection with the credentials that `load` puts into a configuration.

    The constructor raises ClusterError if there are none, or if the proxy cannot be used.
    """

    def __init__(self, load: Callable[[client.Configuration], None]) -> None:
        self._configuration = client.Configuration()
        self._configuration.proxy = None  # so that after `load` it is that of the kubeconfig file
        try:
            load(self._configuration)
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            why = reason_of(error)
            raise ClusterError(f"{_NO_CREDENTIALS}: {name}{why}") from error
        except (config.ConfigException, ValueError, yaml.YAMLError) as error:
            raise ClusterError(f"{_NO_CREDENTIALS}: {error}") from error
        except (AttributeError, KeyError, TypeError) as error:  # where the client expects a list
            why = "a part of the kubeconfig file is missing or has another type than it must have"
            raise ClusterError(f"{_NO_CREDENTIALS}: {why}") from error
        if not self._configuration.host.startswith(("http://", "https://")):
            host = self._configuration.host
            raise ClusterError(f"{_NO_CREDENTIALS}: the cluster's server is no address: {host!r}")
        self._proxy = proxy_for(self._configuration.host, os.environ, self._configuration.proxy)
        _connect_by(self._proxy, self._configuration)
        self._headers: list[tuple[str, str]] = []
        # Callers decide themselves when to retry.
        self._configuration.retries = urllib3.Retry(0)
        self._pool = client.ApiClient(self._configuration).rest_client.pool_manager
        _let_verify_as_kubectl(self._pool)

    @classmethod
    def in_cluster(cls, kubeconfig: str | None = None) -> Self:
        """Use the credentials of the pod, or of a kubeconfig file if one is given."""

        def load(configuration: client.Configuration) -> None:
            if kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
                why = "this is no pod of a cluster: name a file with --kubeconfig"
                raise ClusterError(f"{_NO_CREDENTIALS}: {why}")
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client's own code has no types
            elif not _exists(kubeconfig):
                raise _no_file(kubeconfig)
            else:
                config.load_kube_config(kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same

        return cls(load)

    @classmethod
    def like_kubectl(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Use the credentials that kubectl would use: those of the pod only if there is no file."""
        files = _files(kubeconfig)
        more: list[tuple[str, str]] = []

        def load(configuration: client.Configuration) -> None:
            chosen = context or current_context(files)
            config.load_kube_config(files, chosen, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same
            more.extend(impersonation(files, chosen))

        if _exists(files):
            connection = cls(load)
            connection._headers = more
            return connection
        if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise _no_file(files)
        return cls.in_cluster()

    def as_user(self, user: str, groups: Iterable[str]) -> Self:
        """Return this connection, acting as another user; the account needs the right to.

        Impersonation in the kubeconfig file does not count then.
        """
        named = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        made = copy.copy(self)
        made._headers = [(name, value.encode().decode("latin-1")) for name, value in named]  # noqa: SLF001  # its own class
        return made

    def request(
        self,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None = None,
        sent: str = "application/json",
        max_bytes: int | None = None,
        *,
        accept: str = "application/json",
    ) -> Object:
        """The JSON response to one request, which may have up to `max_bytes`.

        `accept` names the form of the object that is wanted.

        Raises ClusterError: one of those in `cluster.api.errors` for what a caller can do something
        about.
        """
        return self._exchange(method, path, body, sent, max_bytes, accept)[0]

    def request_with_warnings(
        self, method: str, path: str, body: Object, max_bytes: int | None = None
    ) -> tuple[Object, list[str]]:
        """Return the answer, as `request` does, and the warnings of the API server or webhooks."""
        accept = sent = "application/json"
        found, headers = self._exchange(method, path, body, sent, max_bytes, accept)
        return found, [text for line in headers.getlist("Warning") for text in warning_texts(line)]

    def _exchange(
        self,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None,
        sent: str,
        max_bytes: int | None,
        accept: str,
    ) -> tuple[Object, urllib3.HTTPHeaderDict]:
        """The JSON response to one request, and its headers."""
        what = f"{method} {path.partition('?')[0]}"
        data, headers = self._send(what, method, path, body, sent, max_bytes, accept)
        found = _object_in(data)
        if found is None:
            raise ClusterError(f"{what}: the answer is no JSON object")
        return found, headers

    def changes(self, path: str) -> Iterator[None]:
        """Watch the one object or the list at `path`, which has a query: yields after each change.

        Yields also once the watch has begun. It ends after `WATCH_SECONDS`, or when the API server
        ends it. What has changed is not read: the caller looks at the objects. Raises ClusterError.
        """
        for _ in self._watched(path):
            yield

    def events(self, path: str) -> Iterator[Object]:
        """Watch the list at `path`, which has a query with the resourceVersion to begin after.

        Yields each event as the API server sends it, with `type` and `object`. It ends after
        `WATCH_SECONDS`, or when the API server ends it. Raises ClusterError: ExpiredError if the
        list must be read again.
        """
        what = f"WATCH {path.partition('?')[0]}"
        rest = b""
        for chunk in self._watched(f"{path}&allowWatchBookmarks=true"):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                event = _object_in(line)
                if event is None:
                    raise ClusterError(f"{what}: an event is no JSON object")
                if event.get("type") == "ERROR":
                    status = event.get("object")
                    found = status if isinstance(status, dict) else {}
                    code = found.get("code")
                    raise error_of(what, code if isinstance(code, int) else 0, found, "")
                yield event
            if len(rest) > _MAX_EVENT_BYTES:
                raise TooLargeError(f"{what}: an event has more than {_MAX_EVENT_BYTES} bytes")

    def _watched(self, path: str) -> Iterator[bytes]:
        """Yield the changes while a list or an object is watched."""
        what = f"WATCH {path.partition('?')[0]}"
        path = f"{path}&watch=true&timeoutSeconds={WATCH_SECONDS}"
        # Longer than the watch, on which nothing is sent as long as nothing changes.
        timeout = urllib3.Timeout(connect=_SECONDS, read=WATCH_SECONDS + _SECONDS)
        answer = self._answer(what, "GET", path, None, "", "application/json", timeout)
        try:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                self._raise_error(what, answer, _read(answer, _MAX_ERROR_BYTES) or b"")
            yield b""  # the watch has begun
            yield from answer.stream(_CHUNK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure(what, error, self._configuration.host, self._proxy) from error
        finally:
            # With what is left of it, the connection is of no use to others.
            answer.close()

    def get_text(self, path: str, max_bytes: int) -> str:
        """The text at `path`, such as metrics, which may have up to `max_bytes`.

        Raises ClusterError, as `request` does.
        """
        data, _ = self._send(f"GET {path}", "GET", path, None, "", max_bytes, accept="*/*")
        return data.decode("utf-8", "replace")

    def _send(
        self,
        what: str,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None,
        sent: str,
        max_bytes: int | None,
        accept: str,
    ) -> tuple[bytes, urllib3.HTTPHeaderDict]:
        """The body of the response to one request, and its headers."""
        timeout = urllib3.Timeout(connect=_SECONDS, read=_SECONDS)
        answer = self._answer(what, method, path, body, sent, accept, timeout)
        try:
            data = _read(answer, max_bytes)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure(what, error, self._configuration.host, self._proxy) from error
        if data is None:
            raise TooLargeError(f"{what}: the answer has more than {max_bytes} bytes")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            self._raise_error(what, answer, data)
        return data, answer.headers

    def _answer(
        self,
        what: str,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None,
        sent: str,
        accept: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        """The answer to a request, whose body is not read yet."""
        headers = urllib3.HTTPHeaderDict({"Accept": accept, **self._credentials()})
        for name, value in self._headers:
            headers.add(name, value)
        if body is not None:
            headers["Content-Type"] = sent
        try:
            answer: urllib3.BaseHTTPResponse = self._pool.request(
                method,
                self._configuration.host + path,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=timeout,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure(what, error, self._configuration.host, self._proxy) from error
        return answer

    def _raise_error(self, what: str, answer: urllib3.BaseHTTPResponse, data: bytes) -> NoReturn:
        raise error_of(
            f"{what}: {answer.status}",
            answer.status,
            _object_in(data) or {},
            answer.headers.get("Retry-After", ""),
        )

    def _credentials(self) -> dict[str, str]:
        # Read for each request: tokens of pods are replaced every hour.
        found = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"Authorization": found.strip()} if found else {}


# `299 AGENT "TEXT"`, several in one header if a proxy has joined them. In TEXT a backslash stands
# before a quote and before another backslash (RFC 7234, 5.5).
_WARNING = re.compile(r'\b299 \S{1,300} "((?:[^"\\]|\\.)*)"')


def warning_texts(header: str) -> list[str]:
    """The texts in a header `Warning`, which API servers write in UTF-8."""
    text = header.encode("latin-1", "replace").decode("utf-8", "replace")
    return [re.sub(r"\\(.)", r"\1", found) for found in _WARNING.findall(text)]


def _exists(files: str) -> bool:
    """Return whether one of the kubeconfig files exists, which are separated as in $KUBECONFIG."""
    return any(os.path.exists(os.path.expanduser(file)) for file in files.split(os.pathsep))


def _no_file(files: str) -> ClusterError:
    return ClusterError(f"{_NO_CREDENTIALS}: there is no file {files}")


def _read(answer: urllib3.BaseHTTPResponse, max_bytes: int | None) -> bytes | None:
    """The body, and the connection given back; None if it has more than `max_bytes`."""
    try:
        data = answer.read(None if max_bytes is None else max_bytes + 1)
    except BaseException:
        answer.close()
        raise
    if max_bytes is not None and len(data) > max_bytes:
        answer.close()
        return None
    answer.release_conn()
    return data


def _failure(what: str, error: Exception, host: str, proxy: Proxy | None) -> ClusterError:
    """The error for a request that `host` did not answer, through `proxy` if there is one."""
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, Exception) else error
    if isinstance(cause, urllib3.exceptions.ProxyError):
        cause = cause.original_error
    # A certificate, or a file of one, does not get better by waiting.
    is_final = isinstance(cause, urllib3.exceptions.SSLError) or isinstance(error, OSError)
    kind = ClusterError if is_final else UnreachableError
    way = f"through {proxy}: " if proxy else ""
    return kind(f"{what}: {way}{_without_secrets(host)}: {_reason(cause)}")


def _without_secrets(url: str) -> str:
    """The scheme, host and port of `url`, which may also have a user, a password or a token."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the API server"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# What urllib3 says of these begins with its own objects.
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    # Its text has the whole address, with what is secret in it.
    (urllib3.exceptions.LocationParseError, "the address of the cluster's server is not valid"),
    (urllib3.exceptions.NameResolutionError, "the name of the host cannot be resolved"),
    (urllib3.exceptions.NewConnectionError, "no connection"),
    (urllib3.exceptions.ConnectTimeoutError, f"no connection within {_SECONDS:g} seconds"),
    (urllib3.exceptions.ReadTimeoutError, "no answer in time"),
    (urllib3.exceptions.SSLError, "TLS"),
    (urllib3.exceptions.ProtocolError, "the connection was closed before the whole answer came"),
)


def _reason(error: Exception) -> str:
    """Say it to a user who knows neither urllib3 nor Python."""
    text = next((text for kind, text in _REASONS if isinstance(error, kind)), "")
    # The error of the operating system or of TLS, on which the one of urllib3 is based.
    causes = [error.__cause__, error.__context__, *error.args]
    cause = next((each for each in causes if isinstance(each, OSError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        detail = f"the certificate is not accepted: {cause.verify_message}"
    elif cause is not None and not isinstance(cause, TimeoutError):
        detail = reason_of(cause)
    else:
        detail = "" if text else str(error) or type(error).__name__
    return ": ".join(filter(None, (text, detail)))


def _object_in(data: bytes) -> Object | None:
    """The JSON object that `data` is; None if it is none."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
