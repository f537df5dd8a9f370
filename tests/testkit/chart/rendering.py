"""Render the chart with the real helm, without a cluster; every rendering is cached."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.control_plane.build import programs
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing

CHART = ROOT / "charts" / "gpuward"
HELMS = ("helm3", "helm4")
RELEASE, NAMESPACE = "gpuward", "gpuward-system"
WITHOUT_COLLECTION = {"GOGC": "off"}
"""Turns off the garbage collection of a Go program, a fourth of the time of a short run."""
#: The values files that the chart is tested with, by the first part of their names
CI_VALUES = {
    path.name.removesuffix("-values.yaml"): path for path in sorted(CHART.glob("ci/*-values.yaml"))
}

Manifest = dict[str, Any]


def render(
    *values: Path | str,
    helm: str = "helm3",
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    options: tuple[str, ...] = (),
    chart: Path = CHART,
) -> list[Manifest]:
    """Render the chart with `values` (files, and at most one YAML text), and parse the objects.

    `options` are further options of `helm template`. The objects include the hooks.
    """
    target: dict[str, Any] = {"helm": helm, "release": release, "namespace": namespace}
    text = render_text(*values, **target, options=options, chart=chart)
    objects: list[Manifest] = json.loads(_as_json(text))  # a new copy for every caller
    return objects


def render_text(*values: Path | str, **target: Any) -> str:
    """Render the chart as `render` does, and return the YAML text."""
    done = template(*values, **target)
    if done.returncode:
        raise AssertionError(f"helm template: {done.stderr}")
    return done.stdout


def render_error(*values: Path | str, **target: Any) -> str:
    """The error of helm for `values` that it must refuse; AssertionError if it renders them."""
    done = template(*values, **target)
    if not done.returncode:
        raise AssertionError("the chart was rendered")
    return done.stderr


@functools.cache
def template(
    *values: Path | str,
    helm: str = "helm3",
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    options: tuple[str, ...] = (),
    chart: Path = CHART,
) -> subprocess.CompletedProcess[str]:
    """The finished process of `helm template`."""
    command = ("template", release, str(chart), f"--namespace={namespace}")
    return run_helm(*command, *options, values=values, helm=helm)


def run_helm(
    *arguments: str, values: Iterable[Path | str] = (), helm: str = "helm3"
) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster, and without the configuration of this machine's user."""
    texts = [value for value in values if isinstance(value, str)]
    assert len(texts) <= 1, "helm reads one text from its standard input"
    files = [f"--values={'-' if isinstance(value, str) else value}" for value in values]
    return subprocess.run(
        [program(helm), *arguments, *files],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **WITHOUT_COLLECTION},
        input="".join(texts),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@functools.cache
def _as_json(text: str) -> str:
    """The objects of a YAML text as JSON, which is parsed far faster."""
    documents = map(_document_as_json, re.split("^---", text, flags=re.MULTILINE))
    return f"[{','.join(filter(None, documents))}]"


@functools.cache  # renderings have most documents in common
def _document_as_json(text: str) -> str:
    found = yaml.load(text, yaml.CSafeLoader)
    return json.dumps(found) if found else ""


def of_kind(objects: Iterable[Manifest], kind: str, name: str | None = None) -> list[Manifest]:
    """The objects of a kind, and of a name if one is given."""
    return [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def find_one(objects: Iterable[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The only object of a kind, or of a kind and name."""
    (only,) = of_kind(objects, kind, name)
    return only


def pod_specs(objects: Iterable[Manifest]) -> dict[str, Manifest]:
    """The spec of every pod and pod template in the objects, by component."""
    specs = {}
    for manifest in objects:
        is_pod, spec = manifest["kind"] == "Pod", manifest.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        pod = manifest if is_pod else spec.get("template", {})
        if "containers" in pod.get("spec", {}):
            specs[pod["metadata"]["labels"]["app.kubernetes.io/component"]] = pod["spec"]
    return specs


def containers_of(objects: Iterable[Manifest]) -> list[Manifest]:
    """The containers of every pod and pod template in the objects."""
    return [container for spec in pod_specs(objects).values() for container in spec["containers"]]


@functools.cache
def program(name: str) -> str:
    """The path of `helm3`, `helm4` or `kubectl`; skips the test if it cannot be built."""
    try:
        return str(programs()[name])
    except BuildError as error:
        skip_missing(str(error))
