"""Which annotations, labels, variables, images and commands rules may read.

All others have no influence on what rules find, whatever their values.
"""

import re
from collections.abc import Callable, Iterable

from rules.base.caching import BoundedCache
from rules.base.traits import PROGRAM_WORDS, RESERVATION_LABEL
from rules.engine.traits import key_traits, traits_of_variable
from rules.gpu.allocation_keys import KAI_GROUP, PAYER_LABELS
from rules.gpu.images import (
    image_name,
    image_tag,
    is_gpu_sample,
    sets_visible_devices,
    vendor_of_image,
)
from rules.gpu.launchers import LAUNCHER_MARKS, LAUNCHERS_BY_IMAGE, SIZE_VARIABLES
from rules.objects.pod import MIRROR_ANNOTATION
from rules.profile.platforms.accounting_marks import JOB_LABELS, ROLE_ANNOTATION, is_mark
from rules.profile.profile import Profile

# Keys that rules read although nothing in them says so.
_OTHER_RELEVANT_KEYS = (
    *(MIRROR_ANNOTATION, "app.kubernetes.io/managed-by", "hami.io/webhook"),
    *("kai.scheduler/queue", "runai/queue", RESERVATION_LABEL[0], KAI_GROUP, ROLE_ANNOTATION),
)
# The same of variables.
_OTHER_RELEVANT_VARIABLES = (
    *SIZE_VARIABLES,
    *("TF_FORCE_UNIFIED_MEMORY", "CUDF_PANDAS_RMM_MODE"),
    *("NPU_MEM_QUOTA", "NPU_PRIORITY", "NPU_GLOBAL_SHM_PATH"),
)
# Rules that tell ordinary images apart.
RULES_ABOUT_EVERY_IMAGE = frozenset({"untrusted-gpu-image"})
# Of a container that mounts no path of the node: one of them is in every command of interest.
_COMMAND_MARKS = (
    *LAUNCHER_MARKS,
    *PROGRAM_WORDS,
    *("--rmm-managed-memory", "CUDA_VISIBLE_DEVICES", "MIG-", "sleep", "tail"),
)
_COMMAND_MARK_PATTERN = re.compile("|".join(map(re.escape, _COMMAND_MARKS)).encode())


class RelevantNames(BoundedCache[str, bool]):
    """Whether rules may read something, by its name."""

    def __init__(self, may_be_read: Callable[[str], bool]) -> None:
        super().__init__()
        self._may_be_read = may_be_read

    def __missing__(self, name: str) -> bool:
        """The answer for a new `name`."""
        return self.store(name, self._may_be_read(name))


def relevant_keys(profile: Profile) -> RelevantNames:
    """The keys of annotations and labels that rules may read with `profile`."""
    fractions = profile.fractions
    optional = (key for f in fractions for key in (f.target, f.portion, f.memory, f.cards))
    known = frozenset(
        (
            *_OTHER_RELEVANT_KEYS,
            *profile.request_annotations,
            *(key for key in optional if key),
            *(reference.annotation for reference in profile.injected_references),
        )
    )
    return RelevantNames(lambda key: key in known or bool(key_traits(key)))


_RELEVANT_LABELS = relevant_keys(Profile("none"))  # of profiles, rules read annotations only


def is_relevant_label(key: str) -> bool:
    """Whether rules may read the label `key` of a pod, or compare it with that before an update."""
    return _RELEVANT_LABELS[key] or key in PAYER_LABELS | JOB_LABELS or is_mark(key)


def relevant_variables(profile: Profile) -> RelevantNames:
    """The variables whose values rules may read with `profile`.

    Rules may also read every variable to which `$(NAME)` in another text refers.
    """
    known = frozenset(_OTHER_RELEVANT_VARIABLES)
    return RelevantNames(lambda name: name in known or bool(traits_of_variable(name, profile)))


def is_ordinary_image(image: str) -> bool:
    """Whether only `RULES_ABOUT_EVERY_IMAGE`, and exceptions, tell `image` from others like it."""
    if image_tag(image) == "latest" or is_gpu_sample(image):
        return False
    is_known = vendor_of_image(image) or sets_visible_devices(image)
    return not (is_known or is_launcher_image(image))


def may_set_size(variables: Iterable[str]) -> bool:
    """Whether one of `variables` may tell a launcher, which no command names, its number of GPUs.

    Rules then read the command.
    """
    return not SIZE_VARIABLES.isdisjoint(variables)


def is_launcher_image(image: str) -> bool:
    """Whether a container of `image` may run a known launcher without naming it."""
    return image_name(image) in LAUNCHERS_BY_IMAGE


def may_read_command(text: bytes) -> bool:
    """Whether rules may find something in `text`, the `command` or `args` of a container in JSON.

    That holds for containers whose image is of no launcher, in pods that mount no path of the node,
    and for texts without escape sequences for letters.
    """
    return _COMMAND_MARK_PATTERN.search(text) is not None
