"""Tests of `--also`: Dockerfiles, compose files and scripts that give containers GPUs."""

from __future__ import annotations

import os

import pytest

from tests.testkit.lint_command import LintCommand, Outcome

ALL = "NVIDIA_VISIBLE_DEVICES=all"
LIST = "/var/run/nvidia-container-devices"
POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: "


def found(done: Outcome) -> list[tuple[str, int, int]]:
    """The level, the line and the column of each finding."""
    return [(f["level"], f["line"], f["column"]) for f in done.report["findings"]]


def lint(command: LintCommand, name: str, text: str) -> Outcome:
    command.write(name, text)
    return command.json("--also", "dockerfile,compose,shell", ".")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (f"FROM a\nENV {ALL}\n", [("warning", 2, 5)]),
        ("FROM a\nENV NVIDIA_VISIBLE_DEVICES all\n", [("warning", 2, 5)]),
        ("FROM a\nENV NVIDIA_VISIBLE_DEVICES={0}{x}{\n", [("warning", 2, 5)]),
        (
            "FROM a\nenv A=b \\\n  # a comment\n\n  NVIDIA_VISIBLE_DEVICES='all'\n",
            [("warning", 5, 3)],
        ),
        ("# escape=`\nFROM a\nENV A=b `\n  AMD_VISIBLE_DEVICES=0\n", [("warning", 4, 3)]),
        ("FROM a\nARG G=0,1\nENV NVIDIA_VISIBLE_DEVICES=${G}\n", [("warning", 3, 5)]),
        ("ARG G=0\nFROM a\nARG G\nENV NVIDIA_VISIBLE_DEVICES=$G\n", [("warning", 4, 5)]),
        ("FROM a\nENV NVIDIA_VISIBLE_DEVICES=${G:-all}\n", [("warning", 2, 5)]),
        ("FROM a\nARG G\nENV NVIDIA_VISIBLE_DEVICES=$G\n", [("note", 3, 5)]),
        # What can become the image: the last stage, and what no other stage uses
        (f"FROM a AS one\nENV {ALL}\nFROM one\n", [("warning", 2, 5)]),
        (f"FROM a AS one\nENV {ALL}\nFROM b\nCOPY --from=one /a /b\n", []),
        (f"FROM a\nENV {ALL}\nFROM b\nRUN --mount=type=bind,from=0 x\n", []),
        (f"FROM a AS one\nENV {ALL}\nFROM b\n", [("warning", 2, 5)]),
        (f"FROM a AS one\nENV {ALL}\nFROM one\nENV NVIDIA_VISIBLE_DEVICES=void\n", []),
        ("FROM a\nENV NVIDIA_VISIBLE_DEVICES=void\nENV NVIDIA_DRIVER_CAPABILITIES=all\n", []),
        (f"FROM a\nENV {ALL}\nENV NVIDIA_VISIBLE_DEVICES=none\n", []),
        (f"FROM a\nRUN <<EOF\nENV {ALL}\nEOF\n", []),
        (f"FROM a\n# ENV {ALL}\nRUN export {ALL}\n", []),
        (f"ENV {ALL}\nFROM a\n", []),
        # As a build reads quotes, directives, here-documents, stages and triggers
        ("FROM a\nARG G=all\nENV NVIDIA_VISIBLE_DEVICES='void$G'\n", [("warning", 3, 5)]),
        (f"# syntax=x\n# escape=`\nFROM a\nENV A=b `\n  {ALL}\n", [("warning", 5, 3)]),
        (f"FROM a\nRUN echo '<<EOF'\nENV {ALL}\n", [("warning", 3, 5)]),
        (f"FROM a\nENV {ALL}\nFROM 0\n", [("warning", 2, 5)]),
        (f"FROM a AS one\nONBUILD ENV {ALL}\nFROM one\n", [("warning", 2, 13)]),
        (f"FROM a\nENV A='b\u2028ENV' {ALL}\n", [("warning", 2, 15)]),
    ],
)
def test_dockerfiles(command: LintCommand, text: str, places: list[tuple[str, int, int]]) -> None:
    done = lint(command, "images/Dockerfile", text)
    assert found(done) == places
    assert {f["rule"] for f in done.report["findings"]} <= {"image-visible-devices"}


