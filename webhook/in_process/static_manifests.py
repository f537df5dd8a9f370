"""The policy as files that an API server reads at its start, and that no request can change.

https://kubernetes.io/docs/reference/access-authn-authz/manifest-admission-control/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from kubeyaml.writing import write_yaml
from policies.policy import Policy
from rules.finding import Action
from webhook.in_process.exports import validating_objects
from webhook.in_process.fixes import fix_objects
from webhook.in_process.guard import Guard, guard_objects
from webhook.in_process.objects import ExportOptions, with_digest

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
    return "---\n".join(write_yaml(with_digest(_renamed(made))) for made in objects)


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


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, and remove what an earlier policy has left there. OSError.

    An API server that runs may read at any moment: each file is complete when it has its name.
    """
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.new")
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(file)
    for name in _FOLDERS.values():
        if f"{name}/{_FILE}" not in files:
            (folder / name / _FILE).unlink(missing_ok=True)


def differences(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each file in `folder` that is not one of `files`, and each missing one.

    An API server reads what ends in .yaml, .yml or .json, so only these count. OSError.
    """
    places = [folder, *(folder / name for name in _FOLDERS.values())]
    for place in places:
        for found in sorted(place.iterdir()) if place.is_dir() else ():
            path = found.relative_to(folder).as_posix()
            is_read = found.suffix.lower() in (".yaml", ".yml", ".json")
            if is_read and not found.is_dir() and path not in files:
                yield f"{path} is not of this policy"
    for path, text in files.items():
        try:
            with (folder / path).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            yield f"{path} is missing"
            continue
        if content != text.encode():
            yield f"{path} differs"
