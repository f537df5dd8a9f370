"""Tests of kustomizations: a patch is only a part of a pod, and what is passed over is named."""

from __future__ import annotations

import pytest

from tests.testkit.lint_command import LintCommand

TAINTED = """\
apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
    - name: main
      image: nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04
    - name: gpu
      image: example.com/app:1
      resources: {limits: {nvidia.com/gpu: 1}}
"""
JSON_PATCH = "- {op: add, path: /spec/nodeName, value: gpu-1}\n"
RENDER = "lint its folder with --render"
PLACEMENT = {"toleration-default", "affinity-default"}


def fixable(command: LintCommand, *arguments: str) -> set[str]:
    return {f["rule"] for f in command.json(*arguments).report["findings"] if f["fixable"]}


@pytest.mark.parametrize(
    "entry",
    ["patches: [{path: part.yaml}]", "patchesStrategicMerge: [./part.yaml]"],
)
@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_patch_is_not_final(command: LintCommand, entry: str, name: str) -> None:
    command.write("overlay/part.yaml", TAINTED)
    assert fixable(command, "overlay") == {*PLACEMENT, "image-default-all"}
    command.write(f"overlay/{name}", entry + "\n")
    for argument in ("overlay", "overlay/part.yaml", "overlay/*.yaml"):
        done = command.json(argument)
        assert PLACEMENT.isdisjoint(done.found)
        assert "image-default-all" in done.found
        assert fixable(command, argument) == set()
        # What hides the GPU that the patched container may have is no fix of any kind.
        assert {f["remedy"] for f in done.report["findings"]} == {"by-hand"}
    assert command("--patch", "overlay").out == ""


def test_a_kustomization_above_may_name_the_patch(command: LintCommand) -> None:
    command.write("overlay/patches/part.yaml", TAINTED)
    command.write("overlay/kustomization.yaml", "patches: [{path: patches/part.yaml}]\n")
    assert fixable(command, "overlay/patches") == set()


def test_a_patch_of_every_container_is_not_final(command: LintCommand) -> None:
    command.write("part.yaml", TAINTED.replace("name: main", 'name: "*"'))
    assert fixable(command, "part.yaml") == set()


def test_a_resource_that_a_patch_gives_a_gpu_is_not_hidden_from_it(command: LintCommand) -> None:
    """The variable would stay beside the request of the overlay, and hide the GPU."""
    cuda = "nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
    command.write("base/films.yaml", wrapped("films", f"image: {cuda}"))
    part = "resources: {limits: {nvidia.com/gpu: 1}}"
    assert fixable(command, ".") == {"image-default-all"}
    patch = command.write("gpu/patch.yaml", wrapped("films", part))
    command.write("gpu/kustomization.yaml", "resources: [../base]\npatches: [{path: patch.yaml}]\n")
    assert "image-default-all" in command.json(".").found
    assert "image-default-all" not in fixable(command, ".")
    patch.write_text(wrapped("others", part))
    assert "image-default-all" in fixable(command, ".")


def wrapped(name: str, fields: str) -> str:
    """A Deployment of this name whose container has the `fields`."""
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n"
        "  selector: {matchLabels: {app: x}}\n  template:\n    metadata: {labels: {app: x}}\n"
        f"    spec:\n      containers:\n        - name: main\n          {fields}\n"
    )


def test_a_resource_is_final(command: LintCommand) -> None:
    """Also if a patch of another folder has the same name, or a kustomization names it twice."""
    command.write("overlay/part.yaml", TAINTED)
    command.write(
        "overlay/kustomization.yaml", "resources: [part.yaml]\npatches: [{path: part.yaml}]\n"
    )
    command.write("other/kustomization.yaml", "patches: [{path: part.yaml}]\n")
    assert "toleration-default" in fixable(command, "overlay")


def test_a_patch_with_a_bypass_is_an_error(command: LintCommand) -> None:
    env = "      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]\n"
    command.write("overlay/part.yaml", TAINTED.replace("    - name: gpu", env + "    - name: gpu"))
    command.write("overlay/kustomization.yaml", "patches: [{path: part.yaml}]\n")
    done = command.json("overlay")
    assert done.status == 1
    assert done.found["visible-devices-env"] == "error"