@pytest.mark.parametrize(
    ("service", "keys"),
    [
        ("gpus: all", ["gpus"]),
        ("gpus: [{driver: nvidia}]", ["gpus"]),
        (f'volumes: ["/data:/data", "/dev/null:{LIST}/all"]', ["volumes"]),
        (f"volumes: [{{type: bind, source: /dev/null, target: {LIST}/0}}]", ["volumes"]),
        ("volumes: [/dev/null:/etc/a, {type: tmpfs, target: /tmp}, 1]", []),
        (f"volumes: [{{source: /dev/null, target: '{LIST}/a,b=c/../all'}}]", ["volumes"]),
        (f"volumes: ['/dev/null:{LIST}/void']", []),
        (f"volumes: ['${{DEVICE:-/dev/null}}:{LIST}/all']", ["volumes"]),
        (f"volumes: [{{source: $DEVICE, target: {LIST}/0}}]", ["volumes"]),
        (f"volumes: ['$DATA:/data', '$DEVICE:{LIST}/void', '/data:{LIST}/0']", []),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}", ["deploy"]),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [tpu]}]}}}", []),
        ("runtime: nvidia", ["runtime"]),
        ("runtime: runc", []),
        (f"environment: [A=b, {ALL}]", ["NVIDIA_VISIBLE_DEVICES"]),
        ("environment: {NVIDIA_VISIBLE_DEVICES: 0}", ["NVIDIA_VISIBLE_DEVICES"]),
        ("environment: {NVIDIA_VISIBLE_DEVICES: }", ["NVIDIA_VISIBLE_DEVICES"]),
        ("environment: {NVIDIA_VISIBLE_DEVICES: void, CUDA_VISIBLE_DEVICES: 0}", []),
        ("devices: ['/dev/nvidia0:/dev/nvidia0', /dev/snd]", ["devices"]),
        ("devices: ['nvidia.com/gpu=all']", ["devices"]),
        ("devices: [{source: /dev/kfd, target: /dev/kfd}]", ["devices"]),
        ("image: nvidia/cuda:12.4.1-base-ubuntu22.04\n    privileged: true", ["privileged"]),
        ("image: nginx\n    privileged: true", []),
        ("1", []),
    ],
)
def test_compose_files(command: LintCommand, service: str, keys: list[str]) -> None:
    done = lint(command, "compose.gpu.yaml", f"services:\n  web:\n    {service}\n")
    findings = done.report["findings"]
    assert [f["identity"].split("|")[-1].split(".")[0] for f in findings] == keys
    assert {f["rule"] for f in findings} <= {"compose-gpu"}
    assert done.status == 0


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("docker run --gpus all image\n", [("warning", 1, 12)]),
        ("if x; then sudo /usr/bin/docker run -it --rm --gpus=1 a; fi\n", [("warning", 1, 46)]),
        (f"podman run -e {ALL} a\n", [("warning", 1, 12)]),
        ('podman run --env "NVIDIA_VISIBLE_DEVICES=$ID" a\n', [("warning", 1, 12)]),
        ("nerdctl -n k8s.io create --device nvidia.com/gpu=all a\n", [("warning", 1, 26)]),
        ("docker run --device habana.ai/gaudi=0 a\n", [("warning", 1, 12)]),
        ("podman run --device rebellions.ai/npu=all a\n", [("warning", 1, 12)]),
        # What NVIDIA's toolkit takes for requests
        (f"docker run -v /dev/null:{LIST}/all a\n", [("warning", 1, 12)]),
        (f"docker run -itv/dev/null:{LIST}/0:ro a\n", [("warning", 1, 12)]),
        (f"docker run --mount type=bind,src=/dev/null,dst={LIST}/0 a\n", [("warning", 1, 12)]),
        (f"docker run -v /dev/null:{LIST}/a=b/../all a\n", [("warning", 1, 12)]),
        (f"docker run --mount SRC=/dev/null,Target={LIST}/0 a\n", [("warning", 1, 12)]),
        (
            f"docker run --mount src=/a,source=/dev/null,target=/b,dst={LIST}/0 a\n",
            [("warning", 1, 12)],
        ),
        (f"docker run --mount source=/dev/null,src=/a,target={LIST}/0 a\n", []),
        (f"docker run -v /dev/null:{LIST}/void a\n", []),
        # Of a source that is not known, the target says what is meant.
        (f"docker run -v $DEVICE:{LIST}/all a\n", [("warning", 1, 12)]),
        (f'docker run -v "${{DEVICE:-/dev/null}}":{LIST}/$1:ro a\n', [("warning", 1, 12)]),
        (f"docker run --mount type=bind,src=$DEVICE,dst={LIST}/0 a\n", [("warning", 1, 12)]),
        (f"docker run -v {{{{device}}}}:{LIST}/0 a\n", [("warning", 1, 12)]),
        (f"docker run -v $DATA:/data -v $DEVICE:{LIST}/void -v ${{A:-b}} a\n", []),
        (f"docker run -v /dev/null:/etc/a -v /data:{LIST}/0 -v /dev/null:{LIST} a\n", []),
        ("docker run -v/data:/data --gpus all a\n", [("warning", 1, 26)]),
        ("docker run -p80:80 -u0 a --gpus all\n", []),
        ("podman run --device intel.com/qat=qatvf-0 --device example.com/output=0 a\n", []),
        ("ctr -n k8s.io run --gpus 0 image name\n", [("warning", 1, 19)]),
        ("docker run --rm \\\n  --runtime nvidia \\\n  a\n", [("warning", 2, 3)]),
        ("docker run -v $(pwd):/w --gpus all a\n", [("warning", 1, 25)]),
        ("docker run -u $(id -u):$(id -g) -w=/w$((1+2)) --gpus all a\n", [("warning", 1, 47)]),
        ("docker run -v $(dirname $(pwd)):/w --gpus all a\n", [("warning", 1, 36)]),
        ("x=$(docker run -v $(pwd):/w a) && docker run --gpus 1 b\n", [("warning", 1, 46)]),
        ("docker run -v $(pwd a\ndocker run --gpus 1 b\n", [("warning", 2, 12)]),
        ("docker container run -v /a:/b --device /dev/dri/card0 a\n", [("warning", 1, 31)]),
        (
            "x=$(docker run --gpus all a) && docker run --gpus 1 b\n",
            [("warning", 1, 16), ("warning", 1, 44)],
        ),
        (
            'RUN="docker run --gpus all"\ndocker run --gpus 1 b\necho "done"\n',
            [("warning", 1, 17), ("warning", 2, 12)],
        ),
        (
            "RUN='\ndocker run --gpus all'\ndocker run --gpus 1 b\necho 'done'\n",
            [("warning", 2, 12), ("warning", 3, 12)],
        ),
        (f'docker run -e "A=1\n2" --gpus all a; echo "{ALL}"\n', [("warning", 2, 4)]),
        ('"docker" run --gpus all a\n', [("warning", 1, 14)]),
        ("'/usr/bin/docker' run --gpus all a\n", [("warning", 1, 23)]),
        ('bash -c "\\"docker\\" run --gpus all a"\n', [("warning", 1, 25)]),
        ('"docker compose" run --gpus all a\n', []),
        ("docker run image --gpus all\n", []),
        # An option may be newer than gpuward, and take no word.
        ("docker run --new --gpus all image\n", [("warning", 1, 18)]),
        ("docker build --gpus all .\n", []),
        ("docker run -e NVIDIA_VISIBLE_DEVICES=void a; train --gpus 2\n", []),
        ("# docker run --gpus all a\nls # docker run --gpus all a\n", []),
        ("docker run a # --gpus all\nmydocker run --gpus all a\n", []),
        ("docker run 'unclosed --gpus all\n", []),
    ],
)
def test_scripts(command: LintCommand, text: str, places: list[tuple[str, int, int]]) -> None:
    done = lint(command, "hack/run.sh", text)
    assert found(done) == places
    assert {f["rule"] for f in done.report["findings"]} <= {"run-gpu"}


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ("AddDevice=nvidia.com/gpu=all", [("warning", 3, 1)]),
        ("  AddDevice = -/dev/nvidia0 /dev/fuse", [("warning", 3, 3)]),
        (f'Environment=A=b "{ALL}"', [("warning", 3, 1)]),
        (f"Environment=A=b \\\n  # a comment\n  {ALL}", [("warning", 3, 1)]),
        ("PodmanArgs=--shm-size 1g --gpus all", [("warning", 3, 1)]),
        (f"Volume=/dev/null:{LIST}/all:ro", [("warning", 3, 1)]),
        (f"Mount=type=bind,source=/dev/null,target={LIST}/0", [("warning", 3, 1)]),
        ("# gpuward: ignore[run-gpu] a node of its own\nAddDevice=nvidia.com/gpu=0", []),
        ("AddDevice=nvidia.com/gpu=all\nAddDevice=", []),
        ("AddDevice=/dev/snd\nEnvironment=NVIDIA_VISIBLE_DEVICES=void", []),
        ("Exec=train --gpus all\n[Service]\nAddDevice=nvidia.com/gpu=all", []),
        ("Environment='A=b", []),
    ],
)
def test_quadlets(command: LintCommand, lines: str, places: list[tuple[str, int, int]]) -> None:
    done = lint(command, "units/model.container", f"[Container]\nImage=model:1\n{lines}\n")
    assert found(done) == places
    assert {f["rule"] for f in done.report["findings"]} <= {"run-gpu"}


