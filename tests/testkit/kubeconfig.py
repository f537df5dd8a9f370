"""A kubeconfig file for one server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_kubeconfig(folder: Path, server: str, cluster: dict[str, Any]) -> str:
    """Write a file for the URL `server`; returns its path. `cluster` has further settings of it."""
    content = {
        "clusters": [{"name": "x", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return str(file)