def test_a_patch_of_a_webhook_configuration_need_not_state_what_the_base_states(
    command: LintCommand,
) -> None:
    command.write("overlay/part.yaml", WEBHOOK)
    assert command.json("overlay").found["webhook-side-effects"] == "warning"
    command.write("overlay/kustomization.yaml", "patches: [{path: part.yaml}]\n")
    assert command.json("overlay").found == {}


WEBHOOK = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gpuward}
webhooks:
  - name: validate.gpuward.io
    failurePolicy: Fail
    timeoutSeconds: 30
    rules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""


def test_what_is_not_evaluated_is_named(command: LintCommand) -> None:
    command.write("app/pod.txt", TAINTED)
    command.write("app/list.yaml", JSON_PATCH)
    command.write("app/list.json", '[{"op": "remove", "path": "/spec/nodeName"}]')
    command.write(
        "app/kustomization.yaml",
        "resources: [pod.txt, ../base, https://example.com/x.yaml]\n"
        "patchesJson6902: [{path: list.yaml}]\n"
        "patches:\n  - {path: list.json}\n  - patch: |\n      - {op: add, path: /a, value: b}\n",
    )
    skipped = {s["file"]: s["why"] for s in command.json("app").report["skipped"]}
    assert skipped == {
        "app/pod.txt": "app/kustomization.yaml names it, and it does not end in .yaml or .json: "
        "name it to lint it",
        "app/list.yaml": f"a JSON patch of app/kustomization.yaml: {RENDER}",
        "app/list.json": f"a JSON patch of app/kustomization.yaml: {RENDER}",
        "app/kustomization.yaml": f"its patches that are written in it: {RENDER}",
    }


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("commonAnnotations: {gpu-fraction: '0.5'}", "commonAnnotations"),
        ("transformers: [annotations.yaml]", "transformers"),
        ("generators: [pods.yaml]", "generators"),
        ("replacements: [{path: node.yaml}]", "replacements"),
        ("configurations: [fields.yaml]", "configurations"),
        ("vars: [{name: CARDS}]", "vars"),
        ("components: [../gpus]", "components"),
        ("helmCharts: [{name: vllm}]", "helmCharts"),
        ("helmChartInflationGenerator: [{chartName: vllm}]", "helmChartInflationGenerator"),
        ("commonLabels: {aliyun.com/gpu-count: '2'}", "commonLabels"),
        ("labels: [{pairs: {a: b}}, {pairs: {ack.gpushare.placement: x}}]", "labels"),
        ("labels: [{pairs: {a: b}, fields: [{path: spec/nodeSelector}]}]", "labels"),
        ("images: [{name: app, newName: example.com/app}]", "images"),
        ("images: [{name: pytorch/pytorch, newTag: 2.4.0-cuda12.4-cudnn9-runtime}]", "images"),
        ("imageTags: [{name: vllm/vllm-openai, newTag: v0.6.0}]", "imageTags"),
        ("configMapGenerator: [{literals: [NVIDIA_VISIBLE_DEVICES=all]}]", "configMapGenerator"),
        ("secretGenerator: [{}, {literals: [A=b, CUDA_VERSION=12]}]", "secretGenerator"),
        ("configMapGenerator: [{envs: [none.env, gpu.env]}]", "configMapGenerator"),
        ("secretGenerator: [{env: gpu.env}]", "secretGenerator"),
        ("vars: [{name: A}]\nimages: [{newName: b}]", "images and vars"),
        (
            "vars: [{name: A}]\nreplacements: [{}]\ncomponents: [a]",
            "components, replacements and vars",
        ),
    ],
)
def test_what_changes_objects_is_named(command: LintCommand, fields: str, named: str) -> None:
    command.write("app/pod.yaml", TAINTED)
    command.write("app/gpu.env", "# of the runtime\nA=b\nNVIDIA_VISIBLE_DEVICES=all\n")
    command.write("app/kustomization.yaml", f"resources: [pod.yaml]\n{fields}\n")
    done = command.json("app")
    why = f"it makes or changes objects by {named}: {RENDER}"
    assert done.report["skipped"] == [{"file": "app/kustomization.yaml", "why": why}]
    assert done.status == 0


