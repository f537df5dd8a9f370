"""The mark on a pod that was fixed: warnings about pods that controllers make reach nobody."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Operation, apply, put
from rules.finding import Finding

MARK = "gpuward.io/fixed"
# Characters in annotations beyond which the mark might exceed the API server's 256 KiB.
MOST_ANNOTATED = 60 << 10


def marked(manifest: Any, fixed: Sequence[Finding], known: Collection[str]) -> list[Operation]:
    """The operations that name on a mended pod the rules, of those `known`, that have fixed it.

    A reinvocation adds to what the first round wrote; what else stands there is not ours.
    """
    if not fixed:
        return []
    annotations = as_object(as_object(manifest.get("metadata")).get("annotations"))
    if sum(len(key) + len(as_text(value)) for key, value in annotations.items()) > MOST_ANNOTATED:
        return []
    earlier = [name for name in as_text(annotations.get(MARK)).split(",") if name in known]
    names = ",".join(dict.fromkeys((*earlier, *(finding.rule for finding in fixed))))
    return apply(manifest, [put(("metadata", "annotations", MARK), names)])[1]
