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
from rules.in_process.expression import (
    POLICY,
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    has,
    is_in,
    not_,
    optional,
    optional_entry,
    text,
)
from rules.in_process.requests import facts_of
from rules.in_process.statement import CONTAINER, MOUNT, VARIABLE, Statement, shown
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
SUBJECT = " asks for a share of a GPU and"
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
        subject = f"{container}{SUBJECT}"
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
            message=_mount_message(container, display(path)),
            container=container,
            help=MOUNT_ADVICE,
            action=Action.DENY if covers else Action.WARN,
        )


def _variable_message(container: object, setting: object, effect: object) -> str:
    return f"{container}{SUBJECT} {setting}, {effect}"


def _mount_message(container: object, path: object) -> str:
    return f"{container}{SUBJECT} mounts a volume at {path}, {MOUNT_EFFECT}"


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
        message=_variable_message(container, setting, effect),
        container=container,
        help=VARIABLE_ADVICE,
        fix=Fix(f"remove {variable}", remove_edits(container, variable)),
        action=Action.WARN if variable in WARNED_VARIABLES else Action.DENY,
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    return (_variable_statement(), *_prefix_statements(), *_mount_statements())


def _asks_for_share() -> Expression:
    return CONTAINER.devices.exists(lambda x: x.facts[0].sharing == "share")


def _names_device(prefix: str) -> Expression:
    """Return whether the limits name a GPU resource with this `prefix`, even with 0."""
    limits = get(CONTAINER.raw, "resources.limits", {})
    return limits.exists(lambda n: all_of(n.startsWith(prefix), facts_of(n).size() > 0))


def _names_only_devices(prefix: str) -> Expression:
    """Return whether every GPU resource in the limits begins with `prefix`."""
    limits = get(CONTAINER.raw, "resources.limits", {})
    return limits.all(lambda n: any_of(n.startsWith(prefix), facts_of(n).size() == 0))


def _effect_in_cel() -> Expression:
    """`_effect` of the variable."""
    v = VARIABLE
    is_loose = any_of(v.isReference, is_in(v.value, LOOSE_POLICIES), v.value.contains("$("))
    limits = optional(CONTAINER.raw, "resources.limits")
    has_priority = optional_entry(limits, PRIORITY_RESOURCE).hasValue()
    is_limit = any_of(
        is_in(v.name, ASCEND_LIMIT_VARIABLES),
        v.name.matches(f"^({'|'.join(LIMIT_VARIABLES)})_*[0-9]*$"),
    )
    return choose(
        (all_of(is_in(v.name, ASCEND_LIMIT_VARIABLES), not_(_names_device(ASCEND_PREFIX))), ""),
        (v.name == DISABLING_VARIABLE, _switch_effect_in_cel()),
        (v.name == POLICY_VARIABLE, choose((is_loose, POLICY_EFFECT), otherwise="")),
        (all_of(v.name == PRIORITY_VARIABLE, has_priority), ""),
        (is_in(v.name, POLICY.effects), POLICY.effects[v.name]),
        (is_limit, LIMIT_EFFECT),
        otherwise="",
    )


def _switch_effect_in_cel() -> Expression:
    def may_be_true(value: Expression) -> Expression:
        return any_of(is_in(value, TRUE_WORDS), value.contains("$("))

    def is_on(e: Expression) -> Expression:
        value = expression([get(e, "value", "")])
        return any_of(has(e, "valueFrom"), value.exists(may_be_true))

    entries = get(CONTAINER.raw, "env", []).filter(lambda e: e.name == DISABLING_VARIABLE)
    is_last_on = any_of(VARIABLE.isReference, may_be_true(VARIABLE.value))
    return choose(
        (_names_device(PREFIX_WHERE_PRESENCE_COUNTS), PRESENCE_EFFECT),
        (is_last_on, SWITCH_EFFECT),
        (entries.exists(is_on), OTHER_ENTRY_EFFECT),
        otherwise="",
    )


def _variable_statement() -> Statement:
    effect = _effect_in_cel()
    is_warned = is_in(VARIABLE.name, sorted(WARNED_VARIABLES))
    return Statement(
        "variable",
        all_of(_asks_for_share(), effect != ""),
        text(_variable_message(CONTAINER.text, VARIABLE.setting, effect)),
        VARIABLE_ADVICE,
        choose((is_warned, "warn"), otherwise="deny"),
        facts={"effects": EFFECT_BY_VARIABLE},
        variables=(
            *(*EFFECT_BY_VARIABLE, DISABLING_VARIABLE, POLICY_VARIABLE, PRIORITY_VARIABLE),
            *(*ASCEND_LIMIT_VARIABLES, *(f"{name}*" for name in LIMIT_VARIABLES)),
        ),
    )


def _prefix_statements() -> Iterator[Statement]:
    is_limited_in_container = not_(_names_only_devices(ALIYUN_PREFIX))
    where = all_of(_asks_for_share(), is_limited_in_container)
    limits = (f"{variable}*" for variable in LIMIT_VARIABLES)
    for pattern in (DISABLING_VARIABLE, *limits, CACHE_VARIABLE):
        yield prefix_statement(pattern, PREFIX_EFFECT, where, subject=SUBJECT)
    where = all_of(where, _names_device(ASCEND_PREFIX))
    for variable in ASCEND_LIMIT_VARIABLES:
        yield prefix_statement(variable, PREFIX_EFFECT, where, subject=SUBJECT)


def _mount_statements() -> Iterator[Statement]:
    written = MOUNT.mountPath
    is_long = any_of(
        written.size() > MAX_PATH,
        all_of(written.contains(".."), written.size() > MAX_PATH_TO_RESOLVE),
    )
    path = choose((is_long, PRELOAD_FILE), otherwise=resolved_path(written, PRELOAD_FILE))

    def covers(t: Expression) -> Expression:
        folder = t + "/"
        of_systems = (folder.startsWith(prefix) for prefix in SHARING_DIRECTORY_PREFIXES)
        of_resources = (
            all_of(folder.startsWith(f"{directory}/"), _names_device(prefix))
            for prefix, directories in DIRECTORIES_BY_RESOURCE_PREFIX.items()
            for directory in directories
        )
        return any_of(t == PRELOAD_FILE, any_of(*of_systems, *of_resources))

    def is_above(t: Expression) -> Expression:
        return all_of(not_(covers(t)), is_in(t, DIRECTORIES_ABOVE))

    for action, test in (("deny", covers), ("warn", is_above)):
        yield Statement(
            "mount",
            all_of(
                _asks_for_share(),
                not_(_names_only_devices(ALIYUN_PREFIX)),
                expression([path]).exists(test),
            ),
            text(_mount_message(CONTAINER.text, shown(path))),
            MOUNT_ADVICE,
            action,
            leaves_out=f"a path of more than {MAX_PATH} characters, or of more than "
            f"{MAX_PATH_TO_RESOLVE} with `..`, counts as {PRELOAD_FILE}",
        )


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(SHARE,))