@pytest.mark.parametrize(
    "fields",
    [
        "namePrefix: a-\nnameSuffix: -b\nnamespace: ml\nreplicas: [{name: x, count: 2}]",
        "commonLabels: {app: web}\nlabels: [{pairs: {team: ml}, includeTemplates: true}]",
        "images: [{name: example.com/app, newTag: v2}, {name: app, digest: sha256:12}]",
        "images: [{name: pytorch/pytorch, newTag: 2.4.0-cpu}]",
        "commonAnnotations: {}\ntransformers: []\nvars:",
        "commonLabels: [1]\nlabels: {a: b}\nimages: [1, {newName: 1}]",
        "configMapGenerator: [{literals: [A=NVIDIA, 1], envs: [other.env, none.env, 1]}, 1]",
        "secretGenerator: {literals: [NVIDIA_VISIBLE_DEVICES=all]}",
    ],
)
def test_what_cannot_give_a_gpu_is_not_named(command: LintCommand, fields: str) -> None:
    command.write("app/pod.yaml", TAINTED)
    command.write("app/other.env", "A=b\nURL=postgres://NVIDIA\n")
    command.write("app/kustomization.yaml", f"resources: [pod.yaml]\n{fields}\n")
    assert command.json("app").report["skipped"] == []


@pytest.mark.parametrize(
    "text", ["a: [", "- a\n", "patches: x\nresources: {}\n", "patches: [1, {}]\n"]
)
def test_an_odd_kustomization_hides_nothing(command: LintCommand, text: str) -> None:
    command.write("app/pod.yaml", TAINTED)
    command.write("app/Kustomization", text)
    assert "toleration-default" in fixable(command, "app/pod.yaml")


def test_a_patch_says_what_admission_refuses(command: LintCommand) -> None:
    pod = TAINTED.replace("name: gpu\n", "name: gpu\n      securityContext: {privileged: true}\n")
    command.write("pod.yaml", pod)
    (line,) = command("--patch", "pod.yaml").out.splitlines()
    assert '"op": "add"' in line
    assert '"refused": [{"rule": "privileged-gpu", "container": "gpu"' in line
    command.write("pod.yaml", pod.replace("nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04", "a:1"))
    assert '"pointer": "/spec/containers/1/securityContext' in command("--patch", "pod.yaml").out


def test_a_refusal_without_a_fix_is_in_the_patch(command: LintCommand) -> None:
    env = "env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
    command.write("pod.yaml", f"{pod}    - {{name: a, image: b, {env}}}\n")
    (line,) = command("--patch", "pod.yaml").out.splitlines()
    assert '"patch": [], "refused": [{"rule": "visible-devices-env"' in line


def test_a_resource_outside_of_what_is_linted_is_named(command: LintCommand) -> None:
    command.write("base/kustomization.yaml", "resources: []\n")
    command.write("overlay/kustomization.yaml", "resources: [../base]\n")
    outside = "its resource ../base is outside of what is linted: lint its folder with --render"
    done = command("overlay")
    assert done.status == 0
    assert f"skipped: overlay/kustomization.yaml: {outside}" in done.out
    assert "1 skipped (--render evaluates it)" in done.out.splitlines()[-1]
    for paths in (["."], ["overlay", "base"], ["overlay", "base/kustomization.yaml", "base"]):
        assert outside not in command(*paths).out
    assert outside not in command("*").out


@pytest.mark.parametrize(
    "resource", ["https://example.com/a//b?ref=v1", "github.com/a/b", "../none"]
)
def test_a_resource_that_is_not_here_is_named(command: LintCommand, resource: str) -> None:
    command.write("kustomization.yaml", f"resources: ['{resource}']\n")
    done = command(".")
    assert (
        f"skipped: kustomization.yaml: its resource {resource} is not here: lint what" in done.out
    )
    assert done.status == 0
