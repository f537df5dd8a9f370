"""Regular expressions that API servers evaluate find the same in Go as in Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from policies.loading import default_policy
from rules.base.text_matching import is_found
from rules.catalog.security import ld_preload
from rules.gpu.commands.own_programs import CODE_PATTERN
from rules.gpu.visibility import display_variable
from rules.gpu.volumes import clean_path
from rules.in_process.images import maker_facts
from tests.testkit.control_plane.toolchain import BuildError, go_command
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects

LITERAL_PATTERN = r'\.(?:matches|find|findAll)\(("(?:[^"\\]|\\.)*")\)'
# In these Python and Go differ, or Python alone has them.
UNLIKE_PATTERN = r"(?<!\\)\\[dDwWsSbBAzZ]|\(\?[^:s]|\[\^?\[:|[*+?}]\+"
TEXTS = (
    *("/", "/opt", "/opt/x", "/etc", "/etc/ld.so.conf", "/etc/alternatives", "/lib64", "/usr/lib"),
    *(
        "/dev/nvidia0",
        "/dev/nvidia10",
        "/dev/nvidia-caps/x",
        "/dev/vfio",
        "/dev/vfio/1",
        "/dev/hl0",
    ),
    *(
        "/dev/dri",
        "/dev/dri/card0",
        "/dev/char/195:0",
        "/dev/accel0",
        "/dev/nvhost-a-gpu",
        "/dev/kfd",
    ),
    *("/proc/1/root/dev", "proc/1/task/2/cwd/", "/a/../b", "/data", "/var/lib", "/x/dev/nvidia1"),
    *("rdma/hca", "openshift.io/ib", "x/efa", "intel.com/sgx", "x/tun", "x/snds", "x/ibx", "ib"),
    *("docker.io/rocm/pytorch:latest", "/rocm/k8s-device-plugin:1", "/habana/gaudi", "/x/y-tpu"),
    *("/intel/gaudi-plugin:1", "/ascend-k8sdeviceplugin", "/reg.io:5000/rocm/x-exporter", "a:5000"),
    *("instance-type: trn1.2xlarge", "machine-family: ct6e", "instance-family: inf2", "nodes: dl1"),
    *(
        "x-1",
        "x-i12",
        "12",
        "-i3",
        "a-b",
        "0",
        "1",
        "+01",
        "-7",
        "0.5",
        "1e9",
        "00000001",
        "abcdef12",
    ),
    *("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_SM_LIMIT_3", "CUDA_DEVICE_MEMORY_LIMIT", "A B", "_"),
    *(
        "libx.so",
        "/proc/self/x",
        "$ORIGIN/x",
        "a/b",
        "/lib:/proc",
        "/.",
        "/proc",
        "/a;b",
        "//x",
        "",
    ),
    *("sh", "/bin/bash", "echo a && sleep 1", "while true; do sleep 9; done", "k8s-device-plugin"),
    *("main", "/usr/bin/stat", "entrypoint.sh", "a; b | c", "x 'y' \"z\"", "/usr/bin:/bin", "a$b"),
    *(
        "pod/predicate-gpu-idx-0",
        "hami-device-plugin",
        "hami.io/x-allocated",
        "CUDA_INJECTION64_PATH",
    ),
)
CHANGES: tuple[Callable[[str], str], ...] = (
    *(
        lambda t, end=end: t + end
        for end in ("\n", "\n\n", "\r\n", "\v", "\u2028", " ", "\0", "\nx")
    ),
    *(lambda t, begin=begin: begin + t for begin in ("\n", " ", "x\n")),
    *(lambda t, mark=mark: t.replace("/", f"/{mark}") for mark in ("\n", "é", ".")),
    lambda t: re.sub("[0-9]", "\u0663", t),
    lambda t: re.sub("[0-9]", "\uff11", t),
    lambda t: t.upper(),
    lambda t: t.replace("k", "\u212a").replace("s", "\u017f"),
    lambda t: t[:-1] + "\n",
    lambda t: t.replace("-", "\n").replace(" ", "\t"),
)


def exported_texts() -> Iterator[str]:
    waiting: list[Any] = [
        *policy_objects(default_policy(), ExportOptions()),
        *fix_objects(default_policy(), ExportOptions()),
    ]
    for value in waiting:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


EXPORTED = {
    json.loads(literal)
    for text in exported_texts()
    for literal in re.findall(LITERAL_PATTERN, text)
}
OF_MAKERS = {pattern for maker in maker_facts() for pattern in maker["images"] + maker["files"]}
PATTERNS = sorted(EXPORTED | OF_MAKERS)


def in_python(pattern: str) -> Callable[[str], bool]:
    """Return what rules in Python ask instead of `pattern`."""
    for variable, entries in ld_preload._ENTRIES.items():  # noqa: SLF001
        if pattern == entries:
            return lambda text: any(
                map(ld_preload._depends_on_process, ld_preload.checked_entries(variable, text))  # noqa: SLF001
            )
    if pattern == "^[A-Za-z_][A-Za-z0-9_]*$":
        return lambda text: display_variable(text) == text
    if whole := re.fullmatch(r"(?s)(?:\(\?s\))?\^(?:\(\?:(.*)\)|(.*))\$", pattern):
        flags = re.DOTALL if pattern.startswith("(?s)") else 0
        inner = whole[1] if whole[1] is not None else whole[2]
        if "$" not in re.sub(r"\[[^]]*\]", "", inner) and "|^" not in inner:
            return lambda text: re.fullmatch(inner, text, flags) is not None
    return lambda text: is_found(pattern, text)


def test_the_patterns_of_the_export_are_found() -> None:
    assert len(PATTERNS) > 60
    assert {CODE_PATTERN, r"^(?:/dev/vfio(/.+)?)$"} <= EXPORTED


def test_no_pattern_has_what_python_and_go_read_in_two_ways() -> None:
    assert [p for p in PATTERNS if re.search(UNLIKE_PATTERN, p)] == []


def test_go_and_python_find_them_in_the_same_texts() -> None:
    try:
        go = go_command()
    except BuildError as error:
        skip_missing(f"Go is missing: {error}")
    texts = sorted({*TEXTS, *(change(text) for text in TEXTS for change in CHANGES)})
    done = subprocess.run(
        [go, "run", "."],
        cwd=ROOT / "tests" / "oracles" / "regexp",
        env=os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off"},
        input=json.dumps({"patterns": PATTERNS, "texts": texts}),
        capture_output=True,
        text=True,
        check=True,
    )
    unlike = []
    for pattern, places in zip(PATTERNS, json.loads(done.stdout), strict=True):
        find = in_python(pattern)
        found = {texts[place] for place in places}
        unlike += [
            (pattern, text, text in found) for text in texts if find(text) != (text in found)
        ]
    assert not unlike


@pytest.mark.parametrize("path", ["/opt\n", "/etc\n", "/\n"])
def test_a_line_break_at_the_end_is_part_of_a_path(path: str) -> None:
    assert is_found(CODE_PATTERN, path.rstrip("\n"))
    assert not is_found(CODE_PATTERN, clean_path(path))
