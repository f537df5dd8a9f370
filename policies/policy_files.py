"""Read a policy from a file, for the linter, the webhook and `gpuward policy`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from kubeyaml import YamlError, read, split
from policies.loading import MAX_CHARACTERS, PolicyError, default_policy, load_policy
from policies.policy import Policy
from rules.base.json_values import as_object

POLICY_FILE = "gpuward.yaml"
"""The name of a policy file, also as a key of the chart's ConfigMap."""
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
    return refuse_too_large(path, content)


def refuse_too_large(path: str, content: bytes) -> bytes:
    """Return `content`, or raise PolicyError if it is larger than `MAX_BYTES`."""
    if len(content) > MAX_BYTES:
        raise PolicyError(f"{path}: a policy may have at most {MAX_CHARACTERS} characters")
    return content


def parse_policy(content: bytes, name: str, profiles: Iterable[str] = ()) -> Policy:
    """Return the policy in `content`, the bytes of the file called `name`.

    `profiles`, if not empty, replace the profiles that the policy names. Raises PolicyError if the
    content is not UTF-8 or not a valid policy.
    """
    return load_policy(decode_policy(content, name), name, profiles)


def decode_policy(content: bytes, name: str) -> str:
    """Return the text of the file called `name`. Raises PolicyError if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{name}: not UTF-8 (byte {error.start})") from error


def load_policy_file(file: str | None, profiles: list[str]) -> Policy:
    """The policy in `file` as the webhook loads it, or the default one without a file.

    `profiles`, if not empty, replace those of the policy. Raises PolicyError, which names file,
    line and column.
    """
    if file is None:
        return default_policy(profiles)
    return parse_policy(read_policy_file(file), file, profiles)


def load_policy_or_config_map(
    file: str | None, profiles: list[str], read_file: Callable[[str], bytes] = read_policy_file
) -> Policy:
    """The same, but the file may also be the manifest of a ConfigMap as the chart makes it.

    Such a manifest has the policy in its key `gpuward.yaml`; lines and columns in a PolicyError are
    counted in the text of that key. `read_file` returns the content of `file`, and raises
    PolicyError.
    """
    if file is None:
        return default_policy(profiles)
    content, name = policy_content(file, read_file)
    return parse_policy(content, name, profiles)


def policy_content(
    file: str, read_file: Callable[[str], bytes] = read_policy_file
) -> tuple[bytes, str]:
    """Return the policy in `file` or in the ConfigMap that it has, and the name to call it by.

    Raises PolicyError.
    """
    content = read_file(file)
    text = _text_in_config_map(content, file) if b"ConfigMap" in content else None
    return (content, file) if text is None else (text.encode(), f"{file}[{POLICY_FILE}]")


def _text_in_config_map(content: bytes, file: str) -> str | None:
    """The policy in a ConfigMap's manifest; None if `content` is no such manifest."""
    try:
        documents = [document for chunk in split(content.decode()) if (document := read(chunk))]
    except (YamlError, UnicodeDecodeError):
        return None  # reading it as a policy says what is wrong, and where
    manifest = as_object(documents[0].value) if len(documents) == 1 else {}
    if manifest.get("kind") != "ConfigMap":
        return None
    text = as_object(manifest.get("data")).get(POLICY_FILE)
    if not isinstance(text, str):
        raise PolicyError(f"{file}: this ConfigMap has no policy: its data has no {POLICY_FILE}")
    return text
