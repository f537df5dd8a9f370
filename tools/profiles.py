"""Write `policies/profiles/built_in.json`, from which the profiles are loaded.

`python -m tools.profiles`; with `--check`, only report that the file is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kubeyaml import Chunk, read
from tools.generated_file import write_or_compare

FOLDER = Path(__file__).parents[1] / "policies" / "profiles"
TARGET = FOLDER / "built_in.json"


def content() -> str:
    """Every profile, one to a line, by name."""
    profiles = [_profile(file) for file in sorted(FOLDER.glob("*.yaml"))]
    lines = [f"{json.dumps(p['name'])}: {json.dumps(p, ensure_ascii=False)}" for p in profiles]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _profile(file: Path) -> dict[str, Any]:
    document = read(Chunk(file.read_text(encoding="utf-8")))
    profile: Any = document and document.value
    return dict(profile)


if __name__ == "__main__":
    sys.exit(write_or_compare(TARGET, content(), sys.argv[1:]))