@pytest.mark.parametrize(
    ("name", "text", "rules"),
    [
        (
            "exporter.service",
            "[Service]\nExecStart=-/usr/bin/docker run --gpus all a\n",
            ["run-gpu"],
        ),
        ("exporter.service.j2", "ExecStart=docker run --gpus all --name %n {{ a }}\n", ["run-gpu"]),
        ("run.sh.tmpl", "docker run --gpus {{ .Count }} a\n", ["run-gpu"]),
        ("Dockerfile.template", f"FROM $BASE\nENV {ALL}\n", ["image-visible-devices"]),
        ("compose.yaml.j2", "services:\n  a:\n    gpus: all\n", ["compose-gpu"]),
    ],
)
def test_units_and_templates_are_read(
    command: LintCommand, name: str, text: str, rules: list[str]
) -> None:
    done = lint(command, name, text)
    assert ([f["rule"] for f in done.report["findings"]], done.status) == (rules, 0)


@pytest.mark.parametrize("service", ["{% if gpu %}\n  a: {}\n", "  {{ name }}:\n    gpus: all\n"])
def test_a_template_that_cannot_be_read_is_named(command: LintCommand, service: str) -> None:
    done = lint(command, "compose.yaml.j2", f"services:\n{service}")
    (failed,) = done.report["not_evaluated"]
    assert failed["file"].endswith("compose.yaml.j2")
    assert failed["message"] == "a template that is no YAML: lint what it renders to"
    assert done.status == 3


