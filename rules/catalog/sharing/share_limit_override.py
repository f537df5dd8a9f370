"""A container that asks for a share of a GPU loosens the limits of its share.

What it does
------------
Finds variables in the `env` of a container that requests a share of a GPU, if they switch off or
replace the limits of the share: `CUDA_DISABLE_CONTROL` if it is or may be true (on Volcano with any
value), `CUDA_DEVICE_MEMORY_LIMIT` and `CUDA_DEVICE_SM_LIMIT`, numbered or not,
`CUDA_DEVICE_MEMORY_SHARED_CACHE`, `GPU_CORE_UTILIZATION_POLICY` if it is or may be `disable`,
`CUDA_OVERSUBSCRIBE`, `CUDA_TASK_PRIORITY` in a container that does not request
`nvidia.com/priority`, the limits of an MPS client, and the directory in which it finds its daemon.
Beside a share of an Ascend NPU these are `NPU_MEM_QUOTA`, `NPU_PRIORITY` and `NPU_GLOBAL_SHM_PATH`.
A `valueFrom` reference counts too, and a prefix in `envFrom` that a key can complete to one of
those that the rule denies.

Finds mounts of volumes at `/etc/ld.so.preload`, `/usr/local/vgpu`, `/tmp/vgpu` and `/tmp/vgpulock`,
below these, and above the first two, beside a share of HAMi or Volcano: their device plugins mount
the library that enforces the limits, the file that loads it, what it counts in, and its lock, at
these places. Beside a share of an Ascend NPU it finds `/hami-vnpu-core` and `/hami-shared-region`,
and beside one of Tencent's gpu-manager `/etc/vcuda` and `/usr/local/nvidia` as well.

Why it matters
--------------
A library inside the container enforces the limits of the share and reads them from the environment.
The variables of the pod come last and win, so the container can take memory and cores from other
containers on the card. HAMi documents `CUDA_DISABLE_CONTROL=true` as "no resource isolation and
limitation". Of two mounts at one place, the kubelet passes on the device plugin's first, and the
pod's covers it.

The rule only warns about mounts above these places, over which the runtime may still put the
plugin's files, and about some variables. HAMi's own webhook may write
`GPU_CORE_UTILIZATION_POLICY`, and writes `CUDA_TASK_PRIORITY` for `nvidia.com/priority`, which a
user may choose. `CUDA_OVERSUBSCRIBE` decides whether memory beyond the card's is the node's; the
limit remains. The MPS daemon's own limit applies beside that of an MPS client. A program with
another `CUDA_MPS_PIPE_DIRECTORY` than the device plugin's leaves the daemon, and while nobody else
uses the card it has all of it; where cards are shared by time, it may start a daemon of its own.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: the program may need it. There is
no fix for a mount.

References
----------
- https://github.com/Project-HAMi/HAMi/blob/master/docs/config.md
- HAMi-core, `src/libvgpu.c`, `src/multiprocess/multiprocess_memory_limit.c`
- Project-HAMi/HAMi, `pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go`
- Project-HAMi/volcano-vgpu-device-plugin, `pkg/plugin/vgpu/plugin.go`
- Project-HAMi/ascend-device-plugin, `internal/server`; the limiter of hami-vnpu-core
- tkestack/gpu-manager, `pkg/types/types.go`, `pkg/services/allocator/nvidia/allocator.go`
"""

from collections.abc import Iterator

from rules.base.json_values import as_text, display
from rules.base.traits import ALIYUN_PREFIX, SHARE
from rules.gpu.devices import devices, requests_share
from rules.gpu.visibility import describe_setting, prefix_findings, remove_edits
from rules.gpu.volumes import clean_path
from rules.in_process.requests import facts_of
from rules.in_process.statement import Statement, any_of, cel, concat, shown
from rules.in_process.variables import prefix_statement
from rules.in_process.volumes import resolved_path
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

