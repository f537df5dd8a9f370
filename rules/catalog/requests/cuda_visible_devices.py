"""CUDA_VISIBLE_DEVICES names GPUs that the container does not have.

What it does
------------
Checks the literal value of `CUDA_VISIBLE_DEVICES` in containers that request whole GPUs. Finds an
index that is not less than their number, the UUID of a card, and `all`, which CUDA does not know. A
privileged container sees all cards of the node and is not checked.

Why it matters
--------------
Inside a container CUDA counts the GPUs from 0, whichever cards of the node they are, and nobody
knows beforehand which card a pod gets. From the first entry on that CUDA does not find, it ignores
the list: the program sees fewer GPUs than the container holds, or none. Where it sees some of them,
this is only a note.

References
----------
- https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from rules.base.json_values import display
from rules.base.text_matching import has_placeholder
from rules.base.traits import GPU_RESOURCE, GPU_VARIABLE
from rules.gpu.devices import whole_gpus
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_VARIABLE = "CUDA_VISIBLE_DEVICES"
# No user lists more: a longer value is something else.
_MAX_CHARACTERS = 1024
_MAX_READ = 64  # characters that API servers read
WORD_FAULT, INDEX_FAULT = "is no word of CUDA", "is not one of them"
UUID_FAULT, SEEN = "is one card, and the pod may get another", ": the program then sees "
ADVICE = f"remove {_VARIABLE}, or count the container's GPUs from 0"
_UUID_PREFIXES = ("GPU-", "MIG-")


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the first entry of each list that names a GPU which the container does not have."""
    for container in pod.containers:
        value = container.env_value(_VARIABLE)
        if (
            not value
            or len(value) > _MAX_CHARACTERS
            or has_placeholder(value)
            or container.is_privileged
        ):
            continue
        gpus = whole_gpus(container)
        if not gpus:
            continue
        entries = [entry.strip() for entry in value.split(",")]
        first = next((n for n, entry in enumerate(entries) if fault_of(entry, gpus)), None)
        if first is None:
            continue
        fault = fault_of(entries[first], gpus)
        amount = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
        seen = f"only {first}" if first else "none"
        yield Finding(
            path=container.env_value_path(_VARIABLE),
            key=_VARIABLE,
            message=f"{container} holds {amount} and sets {_VARIABLE}={display(value)}, where "
            f"{display(entries[first])} {fault}{SEEN}{seen}",
            container=container,
            help=ADVICE,
            action=Action.AUDIT if first else Action.WARN,
        )


def fault_of(entry: str, gpus: int) -> str:
    """Return the fault of an entry of the list in a container with `gpus` GPUs, or empty.

    Words that mean nothing, and -1, hide every GPU, which may be meant.
    """
    if entry == "all":
        return WORD_FAULT
    if entry.startswith(_UUID_PREFIXES):
        return UUID_FAULT
    if entry.isascii() and entry.isdigit() and int(entry) >= gpus:
        return INDEX_FAULT
    return ""


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(GPU_RESOURCE, GPU_VARIABLE), needs_resources=True
)
