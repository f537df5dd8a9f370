"""An image gives its containers GPUs by default.

What it does
------------
Finds in Dockerfiles and Containerfiles the instruction that sets `NVIDIA_VISIBLE_DEVICES`, or the
variable of another maker, to GPUs in a stage that can become the image: the last one, and those
that no other stage uses. It follows `ARG`, what stages inherit, and `ONBUILD` within the file. A
value that is not known here, such as that of a build argument without a default, is a note.

Why it matters
--------------
A pod without a GPU that uses the image gets every GPU of its node, which the scheduler has not
counted, unless the pod itself sets the variable. Device plugins set the variable in the containers
that request a GPU, so the image need not.

References
----------
- NVIDIA container toolkit, `internal/config/image/cuda_image.go`
"""

from rules.base.json_values import display
from rules.gpu.visibility import Visibility, parse_visibility
from rules.rule import Action, ContainerSetting, Context, Finding, Findings, define_rule


def check(setting: ContainerSetting, _context: Context) -> Findings:
    """Yield the setting if it gives the containers of the image a GPU."""
    known = setting.variable
    if known is None:
        return
    if setting.value is None:
        value, action = " to a value that is known only when it is built", Action.AUDIT
    elif parse_visibility(setting.value, known) is Visibility.GRANTED:
        value, action = f"={display(setting.value)}", Action.DENY
    else:
        return
    hidden = f", or set it to {known.hiding_value}" if known.hiding_value else ""
    yield Finding(
        path=(),
        key=setting.name,
        message=(
            f"{setting.holder} sets {setting.name}{value}: every container of the image that does "
            "not set the variable gets GPUs that the scheduler has not counted"
        ),
        help=f"remove the variable{hidden}: pods that request a GPU get it from the device plugin",
        action=action,
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=())
