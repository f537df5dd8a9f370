"""The samples with GPUs in the controllers' own Go modules, as the module cache has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.testkit.control_plane.build import module_folder
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.sources import KSERVE, KUEUE, WORKLOAD_CONTROLLERS, Source
from tests.testkit.paths import DATA

_REVIEWED = DATA / "module_samples.yaml"
MODULES: dict[str, tuple[Source, str]] = {
    "jobset": (WORKLOAD_CONTROLLERS, "sigs.k8s.io/jobset"),
    "kserve": (KSERVE, "github.com/kserve/kserve"),
    "kuberay": (WORKLOAD_CONTROLLERS, "github.com/ray-project/kuberay/ray-operator"),
    "kueue": (KUEUE, "sigs.k8s.io/kueue"),
    "lws": (WORKLOAD_CONTROLLERS, "sigs.k8s.io/lws"),
    "trainer": (KUEUE, "github.com/kubeflow/trainer/v2"),
}
_GPUS = re.compile(r"(nvidia|amd)\.com/gpu|google\.com/tpu|gpu-fraction")
# These have definitions of resources, templates of charts, and what installs the controller.
_OTHER_FOLDERS = frozenset({"charts", "crd", "crds", "install", "testdata", ".github"})


class Reviewed(NamedTuple):
    """What is known of the samples, each by its module and its file.

    - `findings`: the rules that report something besides `additions`.
    - `additions`: the rules whose fixes the webhook makes, for which no sample needs to change.
    - `unreadable`: files that are no YAML.
    - `refused`: files that the cluster refuses with and without gpuward.
    """

    findings: dict[str, list[str]]
    additions: list[str]
    unreadable: list[str]
    refused: list[str]


def reviewed() -> Reviewed:
    """Read the list; the reason of each entry is for its readers."""
    raw = yaml.safe_load(_REVIEWED.read_text(encoding="utf-8"))
    by_file: dict[str, list[str]] = {}
    for each in raw["findings"]:
        by_file.setdefault(each["file"], []).append(each["rule"])
    names = ([each["file"] for each in raw[field]] for field in ("unreadable", "refused"))
    return Reviewed(by_file, [each["rule"] for each in raw["additions"]], *names)


def samples(module: str) -> dict[str, Path]:
    """The files with GPUs of a module, by the name in the list: `lws/docs/examples/…`."""
    folder = module_folder(*MODULES[module])
    return {
        f"{module}/{file.relative_to(folder)}": file
        for file in sorted(folder.rglob("*.yaml"))
        if _OTHER_FOLDERS.isdisjoint(file.relative_to(folder).parts)
        and _GPUS.search(file.read_text(encoding="utf-8"))
    }


def profile_of(file: Path) -> str:
    """The profile of the platform that a sample is for."""
    text = file.read_text(encoding="utf-8")
    if "gpu-fraction" in text:
        return "kai"
    return "gke" if "google.com/tpu" in text else "nvidia"


def compare_answers(plane: ControlPlane, guarded: str, module: str) -> None:
    """Compare the answers about the samples of a module with those in a namespace without gpuward.

    What the cluster refuses in both must be listed.
    """
    known, unguarded = reviewed(), plane.namespace()
    refused = []
    for name, file in samples(module).items():
        if name in known.unreadable:
            continue
        status, said = outcome(plane, unguarded, file)
        assert outcome(plane, guarded, file) == (status, said), name
        refused += [f"{name}: {said}"] if status else []
    assert [each.partition(": ")[0] for each in refused] == [
        name for name in known.refused if name.startswith(f"{module}/")
    ], refused


def outcome(plane: ControlPlane, namespace: str, file: Path) -> tuple[int, list[str]]:
    """How the cluster answers to the objects of a sample in a namespace, without keeping them.

    What gpuward warns of is left out, and the name of the namespace.
    """
    items = [_anywhere(each) for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    listed = {"apiVersion": "v1", "kind": "List", "items": [each for each in items if each]}
    create = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    done = plane.kubectl(*create, input=json.dumps(listed), check=False)
    said = (done.stdout + done.stderr).replace(namespace, "NAMESPACE").splitlines()
    return done.returncode, sorted(_without_warnings(said))


def _anywhere(manifest: Any) -> Any:
    """A manifest that names no namespace, and has a name if the API server would choose one."""
    if not manifest:
        return None
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "namespace"}
    if beginning := metadata.pop("generateName", ""):
        metadata["name"] = f"{beginning}0"
    return {**manifest, "metadata": metadata}


def _without_warnings(lines: list[str]) -> Iterator[str]:
    return (line for line in lines if not (line.startswith("Warning: ") and "gpuward" in line))