DISABLING_VARIABLE = "CUDA_DISABLE_CONTROL"
POLICY_VARIABLE = "GPU_CORE_UTILIZATION_POLICY"
LIMIT_VARIABLES = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT")
CACHE_VARIABLE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"  # the file that keeps the limits
MPS_LIMIT_VARIABLES = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
MPS_DIRECTORY_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
OVERSUBSCRIBE_VARIABLE, PRIORITY_VARIABLE = "CUDA_OVERSUBSCRIBE", "CUDA_TASK_PRIORITY"
SWITCH_EFFECT = "which switches off the limits of the share"
OTHER_ENTRY_EFFECT = "of which another entry switches off the limits of the share"
PRESENCE_EFFECT = "whose mere presence switches off the limits of the share"
LIMIT_EFFECT = "which replaces the limit that the sharing system sets"
POLICY_EFFECT = "which may switch off the limit on GPU cores"
PREFIX_EFFECT = ", by which the sharing system limits the share"
VARIABLE_ADVICE = "remove the variable: the sharing system sets the limits from resources.limits"
MOUNT_EFFECT = "where the sharing system mounts what limits the share"
MOUNT_ADVICE = "mount the volume at another place"
MAX_PATH, MAX_PATH_TO_RESOLVE = 200, 64
"""So many characters of the path of a mount do API servers read, and so many in which is `..`."""
LOOSE_POLICIES = ("disable", "DISABLE")
EFFECT_BY_VARIABLE = {
    **dict.fromkeys(
        MPS_LIMIT_VARIABLES, "which may replace the limit that the sharing system sets"
    ),
    MPS_DIRECTORY_VARIABLE: "which may take it away from the MPS daemon that limits the share",
    CACHE_VARIABLE: "which names another file for the limits that the sharing system sets",
    OVERSUBSCRIBE_VARIABLE: "which decides for the sharing system whether memory may be the node's",
    PRIORITY_VARIABLE: "which gives its work another priority than the sharing system does",
}
WARNED_VARIABLES = frozenset(
    {
        POLICY_VARIABLE,
        OVERSUBSCRIBE_VARIABLE,
        PRIORITY_VARIABLE,
        MPS_DIRECTORY_VARIABLE,
        *MPS_LIMIT_VARIABLES,
    }
)
# HAMi's webhook writes the variable for this resource.
PRIORITY_RESOURCE = "nvidia.com/priority"
TRUE_WORDS = ("1", "t", "T", "TRUE", "true", "True")  # the texts that Go's ParseBool reads as true
PRELOAD_FILE = "/etc/ld.so.preload"
SHARING_DIRECTORIES = ("/usr/local/vgpu", "/tmp/vgpu", "/tmp/vgpulock")  # noqa: S108  # of a container
SHARING_DIRECTORY_PREFIXES = tuple(f"{directory}/" for directory in SHARING_DIRECTORIES)
# The same of other systems, by the beginning of the names of their shares.
DIRECTORIES_BY_RESOURCE_PREFIX = {
    "huawei.com/": ("/hami-vnpu-core", "/hami-shared-region"),
    "tencent.com/": ("/etc/vcuda", "/usr/local/nvidia"),
}
ASCEND_PREFIX = "huawei.com/"
ASCEND_LIMIT_VARIABLES = ("NPU_MEM_QUOTA", "NPU_PRIORITY", "NPU_GLOBAL_SHM_PATH")
DIRECTORIES_ABOVE = ("/", "/etc", "/usr", "/usr/local")
PREFIX_WHERE_PRESENCE_COUNTS = (
    "volcano.sh/"  # its device plugin checks only whether the switch is set
)


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable and each mount by which a container loosens its share's limits."""
    for container in pod.containers:
        if requests_share(container):
            for variable in container.env:
                if effect := _effect(container, variable):
                    yield _finding(container, variable, effect)
            yield from _findings_of_prefixes(container)
            yield from _findings_of_mounts(container)


def _findings_of_prefixes(container: Container) -> Findings:
    if all(name.startswith(ALIYUN_PREFIX) for name in devices(container)):
        return  # cGPU reads none of these variables
    of_ascend = ASCEND_LIMIT_VARIABLES if _asks_for(container, ASCEND_PREFIX) else ()
    for variable in (DISABLING_VARIABLE, *LIMIT_VARIABLES, CACHE_VARIABLE, *of_ascend):
        pattern = f"{variable}*" if variable in LIMIT_VARIABLES else variable
        subject = f"{container} asks for a share of a GPU and"
        yield from prefix_findings(container, pattern, subject=subject, effect=PREFIX_EFFECT)


