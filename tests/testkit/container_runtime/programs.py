"""Builds runc and NVIDIA's container toolkits for the tests, in the cache of the control plane.

    python -m tests.testkit.container_runtime.programs

builds what is missing. That needs Go and a C compiler, and no root.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.testkit.control_plane.build import Programs, build_programs
from tests.testkit.control_plane.sources import Copied, Source
from tests.testkit.control_plane.toolchain import BuildError

HERE = Path(__file__).resolve().parent
WHAT = "container runtime"
_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"
_COMMANDS = ("nvidia-container-runtime", "nvidia-container-runtime-hook")
TOOLKITS = {
    version: Source(
        f"toolkit-{version}",
        {name: f"{_TOOLKIT}/cmd/{name}" for name in _COMMANDS},
        duration="a minute",
        cgo=True,
        home=HERE,
    )
    for version in ("1.17", "1.19", "1.20")
}
"""The tested releases of NVIDIA's container toolkit: the newest, that of the oldest GPU operator in
support (26.3), and that of operator 25.3, which many clusters still have."""
RUNC = Source(
    "runc",
    {"runc": "github.com/opencontainers/runc"},
    duration="half a minute",
    cgo=True,
    home=HERE,
)
_HOOK = "cmd/nvidia-container-runtime-hook"
_HOOK_FILES = ("capabilities.go", "container_config.go", "hook_config.go")
_ANSWERS = "toolkit-answers"
TOOLKIT_ANSWERS = {
    version: Source(
        f"{_ANSWERS}-{version}",
        {_ANSWERS: "."},
        flags=(f"-modfile={go_mod}",),
        duration="half a minute",
        cgo=True,
        home=HERE,
        module=_ANSWERS,
        go_mod=go_mod,
        compiled=Copied(".", _TOOLKIT, tuple(f"{_HOOK}/{file}" for file in _HOOK_FILES)),
    )
    for version, go_mod in (("1.17", "1.17.mod"), ("1.19", "1.19.mod"), ("1.20", "go.mod"))
}
"""The program that asks a release of the toolkit about many containers at once."""
SHOW_DEVICES = Source("show-devices", {"show-devices": "."}, duration="some seconds", home=HERE)


def release(version: str) -> str:
    """The full version of a toolkit, such as `1.20.2`: the one that its go.mod requires."""
    text = (TOOLKITS[version].folder / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{_TOOLKIT} v(\S+)", text)
    assert found, f"{TOOLKITS[version].folder} requires no toolkit"
    return found[1]


def toolkit(version: str) -> Programs:
    """The programs of a toolkit; built if necessary."""
    return _built(TOOLKITS[version])


def toolkit_answers(version: str) -> Path:
    """The program toolkit-answers of a toolkit; built if necessary."""
    return _built(TOOLKIT_ANSWERS[version])[_ANSWERS]


def runc() -> Programs:
    """The programs `runc` and `show-devices`; built if necessary."""
    return _built(RUNC, SHOW_DEVICES)


def _built(*sources: Source) -> Programs:
    try:
        return build_programs(*sources)
    except BuildError as error:
        raise BuildError(error.cause, WHAT) from error


def main() -> int:
    """Run from the command line; see the module's docstring."""
    try:
        runc()
        for version in TOOLKITS:
            toolkit(version)
            toolkit_answers(version)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
