"""Twins of `rules.gpu.volumes`: the paths of the node that containers mount, in CEL."""

from rules.base.traits import DEVICE_LIST_FOLDER
from rules.gpu.volumes import (
    DEVICE_LIST_PATH,
    DRIVER_ROOTS,
    MAX_PATH_CHARACTERS,
    NVIDIA_FILE,
)
from rules.in_process.statement import cel, shown
from rules.profile.platforms.makers import DEVICE_FILE_PATTERN


def clean_path(path: str) -> str:
    """`clean_path` of the CEL `path`, in which the API server accepts no `..`."""
    process = r"^(?:proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)/)+"
    return (
        f"[{path}.split('/').filter(s, s != '' && s != '.').join('/')]"
        f".map(t, [(t + '/').find({cel(process)})].map(f, f == '' ? t"
        " : f.size() > t.size() ? '' : t.substring(f.size()))[0]).map(t, '/' + t)[0]"
    )


_ROUNDS = 8


def resolved_path(path: str, unresolved: str) -> str:
    """`clean_path` of the CEL `path`, which may have `..`; `unresolved` if it has too many."""
    removed = cel(r"/[^/]+/\.\./")
    one = (
        ".map(t, t.startsWith('/../') ? t.substring(3) : [t.find(" + removed + ")]"
        ".map(f, f == '' ? t : t.replace(f, '/', 1))[0])"
    )
    return (
        f"({path}.contains('..') ? [{clean_path(path)} + '/']{one * _ROUNDS}"
        f".map(t, t.contains('/../') ? {cel(unresolved)} : {clean_path('t')})[0]"
        f" : {clean_path(path)})"
    )


def host_volumes() -> str:
    """The volumes that are paths of the node, each with its clean path."""
    return (
        f'$tooLarge ? [] : $hostPaths.map(h, {{"name": h.name, "path": {clean_path("h.path")}}})'
        f".filter(h, h.path.size() <= {MAX_PATH_CHARACTERS})"
    )


def _is_gpu_file(path: str) -> str:
    """`is_gpu_file` of the CEL `path`. Of one that is longer than any known it reads a part."""
    begin = f"({path}.size() > 256 ? {path}.substring(0, 256) : {path})"
    gpu_file = cel(f"^(?:{DEVICE_FILE_PATTERN})$")
    tail = "t.substring(t.lastIndexOf('/dev/nvidia'))"
    return (
        f"({path} in {cel(sorted(DRIVER_ROOTS))}"
        f" || {path}.startsWith('/dev/') && {begin}.matches({gpu_file})"
        f" || [{begin}].exists(t, t.contains('/dev/nvidia')"
        f" && {tail}.matches({cel(f'^(?:{NVIDIA_FILE})$')})))"
    )


def host_mounts() -> str:
    """`host_mounts` of a container; its paths are clean."""
    sub = (
        'm.?subPath.orValue("") != "" ? m.subPath : m.?subPathExpr.orValue("").contains("$") ? ""'
        ' : m.?subPathExpr.orValue("")'
    )
    below = clean_path("(h.path + '/' + sub)")
    joined = f"[{sub}].map(sub, sub == '' ? h.path : {below})[0]"
    return (
        "$hostVolumes.size() == 0 ? [] : k.b.raw.?volumeMounts.orValue([])"
        ".filter(m, $hostVolumes.exists(h, h.name == m.name))"
        ".map(m, $hostVolumes.filter(h, h.name == m.name)"
        f'.map(h, {{"volume": dyn(h.name), "path": dyn({joined}),'
        ' "readOnly": dyn(m.?readOnly.orValue(false)),'
        ' "recursive": dyn(m.?recursiveReadOnly.orValue("") == "Enabled")})[0])'
        f".filter(m, m.path.size() <= {MAX_PATH_CHARACTERS})"
        '.map(m, {"volume": dyn(m.volume), "path": dyn(m.path), "readOnly": dyn(m.readOnly),'
        ' "recursive": dyn(m.recursive),'
        f' "isGpuFile": dyn({_is_gpu_file("m.path")}), "shown": dyn({shown("m.path")}),'
        f' "shownVolume": dyn({shown("m.volume")})}})'
    )


def device_lists() -> str:
    """The mounts at paths by which NVIDIA's toolkit reads a list of devices; not of an emptyDir.

    A path with more than eight `..` counts as one of them.
    """
    path = resolved_path("m.mountPath", unresolved=f"{DEVICE_LIST_PATH}/..")
    volume = "$spec.?volumes.orValue([]).filter(w, w.name == m.name)"
    is_null = '$hostVolumes.exists(h, h.name == m.name && h.path == "/dev/null")'
    folder = cel(DEVICE_LIST_PATH)
    return (
        "k.b.raw.?volumeMounts.orValue([])"
        f".filter(m, m.mountPath.contains({cel(DEVICE_LIST_FOLDER)})"
        f" && !{volume}.exists(w, w.?emptyDir.hasValue() && !w.?hostPath.hasValue()))"
        f'.map(m, {{"path": dyn({path}), "isNull": dyn({is_null}),'
        f' "shownVolume": dyn({shown("string(m.name)")})}})'
        f".filter(l, l.path != {folder} && l.path.startsWith({folder}))"
    )
