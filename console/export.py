"""The whole as one HTML file, which loads nothing: for those who may run nothing in a cluster."""

from __future__ import annotations

import base64
import hashlib
import os

from console.pages import findings
from console.pages.gpus import Filter, gpus_page
from console.rendering import FOLDER, Templates, safe
from console.state import ClusterState

_MAX_NODES = 2_000
_MAX_PENDING = 100
_MAX_FINDINGS = 500
_PARTS = (("#gpus", "GPUs"), ("#pending", "Pending"), ("#findings", "Findings"))


def export(state: ClusterState) -> str:
    """The file about what is known now. Raises SourceError."""
    usage, missing = state.reading()
    page = gpus_page(usage, Filter(), state.teams(), most=_MAX_NODES)
    waiting = [c for c in usage.consumers if not c.node and not c.name.startswith("resourceclaim/")]
    found = (state.why(one.namespace, one.name) for one in waiting[:_MAX_PENDING])
    results = state.audit().result.results
    wanted = findings.Filter(level="note")
    listed = findings.findings_page(results, wanted, most=_MAX_FINDINGS)
    by_mark = dict(findings.by_mark(results))
    with open(os.path.join(FOLDER, "static", "console.css"), encoding="utf-8") as file:
        style = file.read()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return Templates().render(
        "export.html",
        {
            "heading": f"GPUs of {state.title}",
            "exported": True,
            "viewer": "",
            "is_open": False,
            "style": safe(style),
            "style_hash": safe(f"'sha256-{digest}'"),
            "state": state,
            "state_version": state.version,
            "navigation": _PARTS,
            "current": "",
            "missing": missing,
            "page": page,
            "filter": Filter(),
            "explanations": [why for why in found if why],
            "other_pending": max(len(waiting) - _MAX_PENDING, 0),
            "found": listed,
            "rows": [(row, state.fix_preview(by_mark[row.mark])) for row in listed.rows],
            "other_rows": listed.matching - len(listed.rows),
        },
    )
