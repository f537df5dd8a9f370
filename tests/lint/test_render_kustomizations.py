"""Tests of `--render` with kustomizations: the real kubectl renders them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.chart.rendering import program
from tests.testkit.lint_command import LintCommand, Outcome

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: model
spec:
  selector: {matchLabels: {app: model}}
  template:
    metadata:
      labels: {app: model}
    spec:
      containers:
        - name: sidecar
          image: example.com/sidecar:1
        - name: main
          image: example.com/model:1
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: void
"""
PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: model
spec:
  template:
    spec:
      containers:
        - name: main
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: all
"""
INLINE = "namePrefix: gpu-\nresources: [../../base]\npatches:\n  - patch: |\n" + "".join(
    f"      {line}\n" for line in PATCH.splitlines()
)
BYPASS = "visible-devices-env"
COMMENTED = PATCH.replace("all", f"all # gpuward: ignore[{BYPASS}] the monitoring agent")
DELETING = """\
resources: [../../base]
patches:
  - patch: |
      $patch: delete
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: model}
"""


@pytest.fixture
def kubectl(command: LintCommand, tmp_path: Path) -> LintCommand:
    """The command with a base and two overlays, and with kubectl in its PATH."""
    tools = tmp_path / ".tools"
    tools.mkdir()
    (tools / "kubectl").symlink_to(program("kubectl"))
    (tools / "unshare").symlink_to("/usr/bin/unshare")
    command.path = str(tools)
    command.write("base/model.yaml", DEPLOYMENT)
    command.write("base/kustomization.yaml", "resources: [model.yaml]\n")
    command.write("overlays/a/kustomization.yaml", "namePrefix: a-\nresources: [../../base]\n")
    command.write(
        "overlays/b/kustomization.yaml",
        "nameSuffix: -b\nresources: [../../base]\npatches: [{path: gpu.yaml}]\n",
    )
    command.write("overlays/b/gpu.yaml", PATCH)
    return command


def places(done: Outcome) -> list[tuple[str, str, int]]:
    return [(f["rule"], f["file"], f["line"]) for f in done.report["findings"]]


def not_evaluated(done: Outcome) -> str:
    assert done.status == 3
    entry = done.report["not_evaluated"][0]
    return f"{entry['file']}: {entry['message']}"


def test_a_patch_is_judged_with_what_it_patches(kubectl: LintCommand) -> None:
    done = kubectl.json("--render", ".")
    assert places(done) == [(BYPASS, "overlays/b/gpu.yaml", 12)]
    assert done.report["findings"][0]["rendered_by"] == "kubectl kustomize overlays/b"
    # `gpuward fix` writes no rendering, although it fixes this fault in a file.
    assert not done.report["findings"][0]["fixable"]
    assert done.report["summary"]["fixable"] == 0
    assert done.report["skipped"] == []
    # The base is evaluated in the overlays, and by itself.
    assert done.report["summary"]["renderings"] == 3
    assert done.report["summary"]["objects"] == 3


def test_the_name_of_a_rendering_is_no_path(kubectl: LintCommand) -> None:
    kubectl.write("kustomization.yaml", "kind: Component\npatches: [{path: kubectl kustomize p}]\n")
    kubectl.write("p/kustomization.yaml", "resources: [pod.yaml]\n")
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {runtimeClassName: nvidia}\n"
    kubectl.write("p/pod.yaml", pod)
    assert "runtimeclass-nvidia-no-gpu" in kubectl.json("--render", "p").found


def test_a_fault_of_the_base_is_reported_for_each_object(kubectl: LintCommand) -> None:
    kubectl.write("base/model.yaml", DEPLOYMENT.replace("value: void", "value: all"))
    kubectl.write("overlays/b/kustomization.yaml", "resources: [../../base]\nnamespace: b\n")
    (kubectl.folder / "overlays/b/gpu.yaml").unlink()
    assert places(kubectl.json("--render", ".")) == [(BYPASS, "base/model.yaml", 18)] * 2
    kubectl.write("overlays/a/kustomization.yaml", "resources: [../../base]\nnamespace: b\n")
    assert places(kubectl.json("--render", ".")) == [(BYPASS, "base/model.yaml", 18)]


def test_a_patch_in_a_kustomization(kubectl: LintCommand) -> None:
    kubectl.write("overlays/a/kustomization.yaml", INLINE)
    done = kubectl.json("--render", "overlays/a")
    assert places(done) == [(BYPASS, "overlays/a/kustomization.yaml", 4)]


def test_a_field_of_no_file_is_near_its_parent(kubectl: LintCommand) -> None:
    kubectl.write(
        "overlays/a/kustomization.yaml",
        "resources: [../../base]\npatches:\n  - target: {kind: Deployment}\n    patch: |-\n"
        "      - {op: add, path: /spec/template/spec/hostPID, value: true}\n"
        "      - op: add\n        path: /spec/template/spec/containers/1/resources\n"
        "        value: {limits: {nvidia.com/gpu: 1}}\n",
    )
    found = places(kubectl.json("--render", "overlays/a"))
    assert ("host-namespaces", "base/model.yaml", 10) in found


@pytest.mark.parametrize("name", ["base/model.yaml", "overlays/b/gpu.yaml"])
def test_a_comment_where_the_field_is_suppresses(kubectl: LintCommand, name: str) -> None:
    text = DEPLOYMENT.replace("void", "all") if "base" in name else PATCH
    comment = f"value: all # gpuward: ignore[{BYPASS}] the monitoring agent"
    kubectl.write(name, text.replace("value: all", comment))
    done = kubectl.json("--render", ".")
    assert BYPASS not in {rule for rule, file, _ in places(done) if file == name}
    assert done.report["summary"]["suppressed"] == 1
    kubectl.write(
        "gpuward.yaml",
        f"apiVersion: gpuward.io/v1\nkind: Policy\nrules: {{{BYPASS}: {{suppressible: false}}}}\n",
    )
    assert (BYPASS, name) in {
        (rule, file) for rule, file, _ in places(kubectl.json("--render", "."))
    }


def test_a_component_is_judged_where_it_is_included(kubectl: LintCommand) -> None:
    kubectl.write("gpus/kustomization.yaml", "kind: Component\npatches: [{path: gpu.yaml}]\n")
    (kubectl.folder / "overlays/b/gpu.yaml").rename(kubectl.folder / "gpus/gpu.yaml")
    kubectl.write(
        "overlays/b/kustomization.yaml", "resources: [../../base]\ncomponents: [../../gpus]\n"
    )
    assert places(kubectl.json("--render", ".")) == [(BYPASS, "gpus/gpu.yaml", 12)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resources: [https://example.com/pod.yaml]", "https://example.com/pod.yaml is not here"),
        ("resources: ['github.com/a/b//c?ref=v1']", "github.com/a/b//c?ref=v1 is not here"),
        (
            "configMapGenerator: [{name: a, files: [x=.git/config]}]",
            '"x=.git/config" belongs to Git',
        ),
        ("resources: [../../.git/pod.yaml]", '"../../.git/pod.yaml" belongs to Git'),
        ("resources: [../none]", "../none is not here, and gpuward loads nothing from elsewhere"),
        ("transformers: ['git::https://a.example/b']", "git::https://a.example/b is not here"),
        ("helmCharts: [{name: a}]", "cannot be rendered: trouble configuring builtin Helm"),
        ("resources: [../a]", "cycle detected"),
        ("resources: 1", "the kustomization cannot be rendered: "),
    ],
)
def test_what_cannot_be_rendered_does_not_pass(
    kubectl: LintCommand, text: str, message: str
) -> None:
    kubectl.write("overlays/a/kustomization.yaml", text + "\n")
    done = kubectl.json("--render", "overlays")
    assert not_evaluated(done).startswith("overlays/a/kustomization.yaml: ")
    assert message in not_evaluated(done)
    # The others are evaluated all the same.
    assert (BYPASS, "overlays/b/gpu.yaml", 12) in places(done)


@pytest.mark.parametrize(
    "lines",
    [
        'err="invalid Kustomization: json: unknown field \\"foo\\""',
        'err=<\n\tinvalid Kustomization:\n\tjson: unknown field "foo"\n >',
    ],
)
def test_the_prefix_of_a_log_is_not_shown(kubectl: LintCommand, lines: str) -> None:
    # A stand-in for kubectl: not every version writes its errors as lines of a log.
    tool = kubectl.folder / ".tools" / "kubectl"
    tool.unlink()
    log = f'E1126 17:35:39.670219   21786 run.go:72] "command failed" {lines}'
    tool.write_text(
        f"#!/bin/sh\n/bin/cat >&2 <<'END'\n# Warning: 'vars' is deprecated\n{log}\nEND\nexit 1\n"
    )
    tool.chmod(0o755)
    message = not_evaluated(kubectl.json("--render", "overlays/b"))
    assert message == (
        "overlays/b/kustomization.yaml: the kustomization cannot be rendered: "
        'invalid Kustomization: json: unknown field "foo"'
    )


def test_nobody_is_told_to_render_what_could_not_be_rendered(kubectl: LintCommand) -> None:
    kubectl.write("overlays/a/kustomization.yaml", INLINE + "transformers: [none.yaml]\n")
    skipped = kubectl.json("--render", ".").report["skipped"]
    assert [each["why"] for each in skipped] == [
        "its patches that are written in it: no rendering has it",
        "it makes or changes objects by transformers: no rendering has it",
    ]
    assert {each["file"] for each in skipped} == {"overlays/a/kustomization.yaml"}


@pytest.mark.parametrize("name", ["", "namePrefix: x-\n"])
def test_what_an_overlay_deletes_is_evaluated_as_it_is(kubectl: LintCommand, name: str) -> None:
    kubectl.write("base/model.yaml", DEPLOYMENT.replace("void", "all"))
    kubectl.write("overlays/a/kustomization.yaml", name + DELETING)
    assert (BYPASS, "base/model.yaml", 18) in places(kubectl.json("--render", "base", "overlays/a"))
    # Unless another overlay has it.
    (kubectl.folder / "overlays/b/gpu.yaml").write_text(PATCH.replace("all", "void"))
    assert kubectl.json("--render", "base", "overlays").found == {BYPASS: "warning"}


def test_what_every_overlay_changes_is_a_warning_at_the_base(kubectl: LintCommand) -> None:
    """An overlay that is not applied could hide the fault of a base that is."""
    faulty = DEPLOYMENT.replace("value: void", "value: all")
    kubectl.write("base/model.yaml", faulty)
    kubectl.write("overlays/b/gpu.yaml", PATCH.replace("all", "void"))
    (kubectl.folder / "overlays/a/kustomization.yaml").unlink()
    done = kubectl.json("--render", ".")
    assert (done.status, done.found) == (0, {BYPASS: "warning"})
    assert places(done) == [(BYPASS, "base/model.yaml", 18)]
    message = done.report["findings"][0]["message"]
    assert "(only where base is applied by itself: every kustomization" in message
    assert kubectl.json("--render", "base").found == {BYPASS: "error"}
    # It is reported once, and can be suppressed where it is.
    reason = f"value: all # gpuward: ignore[{BYPASS}] nobody applies it"
    kubectl.write("base/model.yaml", faulty.replace("value: all", reason))
    assert kubectl.json("--render", ".").found == {}
    # A base that cannot be evaluated by itself is no complete set of resources.
    kubectl.write("base/model.yaml", DEPLOYMENT + "      volumes: later\n")
    patch = PATCH.replace("all", "void") + "      volumes: null\n"
    kubectl.write("overlays/b/gpu.yaml", patch)
    assert kubectl.json("--render", ".").report["not_evaluated"] == []
    assert kubectl.json("--render", "base").status == 3


@pytest.mark.parametrize("renamed", ["", "namePrefix: my-\n"])
def test_a_comment_is_for_its_object_only(kubectl: LintCommand, renamed: str) -> None:
    # This has the same field, and `model` in its name.
    other = DEPLOYMENT.replace("name: model", "name: the-model").replace("void", "all")
    kubectl.write("k/other.yaml", other)
    kubectl.write("k/model.yaml", DEPLOYMENT)
    kubectl.write("k/patch.yaml", COMMENTED)
    resources = "resources: [other.yaml, model.yaml]\npatches: [{path: patch.yaml}]\n"
    kubectl.write("k/kustomization.yaml", renamed + resources)
    done = kubectl.json("--render", "k")
    assert places(done) == [(BYPASS, "k/other.yaml", 18)]
    assert done.report["summary"]["suppressed"] == 1


def test_an_inline_patch_is_no_place_of_objects_that_are_not_its_target(
    kubectl: LintCommand,
) -> None:
    other = DEPLOYMENT.replace("name: model", "name: other").replace("void", "all")
    kubectl.write("base/kustomization.yaml", "resources: [model.yaml, other.yaml]\n")
    kubectl.write("base/other.yaml", other)
    kubectl.write(
        "overlays/a/kustomization.yaml",
        INLINE.replace("  - patch", "  - target: {kind: Deployment, name: model}\n    patch"),
    )
    found = places(kubectl.json("--render", "overlays/a"))
    file = "overlays/a/kustomization.yaml"
    assert sorted(found) == [(BYPASS, "base/other.yaml", 18), (BYPASS, file, 5)]


def test_kustomizations_that_include_each_other(kubectl: LintCommand) -> None:
    kubectl.write("base/kustomization.yaml", "resources: [model.yaml, ../overlays/a]\n")
    assert "cycle detected" in not_evaluated(kubectl.json("--render", "base", "overlays/a"))


def test_without_a_program_nothing_passes(kubectl: LintCommand) -> None:
    kubectl.path = ""
    message = not_evaluated(kubectl.json("--render", "overlays/b"))
    assert message == (
        "overlays/b/kustomization.yaml: the kustomization cannot be rendered: "
        "kubectl or kustomize is not in PATH"
    )


def test_a_file_outside_of_the_folder_names_the_option_that_allows_it(kubectl: LintCommand) -> None:
    kubectl.write("shared/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    kubectl.write("app/kustomization.yaml", "resources: [../shared/pod.yaml]\n")
    done = kubectl("--render", "app")
    assert done.status == 3
    option = "--load-restrictor=LoadRestrictionsNone"
    assert f"kubectl kustomize {option} app | gpuward lint -" in done.out
    kubectl.write("app/kustomization.yaml", "resources: [none.yaml]\n")
    assert option not in kubectl("--render", "app").out
