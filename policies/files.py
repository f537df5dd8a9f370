"""Read a policy from a file, for the linter and the webhook."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from policies.loading import MAX_CHARACTERS, PolicyError, load_policy
from rules.policy import Policy

MAX_BYTES = 4 * MAX_CHARACTERS  # UTF-8 has at most 4 bytes a character


def read_policy_file(path: str) -> bytes:
    """Return the content of the file at `path`.

    Raises PolicyError if the file cannot be read, is not a regular file, or is larger than
    `MAX_BYTES`.
    """
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


def parse_policy(content: bytes, name: str, profiles: Iterable[str] = ()) -> Policy:
    """Return the policy in `content`, the bytes of the file called `name`.

    `profiles`, if not empty, replace the profiles that the policy names. Raises PolicyError if the
    content is not UTF-8 or not a valid policy.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{name}: not UTF-8 (byte {error.start})") from error
    return load_policy(text, name, profiles)