def test_files_of_ci_systems(command: LintCommand) -> None:
    job = (
        "job:\n  variables:\n    NVIDIA_VISIBLE_DEVICES: all\n"
        "  script:\n    - docker run --gpus 1 a\n"
    )
    assert found(lint(command, ".gitlab-ci.yml", job)) == [("warning", 5, 18), ("warning", 3, 5)]
    command.write(".gitlab-ci.yml", "")
    options = "jobs: {}\n    container:\n      options: --gpus all --rm\n"
    assert found(lint(command, ".github/workflows/ci.yml", options)) == [("warning", 3, 16)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "Dockerfile",
            f"FROM a\n# gpuward: ignore[image-visible-devices] a base image\nENV {ALL}\n",
        ),
        ("compose.yaml", "services:\n  a:\n    gpus: all # gpuward: ignore[compose-gpu] a desk\n"),
        ("a.sh", "docker run --gpus 1 a # gpuward: ignore[run-gpu] a desk\n"),
        ("a.sh", "# gpuward: ignore[run-gpu] a desk\ndocker run \\\n  --gpus 1 a\n"),
    ],
)
def test_comments_suppress(command: LintCommand, name: str, text: str) -> None:
    done = lint(command, name, text)
    assert (found(done), done.report["remarks"]) == ([], [])
    assert done.report["summary"]["suppressed"] == 1
    command.write("gpuward.yaml", POLICY + "{compose-gpu: {suppressible: false}}\n")
    assert len(found(lint(command, name, text))) == (name == "compose.yaml")


