"""The policy as files that an API server reads at its start, and that no request can change.

https://kubernetes.io/docs/reference/access-authn-authz/manifest-admission-control/
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from kubeyaml.model import YamlError
from kubeyaml.reader import EncodingError, decode, read, split
from kubeyaml.writing import write_yaml
from policies.policy import Policy
from rules.base.json_values import as_object
from rules.finding import Action
from webhook.in_process.exports import validating_objects
from webhook.in_process.fixes import fix_objects
from webhook.in_process.guard import Guard, guard_objects
from webhook.in_process.objects import ExportOptions, with_digests

SUFFIX = ".static.k8s.io"
"""The end of the name of every object in such a file. No request can create one of that name."""
CONFIGURATION = "admission.yaml"
"""The file that tells an API server where the folders are."""
_FILE = "gpuward.yaml"
_FOLDERS = {
    "ValidatingAdmissionPolicy": "validating-policies",
    "MutatingAdmissionPolicy": "mutating-policies",
}
MAX_FILE_BYTES = 16 << 20
"""More than any file of such a folder has that gpuward wrote."""
_MODE = 0o644
_READ = (".yaml", ".yml", ".json")


def static_files(
    policy: Policy, options: ExportOptions, guard: Guard | None, path_on_node: PurePosixPath
) -> dict[str, str]:
    """The text of each file, by its path in the folder.

    `path_on_node` is where that folder is on the machine of the API server.
    """
    guards = guard_objects(guard) if guard else ()
    # Before an API server answers, it compiles all of them. What would only warn can wait.
    refusing = validating_objects(policy, options, [Action.DENY])
    objects_by_plugin = {
        "ValidatingAdmissionPolicy": [*chain(guards, refusing)],
        "MutatingAdmissionPolicy": [*fix_objects(policy, options)],
    }
    plugins = {plugin: made for plugin, made in objects_by_plugin.items() if made}
    files = {f"{_FOLDERS[plugin]}/{_FILE}": _text(made) for plugin, made in plugins.items()}
    return {CONFIGURATION: write_yaml(_configuration(plugins, path_on_node)), **files}


def _text(objects: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(map(write_yaml, with_digests(map(_renamed, objects))))


def _renamed(made: dict[str, Any]) -> dict[str, Any]:
    metadata = {**made["metadata"], "name": made["metadata"]["name"] + SUFFIX}
    spec = made["spec"]
    if "policyName" in spec:
        spec = {**spec, "policyName": spec["policyName"] + SUFFIX}
    return {**made, "metadata": metadata, "spec": spec}


def _configuration(plugins: Iterable[str], path_on_node: PurePosixPath) -> dict[str, Any]:
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": plugin,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": f"{plugin}Configuration",
                    "staticManifestsDir": str(path_on_node / _FOLDERS[plugin]),
                },
            }
            for plugin in plugins
        ],
    }


def digests(files: Mapping[str, str]) -> dict[str, str]:
    """The hash of the files of each plugin, as the API server's metric about them has it."""
    found = {}
    for plugin, folder in _FOLDERS.items():
        text = files.get(f"{folder}/{_FILE}")
        if text is not None:
            found[plugin] = "sha256:" + sha256(text.encode() + b"\0").hexdigest()
    return found


def digests_of_folder(folder: Path) -> dict[str, str]:
    """The `digests` of what an API server reads in `folder`. OSError."""
    found = {}
    for plugin, name in _FOLDERS.items():
        content = sha256()
        is_empty = True
        place = folder / name
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            if file.suffix.lower() in _READ and not file.is_dir() and (read_bytes := _bytes(file)):
                content.update(read_bytes + b"\0")
                is_empty = False
        if not is_empty:
            found[plugin] = f"sha256:{content.hexdigest()}"
    return found


def _bytes(file: Path) -> bytes:
    """The first bytes of a file, of which none that gpuward wrote has more. OSError."""
    with file.open("rb") as opened:
        return opened.read(MAX_FILE_BYTES + 1)


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, and remove what an earlier policy has left there. OSError.

    An API server that runs may read at any moment: each file is complete when it has its name.
    """
    # The configuration comes last, as it names the others.
    for path in sorted(files, key=CONFIGURATION.__eq__):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, files[path])
    for name in _FOLDERS.values():
        if f"{name}/{_FILE}" not in files:
            (folder / name / _FILE).unlink(missing_ok=True)


def _replace(file: Path, text: str) -> None:
    # Its name has another ending, so API servers do not read it.
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=".gpuward-")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, _MODE)
        os.replace(unfinished, file)
    except BaseException:
        os.unlink(unfinished)
        raise


def differences(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for what in `folder` differs from `files`. OSError.

    An API server reads what ends in .yaml, .yml or .json in the two folders, so only that counts.
    The configuration may have more plugins than `files` say.
    """
    for name in _FOLDERS.values():
        place = folder / name
        for found in sorted(place.iterdir()) if place.is_dir() else ():
            path = found.relative_to(folder).as_posix()
            is_read = found.suffix.lower() in _READ
            is_folder = found.is_dir() and not found.is_symlink()
            if is_read and not is_folder and path not in files:
                yield f"{path} is not of this policy"
    for path, text in files.items():
        try:
            content = _bytes(folder / path)
        except FileNotFoundError:
            yield f"{path} is missing"
            continue
        is_same = content == text.encode()
        if path == CONFIGURATION and not is_same:
            is_same = _has_plugins(content, text)
        if not is_same:
            yield f"{path} differs"


def _has_plugins(content: bytes, wanted: str) -> bool:
    """Return whether the configuration `content` has every plugin of `wanted` as it is there."""
    found = _plugins(content)
    return found is not None and all(plugin in found for plugin in _plugins(wanted.encode()) or ())


def _plugins(content: bytes) -> list[Any] | None:
    try:
        documents = [read(chunk) for chunk in split(decode(content))]
    except (YamlError, EncodingError):
        return None
    values = [document.value for document in documents if document]
    plugins = as_object(values[0]).get("plugins") if len(values) == 1 else None
    return plugins if isinstance(plugins, list) else None