def _findings_of_mounts(container: Container) -> Findings:
    if all(name.startswith(ALIYUN_PREFIX) for name in devices(container)):
        return  # cGPU limits its shares in the kernel
    seen = set()
    own_prefixes = tuple(
        f"{directory}/"
        for prefix, directories in DIRECTORIES_BY_RESOURCE_PREFIX.items()
        for directory in directories
        if _asks_for(container, prefix)
    )
    for index, mount in container.mounts:
        path = clean_path(as_text(mount.get("mountPath")))
        covers = path == PRELOAD_FILE or f"{path}/".startswith(
            (*SHARING_DIRECTORY_PREFIXES, *own_prefixes)
        )
        if not (covers or path in DIRECTORIES_ABOVE) or path in seen:
            continue
        seen.add(path)
        yield Finding(
            path=(*container.path, "volumeMounts", index, "mountPath"),
            key=f"mount.{path}",
            message=(
                f"{container} asks for a share of a GPU and mounts a volume at {display(path)}, "
                f"{MOUNT_EFFECT}"
            ),
            container=container,
            help=MOUNT_ADVICE,
            action=Action.DENY if covers else Action.WARN,
        )


def _asks_for(container: Container, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in devices(container))


def _effect(container: Container, variable: str) -> str:
    if variable in ASCEND_LIMIT_VARIABLES and not _asks_for(container, ASCEND_PREFIX):
        return ""
    if variable == DISABLING_VARIABLE:
        return _switch_effect(container)
    if variable == POLICY_VARIABLE:
        value = container.env_value(POLICY_VARIABLE)
        loose = value is None or value in LOOSE_POLICIES or "$(" in value
        return POLICY_EFFECT if loose else ""
    if variable == PRIORITY_VARIABLE and PRIORITY_RESOURCE in container.limits:
        return ""
    if variable in EFFECT_BY_VARIABLE:
        return EFFECT_BY_VARIABLE[variable]
    limit = (
        variable in (*LIMIT_VARIABLES, *ASCEND_LIMIT_VARIABLES)
        or variable.rstrip("0123456789").rstrip("_") in LIMIT_VARIABLES
    )
    return LIMIT_EFFECT if limit else ""


def _switch_effect(container: Container) -> str:
    if any(name.startswith(PREFIX_WHERE_PRESENCE_COUNTS) for name in devices(container)):
        return PRESENCE_EFFECT
    entries = [entry for _, entry in container.env_entries(DISABLING_VARIABLE)]
    switches = [
        e.get("valueFrom") is not None or _may_be_true(str(e.get("value"))) for e in entries
    ]
    if any(switches[:-1]) and not switches[-1]:  # the device plugin reads every entry of the pod
        return OTHER_ENTRY_EFFECT
    return SWITCH_EFFECT if switches[-1] else ""


def _may_be_true(value: str) -> bool:
    """Return whether Go reads `value` as true, or the kubelet puts another variable into it."""
    return value in TRUE_WORDS or "$(" in value