def test_the_policy_decides(command: LintCommand) -> None:
    command.write("a.sh", "docker run --gpus 1 a\n")
    command.write("gpuward.yaml", POLICY + "{run-gpu: {action: deny}}\n")
    assert command("--also", "shell", ".").status == 1
    command.write("gpuward.yaml", POLICY + "{run-gpu: {action: 'off'}}\n")
    assert found(command.json("--also", "shell", ".")) == []
    exception = "exceptions: [{rules: [run-gpu], reason: r, match: {namespace: a}}]\n"
    command.write("gpuward.yaml", POLICY + "{}\n" + exception)
    assert "run-gpu is about files, and exceptions are about objects" in command(".").errors


@pytest.mark.parametrize("rule", ["image-visible-devices", "compose-gpu", "run-gpu"])
def test_the_rules_are_documented_like_all_others(command: LintCommand, rule: str) -> None:
    assert "What it does\n" in command.run("explain", rule).out
    assert f"  {rule} " in command.run("rules").out
    assert f"{rule} " in command.run("policy", "show").out


def test_a_compose_file_may_have_any_name(command: LintCommand) -> None:
    bypass = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n"
        "    - {name: a, image: a, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}\n"
    )
    service = "services:  # films\n  plex:\n    image: plex\n    gpus: all\n"
    command.write("plex.yml", service)
    command.write("gpu.yaml", service.replace("image: plex", "build: ."))
    command.write("hwaccel.yaml", "services:\n  plex: {gpus: all}\n")
    command.write("service.yaml", "spec:\n  services:\n    image: a\n    gpus: all\n")
    command.write("notes.txt", service)
    command.write("torn.yaml", service + "[\n")
    command.write("pod.yaml", service + "---\n" + bypass)
    command.write("desk.yml", service.replace("all", "all # gpuward: ignore[compose-gpu] a desk"))
    assert [*command.json(".").found] == ["visible-devices-env"]
    assert [*command.json("--also", "dockerfile", ".").found] == ["visible-devices-env"]
    done = command.json("--also", "compose", ".")
    found = {(f["file"], f["rule"]) for f in done.report["findings"]}
    assert found == {
        *((name, "compose-gpu") for name in ("plex.yml", "gpu.yaml", "hwaccel.yaml", "pod.yaml")),
        ("pod.yaml", "visible-devices-env"),
    }
    assert done.report["summary"]["files"] == 7
    assert done.report["not_evaluated"] == []
    assert [skipped["file"] for skipped in done.report["skipped"]] == ["torn.yaml"]


def test_a_named_pipe_that_no_program_writes_holds_nothing_up(command: LintCommand) -> None:
    os.mkfifo(command.folder / "films.yml")
    command.write("plex.yml", "services:\n  plex:\n    image: plex\n    gpus: all\n")
    assert command.json("--also", "compose", ".").found == {"compose-gpu": "warning"}


