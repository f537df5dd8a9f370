"""What the log shows of users: by default a hash, by which a known name can be found."""

from __future__ import annotations

import hashlib

# Users of Kubernetes itself and service accounts, which are no persons.
SYSTEM = "system:"
HASH_LENGTH = 16


def hidden_user(name: str) -> str:
    """`name` itself if it is no person's; else `sha256:` and the beginning of its hash."""
    if not name or name.startswith(SYSTEM):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"sha256:{digest[:HASH_LENGTH]}"
