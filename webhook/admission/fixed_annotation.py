"""The annotation on a fixed pod that names the rules which fixed it.

Nobody reads the warnings about pods that controllers create, so the pod itself carries a record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rules.base.json_access import as_object, as_text
from rules.base.json_values import Operation, apply, put
from rules.finding import Finding

FIXED_ANNOTATION = "gpuward.io/fixed"
# With more characters in annotations, one more might exceed the API server's 256 KiB.
MAX_ANNOTATION_CHARACTERS = 60 << 10


def annotation_operations(
    manifest: Any, fixed: Sequence[Finding], known: Collection[str]
) -> list[Operation]:
    """The operations that add the annotation to a fixed pod; none if nothing was fixed.

    When the API server calls the webhook again for the same pod, names are added to those that are
    there. Names that are not in `known`, the names of all rules, are dropped.
    """
    if not fixed:
        return []
    metadata = manifest.get("metadata")
    listed = as_object(metadata).get("annotations")
    if not all(part is None or isinstance(part, dict) for part in (metadata, listed)):
        return []  # no API server sends such an object
    annotations = as_object(listed)
    size = sum(len(key) + len(as_text(value)) for key, value in annotations.items())
    if size > MAX_ANNOTATION_CHARACTERS:
        return []
    present = as_text(annotations.get(FIXED_ANNOTATION)).split(",")
    earlier = [name for name in present if name in known]
    names = ",".join(dict.fromkeys((*earlier, *(finding.rule for finding in fixed))))
    return apply(manifest, [put(("metadata", "annotations", FIXED_ANNOTATION), names)])[1]