def test_only_the_kinds_that_are_named(command: LintCommand) -> None:
    command.write("Dockerfile", f"FROM a\nENV {ALL}\n")
    command.write("app.Dockerfile", f"FROM a\nENV {ALL}\n")
    command.write("Containerfile.gpu", f"FROM a\nENV {ALL}\n")
    command.write("Dockerfile_gpu", f"FROM a\nENV {ALL}\n")
    command.write("Dockerfile.dockerignore", f"ENV {ALL}\n")
    command.write(".venv/Dockerfile", f"FROM a\nENV {ALL}\n")
    command.write("a.sh", "docker run --gpus 1 a\n")
    assert command.json(".").report["findings"] == []
    files = {f["file"] for f in command.json("--also", "dockerfile", ".").report["findings"]}
    assert files == {"Dockerfile", "app.Dockerfile", "Containerfile.gpu", "Dockerfile_gpu"}
    done = command.json("--also", "shell,dockerfile", "Dockerfile", "a.sh")
    assert len(done.report["findings"]) == 2
    assert done.report["not_evaluated"] == []
    assert (
        "--also bread: the kinds are dockerfile, compose, shell, markdown"
        in command("--also", "bread", ".").errors
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("Dockerfile", "\\\n" * 6_000_000, "larger than 10 MiB"),
        ("Dockerfile", "FROM a\n" * 300, "more than 200 stages"),
        ("Dockerfile", "RUN a\n" * 6_000, "more than 5000 instructions"),
        (
            "Dockerfile",
            "FROM a AS a\n" + "ONBUILD RUN b\n" * 100 + "FROM a\n" * 100,
            "more than 5000 instructions",
        ),
        ("Dockerfile", "FROM a\nENV " + "A=b " * 3_000, "more than 2000 variables"),
        ("compose.yaml", "services: [\n", "not evaluated"),
    ],
)
def test_what_is_too_large_does_not_pass(
    command: LintCommand, name: str, text: str, why: str
) -> None:
    command.write(name, text)
    done = command("--also", "dockerfile,compose", name)
    assert done.status == 3
    assert why in done.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", "FROM a\nENV A=" + "\\\n" * 400_000),
        ("Dockerfile", "FROM a\nRUN " + "--mount=" * 100_000),
        ("Dockerfile", 'FROM a\nENV A="' + 'B="' * 200_000),
        ("a.sh", "docker run -e 'A=" * 60_000),
        ("a.sh", "docker run " * 100_000),
        ("a.sh", "docker run \\\n" * 100_000),
    ],
    ids=["continued", "mounts", "quotes", "open quotes", "one line", "one command"],
)
def test_hostile_files_end(command: LintCommand, name: str, text: str) -> None:
    """The reading is linear: any of these would take hours if it were not."""
    command.write(name, text)
    assert command("--also", "dockerfile,shell", name).status in (0, 3)


@pytest.mark.parametrize(
    ("command_line", "count"),
    [
        ("kubectl label node n ack.node.gpu.schedule=core_mem", 1),
        ("kubectl --context c label nodes -l pool=gpu a=b ack.node.gpu.schedule=cgpu", 1),
        ("kubectl label --overwrite nodes/n \\\n  ack.node.gpu.schedule=default", 1),
        ("kubectl label no n ack.node.gpu.schedule-", 1),
        # As ACK documents it for nodes on premises
        ("kubectl label node n ack.node.gpu.schedule=share", 0),
        ("kubectl label pod p ack.node.gpu.schedule=cgpu", 0),
        ("kubectl label node n gpu-type=a100 --overwrite", 0),
        ("# kubectl label node n ack.node.gpu.schedule=cgpu", 0),
    ],
)
def test_modes_of_nodes(command: LintCommand, command_line: str, count: int) -> None:
    done = lint(command, "setup.sh", f"set -e\n{command_line}\n")
    assert [f["rule"] for f in done.report["findings"]] == ["node-mode-by-kubectl"] * count