def _finding(container: Container, variable: str, effect: str) -> Finding:
    setting = describe_setting(container, variable)
    return Finding(
        path=container.env_path(variable),
        key=variable,
        message=f"{container} asks for a share of a GPU and {setting}, {effect}",
        container=container,
        help=VARIABLE_ADVICE,
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
        action=Action.WARN if variable in WARNED_VARIABLES else Action.DENY,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    return (_variable_statement(), *_prefix_statements(), *_mount_statements())


_WITH_SHARE = 'c.devices.exists(x, x.facts[0].sharing == "share")'
_SUBJECT = " asks for a share of a GPU and"
_LIMITS = "c.raw.?resources.?limits.orValue({})"


def _names_device(prefix: str) -> str:
    """Return, as CEL, whether the limits name a GPU resource with this `prefix`, even with 0."""
    return f"({_LIMITS}.exists(n, n.startsWith({cel(prefix)}) && {facts_of('n')}.size() > 0))"


def _names_only_devices(prefix: str) -> str:
    """Return, as CEL, whether every GPU resource in the limits begins with `prefix`."""
    return f"({_LIMITS}.all(n, n.startsWith({cel(prefix)}) || {facts_of('n')}.size() == 0))"


_LIMITS_OF_OTHERS = f"!{_names_only_devices(ALIYUN_PREFIX)}"


def _variable_statement() -> Statement:
    asks_for_ascend = _names_device(ASCEND_PREFIX)
    entries = f"c.raw.?env.orValue([]).filter(e, e.name == {cel(DISABLING_VARIABLE)})"
    is_on = (
        f"e.?valueFrom.hasValue() || [e.?value.orValue('')].exists(t, {_may_be_true_in_cel('t')})"
    )
    is_last_on = f"(v.isReference || {_may_be_true_in_cel('v.value')})"
    switch = (
        f"{_names_device(PREFIX_WHERE_PRESENCE_COUNTS)} ? {cel(PRESENCE_EFFECT)}"
        f" : {is_last_on} ? {cel(SWITCH_EFFECT)}"
        f" : {entries}.exists(e, {is_on}) ? {cel(OTHER_ENTRY_EFFECT)} : ''"
    )
    is_loose = f"v.isReference || v.value in {cel(LOOSE_POLICIES)} || v.value.contains('$(')"
    names = "|".join(LIMIT_VARIABLES)
    numbered = cel(f"^({names})_*[0-9]*$")
    effect = (
        f"(v.name in {cel(ASCEND_LIMIT_VARIABLES)} && !{asks_for_ascend} ? ''"
        f" : v.name == {cel(DISABLING_VARIABLE)} ? ({switch})"
        f" : v.name == {cel(POLICY_VARIABLE)} ? ({is_loose} ? {cel(POLICY_EFFECT)} : '')"
        f" : v.name == {cel(PRIORITY_VARIABLE)}"
        f" && c.raw.?resources.?limits[?{cel(PRIORITY_RESOURCE)}].hasValue() ? ''"
        f" : v.name in variables.effects ? variables.effects[v.name]"
        f" : v.name in {cel(ASCEND_LIMIT_VARIABLES)} || v.name.matches({numbered})"
        f" ? {cel(LIMIT_EFFECT)} : '')"
    )
    return Statement(
        "variable",
        f"{_WITH_SHARE} && {effect} != ''",
        concat("c.text", cel(f"{_SUBJECT} "), "v.setting", '", "', effect),
        cel(VARIABLE_ADVICE),
        f'(v.name in {cel(sorted(WARNED_VARIABLES))} ? "warn" : "deny")',
        facts={"effects": EFFECT_BY_VARIABLE},
        variables=(
            *(*EFFECT_BY_VARIABLE, DISABLING_VARIABLE, POLICY_VARIABLE, PRIORITY_VARIABLE),
            *(*ASCEND_LIMIT_VARIABLES, *(f"{name}*" for name in LIMIT_VARIABLES)),
        ),
    )


def _may_be_true_in_cel(value: str) -> str:
    return f"{value} in {cel(TRUE_WORDS)} || {value}.contains('$(')"


def _prefix_statements() -> Iterator[Statement]:
    where = f"{_WITH_SHARE} && {_LIMITS_OF_OTHERS}"
    limits = (f"{variable}*" for variable in LIMIT_VARIABLES)
    for pattern in (DISABLING_VARIABLE, *limits, CACHE_VARIABLE):
        yield prefix_statement(pattern, PREFIX_EFFECT, where, subject=_SUBJECT)
    where += f" && {_names_device(ASCEND_PREFIX)}"
    for variable in ASCEND_LIMIT_VARIABLES:
        yield prefix_statement(variable, PREFIX_EFFECT, where, subject=_SUBJECT)


def _mount_statements() -> Iterator[Statement]:
    long = (
        f"m.mountPath.size() > {MAX_PATH} || m.mountPath.contains('..')"
        f" && m.mountPath.size() > {MAX_PATH_TO_RESOLVE}"
    )
    path = f"({long} ? {cel(PRELOAD_FILE)} : {resolved_path('m.mountPath', PRELOAD_FILE)})"
    folders = [f"(t + '/').startsWith({cel(prefix)})" for prefix in SHARING_DIRECTORY_PREFIXES]
    folders += [
        f"(t + '/').startsWith({cel(f'{directory}/')}) && {_names_device(prefix)}"
        for prefix, directories in DIRECTORIES_BY_RESOURCE_PREFIX.items()
        for directory in directories
    ]
    covers = f"t == {cel(PRELOAD_FILE)} || {any_of(folders)}"
    is_above = f"t in {cel(DIRECTORIES_ABOVE)}"
    message = concat(
        "c.text",
        cel(f"{_SUBJECT} mounts a volume at "),
        shown(path),
        cel(f", {MOUNT_EFFECT}"),
    )
    for action, test in (("deny", covers), ("warn", f"!({covers}) && {is_above}")):
        yield Statement(
            "mount",
            f"{_WITH_SHARE} && {_LIMITS_OF_OTHERS} && [{path}].exists(t, {test})",
            message,
            cel(MOUNT_ADVICE),
            cel(action),
            leaves_out=f"a path of more than {MAX_PATH} characters, or of more than "
            f"{MAX_PATH_TO_RESOLVE} with `..`, counts as {PRELOAD_FILE}",
        )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,))
