"""A program is told to use managed memory, on a card that cGPU divides.

What it does
------------
Finds containers that request `aliyun.com/gpu-mem` and turn on CUDA's managed memory, also called
unified memory:

- `TF_FORCE_UNIFIED_MEMORY` of TensorFlow and JAX, with a value that means true;
- `GGML_CUDA_ENABLE_UNIFIED_MEMORY` of llama.cpp, with any value;
- `CUDF_PANDAS_RMM_MODE` of cuDF with `managed` or `managed_pool`;
- the option `--rmm-managed-memory` of Dask's GPU workers.

The variables count in `env`, and where a command sets them in a shell.

A pod that requests computing power too, or selects nodes with cGPU by `ack.node.gpu.schedule`, gets
a warning. One that selects only nodes without cGPU is not reported. Any other gets a note, because
the node decides. Of a pod, the rule reads at most 100,000 characters of commands. It leaves out the
commands of a container that do not fit in what the ones before it have left.

Why it matters
--------------
cGPU does not support managed memory: programs must not call `cudaMallocManaged()`.

References
----------
- Alibaba Cloud, "Manage the shared GPU scheduling component", limitations
- https://github.com/openxla/xla, `xla/pjrt/gpu/gpu_helpers.cc`
- https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md
- https://docs.rapids.ai/api/dask-cuda/stable/api/
- rapidsai/cudf, `python/cudf/cudf/pandas/__init__.py`
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from rules.base.json_values import Path, display
from rules.base.traits import SHARE
from rules.gpu.commands.of_containers import commands_of
from rules.gpu.commands.scripts import script_words
from rules.gpu.devices import devices
from rules.gpu.visibility import describe_setting
from rules.placement.node_labels import CGPU_MODES, GPU_CORE, GPU_MEM, MODE_LABEL, allowed_values
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

TENSORFLOW_VARIABLE, LLAMA_VARIABLE = "TF_FORCE_UNIFIED_MEMORY", "GGML_CUDA_ENABLE_UNIFIED_MEMORY"
CUDF_VARIABLE = "CUDF_PANDAS_RMM_MODE"
# The texts that each program takes for managed memory; llama.cpp only asks whether it is set.
MANAGED_VALUES = {TENSORFLOW_VARIABLE: ("1", "true"), CUDF_VARIABLE: ("managed", "managed_pool")}
MANAGED_MEMORY_OPTION = "--rmm-managed-memory"
_VARIABLES = (TENSORFLOW_VARIABLE, LLAMA_VARIABLE, CUDF_VARIABLE)
# A container, the place of a setting, its key and what it is.
_Setting: TypeAlias = tuple[Container, Path, str, str]


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable and each option that turns on managed memory in a container of cGPU."""
    sharing = [container for container in pod.containers if _requests_resource(container, GPU_MEM)]
    modes = allowed_values(pod, MODE_LABEL) if sharing else None
    if not sharing or (modes is not None and modes.isdisjoint(CGPU_MODES)):
        return
    is_certain = modes is not None and modes.issubset(CGPU_MODES)
    is_certain = is_certain or any(_requests_resource(container, GPU_CORE) for container in sharing)
    reported: set[tuple[str, str]] = set()
    for container, path, key, setting in chain(_of_variables(sharing), _of_commands(sharing)):
        if (container.name, key) not in reported:
            reported.add((container.name, key))
            yield _finding(container, path, key, setting, is_certain=is_certain)


def _of_variables(containers: Iterable[Container]) -> Iterator[_Setting]:
    for container in containers:
        for variable in _VARIABLES:
            value = container.env_value(variable)
            if _turns_on_managed_memory(variable, value, is_set=variable in container.env):
                path = container.env_path(variable)
                yield container, path, variable, describe_setting(container, variable)


def _of_commands(containers: Iterable[Container]) -> Iterator[_Setting]:
    for container, command in commands_of(containers):
        for path, text in command:
            if not any(word in text for word in (MANAGED_MEMORY_OPTION, *_VARIABLES)):
                continue  # to look at each word of a script takes long
            script = _without_comments(text)
            for word in (w.text.strip(";|&()") for w in script_words(script) if not w.is_mention):
                if word == MANAGED_MEMORY_OPTION:
                    yield container, path, word, f"has the option {word}"
                variable, is_set, value = word.partition("=")
                if variable in _VARIABLES and is_set:
                    unquoted = value.strip("\"'")
                    if _turns_on_managed_memory(variable, unquoted, is_set=True):
                        yield container, path, variable, f"sets {variable}={display(unquoted)}"


def _without_comments(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _requests_resource(container: Container, resource: str) -> bool:
    device = devices(container).get(resource)
    return bool(device and device.is_requested)


def _turns_on_managed_memory(variable: str, value: str | None, *, is_set: bool) -> bool:
    if variable == LLAMA_VARIABLE:
        return is_set
    return (value or "").lower() in MANAGED_VALUES[variable]


def _finding(
    container: Container, path: Path, key: str, setting: str, *, is_certain: bool
) -> Finding:
    where = "cGPU does not support" if is_certain else "nodes with cGPU do not support"
    return Finding(
        path=path,
        key=key,
        message=f"{container} asks for {display(GPU_MEM)} and {setting}: {where} managed memory",
        container=container,
        help="remove it, so that the program allocates by cudaMalloc()",
        action=Action.DENY if is_certain else Action.AUDIT,
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(SHARE,), needs_resources=True)
