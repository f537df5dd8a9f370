"""Renders the chart with the real helm, offline; every rendering is made once."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.control_plane.build import programs
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.paths import ROOT
from tests.testkit.skipping import missing

CHART = ROOT / "charts" / "gpuward"
HELMS = ("helm3", "helm4")
RELEASE, NAMESPACE = "gpuward", "gpuward-system"
#: The values files that the chart is tried with, by the first part of their names
CI_VALUES = {
    path.name.removesuffix("-values.yaml"): path for path in sorted(CHART.glob("ci/*-values.yaml"))
}

Manifest = dict[str, Any]


def rendered(
    *values: Path | str,
    helm: str = "helm3",
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    options: tuple[str, ...] = (),
    chart: Path = CHART,
) -> list[Manifest]:
    """The objects that the chart makes with `values`: files, and at most one text in YAML.

    `options` are further ones of `helm template`. The hooks are among the objects.
    """
    where: dict[str, Any] = {"helm": helm, "release": release, "namespace": namespace}
    text = rendering(*values, **where, options=options, chart=chart)
    objects: list[Manifest] = json.loads(_as_json(text))  # their own for every caller
    return objects


def rendering(*values: Path | str, **where: Any) -> str:
    """The text of what `rendered` returns."""
    done = template(*values, **where)
    if done.returncode:
        raise AssertionError(f"helm template: {done.stderr}")
    return done.stdout


def refusal(*values: Path | str, **where: Any) -> str:
    """Why helm does not render the chart with `values`; AssertionError if it does."""
    done = template(*values, **where)
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
    """What `helm template` answers."""
    command = ("template", release, str(chart), f"--namespace={namespace}")
    return run_helm(*command, *options, values=values, helm=helm)


def run_helm(
    *arguments: str, values: Iterable[Path | str] = (), helm: str = "helm3"
) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster, and without what the user of this machine has set up."""
    texts = [value for value in values if isinstance(value, str)]
    assert len(texts) <= 1, "helm reads one of them from its standard input"
    files = [f"--values={'-' if isinstance(value, str) else value}" for value in values]
    return subprocess.run(
        [program(helm), *arguments, *files],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        input="".join(texts),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@functools.cache
def _as_json(text: str) -> str:
    """The objects in a text of YAML, which takes far longer to read."""
    return json.dumps([found for found in yaml.load_all(text, yaml.CSafeLoader) if found])


def of_kind(objects: Iterable[Manifest], kind: str, name: str | None = None) -> list[Manifest]:
    """Those of a kind, and of a name where one is given."""
    return [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def the(objects: Iterable[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The only one of a kind, or of a kind and name."""
    (found,) = of_kind(objects, kind, name)
    return found


def pod_specs(objects: Iterable[Manifest]) -> dict[str, Manifest]:
    """The spec of every pod that the objects make, by the component it belongs to."""
    found = {}
    for made in objects:
        pod = made if made["kind"] == "Pod" else made.get("spec", {}).get("template", {})
        if "containers" in pod.get("spec", {}):
            found[pod["metadata"]["labels"]["app.kubernetes.io/component"]] = pod["spec"]
    return found


def containers_of(objects: Iterable[Manifest]) -> list[Manifest]:
    """The containers of every pod that the objects make."""
    return [container for spec in pod_specs(objects).values() for container in spec["containers"]]


@functools.cache
def program(name: str) -> str:
    """The path of `helm3`, `helm4` or `kubectl`; skips the test where it is not to be had."""
    try:
        return str(programs(oldest=os.environ.get("GPUWARD_KUBERNETES") == "oldest")[name])
    except BuildError as error:
        missing(str(error))
