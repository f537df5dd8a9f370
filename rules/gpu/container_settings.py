"""Settings by which files that are no manifests give containers GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Finding
from rules.gpu.visibility import Visibility, parse_visibility
from rules.objects.file_settings import ContainerSetting


def uncounted_gpus(setting: ContainerSetting, message: str) -> Iterator[Finding]:
    """Yield `setting` unless it is a variable that gives no GPU.

    `message` has `{holder}` and `{what}`, the setting with its value.
    """
    value, known = setting.value, setting.variable
    if known and value is not None and parse_visibility(value, known) is not Visibility.GRANTED:
        return
    what = f"{setting.name}={display(value)}" if value else setting.name
    yield Finding(
        path=(),
        key=setting.name,
        message=message.format(holder=setting.holder, what=what),
        help="on a cluster, run it as a pod that requests a GPU in resources.limits",
    )
