"""Strategic merge patches, by which kubectl and controllers change a part of a pod."""

from typing import Any

from rules.base.json_values import as_objects, as_text

# Lists of objects -> the field by which a patch finds the one that it changes; other lists of a
# patch replace those of the object (k8s.io/api core/v1, `patchMergeKey`).
_MERGE_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    **dict.fromkeys(("imagePullSecrets", "schedulingGates"), "name"),
    "volumeMounts": "mountPath",
}


def strategic_merge(old: Any, patch: Any, field: str = "") -> Any:
    """Return the value `old` of a field with the patch.

    Directives such as `$patch: delete` are not read.
    """
    if isinstance(old, dict) and isinstance(patch, dict):
        return {
            **old,
            **{key: strategic_merge(old.get(key), value, key) for key, value in patch.items()},
        }
    key = _MERGE_KEYS.get(field)
    if key is None or not isinstance(old, list) or not isinstance(patch, list):
        return patch
    items = {as_text(item.get(key)): item for _, item in as_objects(old)}
    for _, item in as_objects(patch):
        name = as_text(item.get(key))
        items[name] = strategic_merge(items.get(name), item)
    return [*items.values()]
