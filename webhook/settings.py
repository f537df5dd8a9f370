"""The settings of the server with their defaults, which `gpuward serve --help` shows."""

from typing import NamedTuple

BYTES_PER_MIB = 1024 * 1024
MAX_NAME_CHARACTERS = 253  # of names in Kubernetes
LOG_LEVELS = ("debug", "info", "warning", "error")
"""The levels of the log, the lowest first."""


class Limits(NamedTuple):
    """Limits on callers; times in seconds, sizes in bytes.

    - `body_bytes`: the API server accepts objects of 3 MiB, a review holds two of them, and it may
      write one character as six. A body that gpuward does not read is an object that passes
      without evaluation, so the limit allows the largest.
    - `brackets`: how many `[` and `{` a body may have, in strings as well: they take the most time
      and memory to parse. etcd stores 1.5 MiB an object; two such objects cannot hold more.
    - `small_body_bytes`, `large_bodies_bytes`: bodies above the first share the second while they
      are read.
    - `small_review_bytes`, `small_review_objects`, `small_review_steps`: reviews within all of them
      are answered at once, and all others in another process, so that they do not delay the former.
      So are all those of at most `small_review_bytes` for which a decision is kept.
      A pod of eight containers with twenty variables each has about 30 KB and 300 objects. A pod of
      sixteen containers with two faults each takes 1,500 steps, which take about 3 ms.
    - `answer_seconds`: how long a review may take whose caller does not say how long it waits.
    - `keep_alive_seconds`: the API server keeps idle connections for 90 seconds. The webhook must
      keep them longer, or the API server would write to a connection that is being closed.
    - `headers`: API servers send eight, and a service mesh some more. Each connection may hold them
      all in memory.
    """

    body_bytes: int = 64 * BYTES_PER_MIB
    brackets: int = 3_500_000
    small_body_bytes: int = BYTES_PER_MIB // 4
    large_bodies_bytes: int = 128 * BYTES_PER_MIB
    read_seconds: float = 2.0
    in_flight: int = 256
    connections: int = 1000
    small_review_bytes: int = 40 << 10
    small_review_objects: int = 800
    small_review_steps: int = 2_000
    answer_seconds: float = 8.0
    handshake_seconds: float = 10.0
    shutdown_seconds: float = 2.0
    keep_alive_seconds: float = 180.0
    line_bytes: int = 8190
    header_bytes: int = 8190
    headers: int = 32


class ServerSettings(NamedTuple):
    """Addresses as HOST:PORT, times in seconds.

    `drain_seconds` is how long the server goes on answering after it is asked to stop.
    `reload_seconds` is the time between two looks at the policy and the certificate.
    `counted_namespaces` are those whose outcomes are counted by namespace. With `log_user_names`
    the log has the names of users, else hashes of them.
    """

    listen: str = ":10250"
    metrics_listen: str = ":8080"
    drain_seconds: float = 15.0
    reload_seconds: float = 2.0
    limits: Limits = Limits()
    counted_namespaces: tuple[str, ...] = ()
    log_user_names: bool = False
