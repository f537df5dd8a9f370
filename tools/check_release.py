"""Check before a release that the tag, the package and the chart carry one version.

    python tools/check_release.py vX.Y.Z

It needs the standard library alone, so that it is the first thing a release does.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Where the version stands, and behind what.
PLACES = (
    ("gpuward/__init__.py", "__version__ ="),
    ("charts/gpuward/Chart.yaml", "version:"),
    ("charts/gpuward/Chart.yaml", "appVersion:"),
)


def differences(root: Path, tag: str) -> list[str]:
    """What does not carry the version of `tag`, in words."""
    wanted = tag.removeprefix("v")
    if wanted == tag:
        return [f"the tag {tag} does not begin with v"]
    found = []
    for name, key in PLACES:
        text = (root / name).read_text(encoding="utf-8")
        match = re.search(rf"^{key} [\"']?([^\"'\s]+)", text, re.MULTILINE)
        version = match[1] if match else "nothing"
        if version != wanted:
            found.append(f"{name}: {key} {version}, not {wanted}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(differences(Path(__file__).parents[1], sys.argv[1])) or 0)
