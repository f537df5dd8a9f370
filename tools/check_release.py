"""Check before a release that the tag, the package, the chart and the README agree.

    python tools/check_release.py vX.Y.Z

It imports only the standard library, so a release can run it first, before any installation.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# The files that contain the version, and the lines or the text in front of it.
PLACES = (
    ("gpuward/__init__.py", "__version__ ="),
    ("charts/gpuward/Chart.yaml", "version:"),
    ("charts/gpuward/Chart.yaml", "appVersion:"),
    ("templates/gpuward.yml", "      description: The release of gpuward\n      default:"),
)
# The heading of the README's section about what is not there before the first release.
UNPUBLISHED = "## Not published yet"


def differences(root: Path, tag: str) -> list[str]:
    """Return one message for each place below `root` that does not fit a release of `tag`.

    `tag` is `v` and the version, such as v0.1.0.
    """
    expected = tag.removeprefix("v")
    if expected == tag:
        return [f"the tag {tag} does not begin with v"]
    messages = []
    for name, key in PLACES:
        text = (root / name).read_text(encoding="utf-8")
        match = re.search(rf"^{key} [\"']?([^\"'\s]+)", text, re.MULTILINE)
        version = match[1] if match else "nothing"
        if version != expected:
            line = key.rpartition("\n")[2].strip()
            messages.append(f"{name}: {line} {version}, not {expected}")
    if UNPUBLISHED in (root / "README.md").read_text(encoding="utf-8"):
        messages.append(f"README.md: remove the section {UNPUBLISHED!r}")
    return messages


if __name__ == "__main__":
    sys.exit("\n".join(differences(Path(__file__).parents[1], sys.argv[1])) or 0)
