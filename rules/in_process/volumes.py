"""Twins of `rules.gpu.volumes`: the paths of the node that containers mount, in CEL."""

from rules.base.traits import DEVICE_LIST_FOLDER
from rules.gpu.volumes import (
    DEVICE_LIST_PATH,
    DRIVER_ROOTS,
    MAX_PATH_CHARACTERS,
    NVIDIA_FILE,
)
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    has,
    is_in,
    let,
    not_,
    record,
    string,
)
from rules.in_process.statement import shown
from rules.profile.platforms.makers import DEVICE_FILE_PATTERN

# A process has the files of the node, if it is one of the node.
_PROCESS_FOLDERS = r"^(?:proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)/)+"


def clean_path(path: Expression) -> Expression:
    """`clean_path` of `path`, in which the API server accepts no `..`."""
    return let(
        path.split("/").filter(lambda s: all_of(s != "", s != ".")).join("/"),
        lambda t: let((t + "/").find(_PROCESS_FOLDERS), lambda f: _behind(t, f)),
        lambda t: "/" + t,
    )


def _behind(path: Expression, folders: Expression) -> Expression:
    """Return `path` without the `folders` at its beginning, which end with a slash."""
    return choose(
        (folders == "", path),
        (folders.size() > path.size(), ""),
        otherwise=path.substring(folders.size()),
    )


_ROUNDS = 8
# No device file has a longer path.
_LONGEST_FILE = 256


def resolved_path(path: Expression, unresolved: str) -> Expression:
    """`clean_path` of `path`, which may have `..`; `unresolved` if it has too many."""

    def resolved(t: Expression) -> Expression:
        return let(
            t + "/",
            *[_without_one_parent] * _ROUNDS,
            lambda t: choose((t.contains("/../"), unresolved), otherwise=clean_path(t)),
        )

    return let(clean_path(path), lambda t: choose((t.contains(".."), resolved(t)), otherwise=t))


def _without_one_parent(t: Expression) -> Expression:
    """Return the path `t` without its first `..`, and without the folder that this leaves."""
    removed = t.find(r"/[^/]+/\.\./")
    return choose(
        (t.startsWith("/../"), t.substring(3)),
        otherwise=let(removed, lambda f: choose((f == "", t), otherwise=t.replace(f, "/", 1))),
    )


def host_volumes() -> Expression:
    """Return the volumes that are paths of the node, each with its clean path."""
    volumes = OBJECT.hostPaths.map(lambda h: {"name": h.name, "path": clean_path(h.path)})
    known = volumes.filter(lambda h: h.path.size() <= MAX_PATH_CHARACTERS)
    return choose((OBJECT.tooLarge, []), otherwise=known)


def _is_gpu_file(path: Expression) -> Expression:
    """`is_gpu_file` of `path`. Of one that is longer than any known it reads a part."""
    begin = choose((path.size() > _LONGEST_FILE, path.substring(0, _LONGEST_FILE)), otherwise=path)
    own = "/dev/nvidia"
    return any_of(
        is_in(path, sorted(DRIVER_ROOTS)),
        all_of(path.startsWith("/dev/"), begin.matches(f"^(?:{DEVICE_FILE_PATTERN})$")),
        expression([begin]).exists(
            lambda t: all_of(
                t.contains(own), t.substring(t.lastIndexOf(own)).matches(f"^(?:{NVIDIA_FILE})$")
            )
        ),
    )


def host_mounts(container: Expression) -> Expression:
    """`host_mounts` of `container`, as it was written; their paths are clean."""
    volumes = OBJECT.hostVolumes
    mounts = (
        get(container, "volumeMounts", [])
        .filter(lambda m: volumes.exists(lambda h: h.name == m.name))
        .map(lambda m: volumes.filter(lambda h: h.name == m.name).map(lambda h: _mount(m, h))[0])
        .filter(lambda m: m.path.size() <= MAX_PATH_CHARACTERS)
        .map(
            lambda m: record(
                volume=m.volume,
                path=m.path,
                readOnly=m.readOnly,
                recursive=m.recursive,
                isGpuFile=_is_gpu_file(m.path),
                shown=shown(m.path),
                shownVolume=shown(m.volume),
            )
        )
    )
    return choose((volumes.size() == 0, []), otherwise=mounts)


def _mount(m: Expression, h: Expression) -> Expression:
    """Return the mount `m` of the volume `h`."""
    template = get(m, "subPathExpr", "")
    sub_path = choose(
        (get(m, "subPath", "") != "", m.subPath),
        (template.contains("$"), ""),
        otherwise=template,
    )
    path = let(
        sub_path,
        lambda sub: choose((sub == "", h.path), otherwise=clean_path(h.path + "/" + sub)),
    )
    return record(
        volume=h.name,
        path=path,
        readOnly=get(m, "readOnly", False),
        recursive=get(m, "recursiveReadOnly", "") == "Enabled",
    )


def device_lists(container: Expression) -> Expression:
    """Return the mounts by which NVIDIA's toolkit reads a list of devices; not those of emptyDirs.

    A path with more than eight `..` counts as one of them.
    """
    volumes, folder = get(OBJECT.spec, "volumes", []), DEVICE_LIST_PATH

    def is_empty_dir(w: Expression) -> Expression:
        return all_of(has(w, "emptyDir"), not_(has(w, "hostPath")))

    return (
        get(container, "volumeMounts", [])
        .filter(
            lambda m: all_of(
                m.mountPath.contains(DEVICE_LIST_FOLDER),
                not_(volumes.filter(lambda w: w.name == m.name).exists(is_empty_dir)),
            )
        )
        .map(
            lambda m: record(
                path=resolved_path(m.mountPath, unresolved=f"{folder}/.."),
                isNull=OBJECT.hostVolumes.exists(
                    lambda h: all_of(h.name == m.name, h.path == "/dev/null")
                ),
                shownVolume=shown(string(m.name)),
            )
        )
        .filter(lambda m: all_of(m.path != folder, m.path.startsWith(folder)))
    )
