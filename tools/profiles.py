"""Write `policies/profiles/built_in.json`, from which the profiles are loaded.

`python -m tools.profiles`; with `--check`, only report that the file is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kubeyaml import Chunk, read

FOLDER = Path(__file__).parents[1] / "policies" / "profiles"
TARGET = FOLDER / "built_in.json"


def main(arguments: list[str]) -> int:
    """Write the file, or compare it if `arguments` is `["--check"]`.

    Returns the exit status: 1 if the file is stale.
    """
    text = content()
    if arguments == ["--check"]:
        is_stale = not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text
        if is_stale:
            print(f"policies/profiles/{TARGET.name} is stale: run make docs")
        return int(is_stale)
    TARGET.write_text(text, encoding="utf-8")
    return 0


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
    sys.exit(main(sys.argv[1:]))
