"""Find and read the policy of a run: a policy file, or a ConfigMap with one."""

from __future__ import annotations

import os

from kubeyaml import YamlError, read, split
from policies.files import parse_policy, read_policy_file
from policies.loading import PolicyError, default_policy
from rules.base.json_access import as_object
from rules.policy import Policy

POLICY_FILE = "gpuward.yaml"


def load_policy_file(file: str | None, profiles: list[str]) -> Policy:
    """The policy in `file`, or the default one without a file.

    The file may also be the manifest of a ConfigMap as the chart makes it, which has the policy in
    its key `gpuward.yaml`. `profiles`, if not empty, replace those of the policy. Raises
    PolicyError, which names file, line and column; those in a ConfigMap's key are counted in its
    text.
    """
    if file is None:
        return default_policy(profiles)
    content = read_policy_file(file)
    text = _text_in_config_map(content, file) if b"ConfigMap" in content else None
    if text is None:
        return parse_policy(content, file, profiles)
    return parse_policy(text.encode(), f"{file}[{POLICY_FILE}]", profiles)


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


def nearest_policy(folder: str) -> str | None:
    """The policy file nearest to `folder`, from there up to the root of the repository."""
    here, folders = folder, [folder]
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            del folders[1:]  # without a repository, a file further up is not for this folder
            break
        here = above
        folders.append(here)
    for place in folders:
        file = os.path.join(place, POLICY_FILE)
        if os.path.lexists(file):
            return os.path.relpath(file, folder)
        if os.path.lexists(other := file.removesuffix(".yaml") + ".yml"):
            raise PolicyError(f"{other}: a policy is looked for as {POLICY_FILE}; rename the file")
    return None
