"""Twin of `rules.gpu.commands.own_programs` in CEL: the programs of images, and of agents."""

from collections.abc import Iterable

from rules.gpu.commands.own_programs import (
    CODE_PATTERN,
    CODE_VARIABLES,
    CODE_VARIABLES_OF_AGENTS,
    DATA_PATTERN,
    FOREIGN_PARTS,
    HOOKS_AND_PROBES,
    MAX_COMMAND_CHARACTERS,
    MAX_FOLDER_CHARACTERS,
    PARENT,
    PROGRAM_FOLDERS,
    SEARCH_PATH,
    SEARCH_PATH_PATTERN,
)
from rules.in_process.expression import (
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
    optional,
    optional_entry,
    string,
)
from rules.in_process.patterns import matches_any
from rules.in_process.volumes import clean_path
from rules.profile.platforms.makers import (
    AGENT_PROGRAM_PATTERN,
    AGENT_SCRIPT_PATTERN,
    COMMAND_BEGIN_PATTERN,
    IDLE_PATTERN,
    LOOKING_PATTERN,
    PROGRAM_AT_END_PATTERN,
    SHELL_PATTERN,
    WAITING_PATTERN,
)

_NO_WORDS: list[str] = []


def runs_own_program(container: Expression, programs: Iterable[str]) -> Expression:
    """`runs_own_program` of `container`, as it was written."""
    env, mounts = get(container, "env", []), get(container, "volumeMounts", [])
    argument = optional_entry(optional(container, "args"), 0).orValue("-")
    first = optional_entry(optional(container, "command"), 0).orValue(argument)
    return all_of(
        any_of(first.startsWith("-"), is_in(first, sorted(programs))),
        get(container, "envFrom", []).size() == 0,
        not_(env.exists(lambda e: matches_any(e.name, CODE_VARIABLES))),
        not_(mounts.exists(lambda m: _may_be_code(m.mountPath))),
        *(not_(has(container, ".".join((*path, "exec")))) for path in HOOKS_AND_PROBES),
    )


def runs_program_of_agent(container: Expression) -> Expression:
    """`runs_program_of_agent` of `container`, one of `OBJECT.containers`."""
    raw = container.raw
    ends = all_of(container.role == "init", get(raw, "restartPolicy", "") == "")
    pattern = choose((ends, WAITING_PATTERN), otherwise=IDLE_PATTERN)
    hooks = expression(
        [get(raw, ".".join((*path, "exec.command")), []) for path in HOOKS_AND_PROBES]
    )
    commands = expression([expression([pattern]) + _words(raw)]) + hooks.map(
        lambda h: expression([LOOKING_PATTERN]) + h
    )
    return all_of(
        get(raw, "envFrom", []).size() == 0,
        not_(get(raw, "env", []).exists(lambda e: matches_any(e.name, CODE_VARIABLES_OF_AGENTS))),
        _search_paths(raw).size() <= 1,
        _search_paths(raw).all(lambda t: _fits(t, SEARCH_PATH_PATTERN)),
        get(raw, "workingDir", "").size() <= MAX_FOLDER_CHARACTERS,
        not_(get(raw, "volumeMounts", []).exists(lambda m: m.mountPath.contains(PARENT))),
        commands.all(lambda w: any_of(w.size() == 1, _are_of_agent(w, raw))),
    )


def _search_paths(raw: Expression) -> Expression:
    named = get(raw, "env", []).filter(lambda e: e.name == SEARCH_PATH)
    return named.map(lambda e: get(e, "value", ""))


def _words(container: Expression) -> Expression:
    """`_words` of `container`."""
    command, args = get(container, "command", []), get(container, "args", [])
    has_program = all_of(args.size() > 0, not_(string(args[0]).startsWith("-")))
    return choose((any_of(command.size() > 0, has_program), command + args), otherwise=_NO_WORDS)


def _are_of_agent(w: Expression, raw: Expression) -> Expression:
    """`are_of_agent` of the command `w`, behind a pattern of further programs."""
    first = string(w[1])

    def programs_of(script: Expression) -> Expression:
        """Return the programs in `script`; an empty text, which none is, if it is not plain."""
        found = script.findAll(COMMAND_BEGIN_PATTERN)
        programs = found.map(lambda b: b.find(PROGRAM_AT_END_PATTERN))
        return choose((_fits(script, AGENT_SCRIPT_PATTERN), programs), otherwise=[""])

    # Without a flag there is no script, and a word with a dash is no program.
    script = let(
        w.join(" "),
        lambda t: t.substring(string(w[0]).size() + first.size() + 1),
        lambda t: choose(
            (t.startsWith(" -c -- "), t.substring(len(" -c -- "))),
            (t.startsWith(" -c "), t.substring(len(" -c "))),
            otherwise="-",
        ),
        programs_of,
    )
    programs = choose((_fits(first, SHELL_PATTERN), script), otherwise=[first])
    return let(
        programs,
        lambda a: all_of(
            a.all(lambda p: any_of(_fits(p, AGENT_PROGRAM_PATTERN), _fits(p, string(w[0])))),
            (expression([first]) + a).all(lambda p: _is_of_image(p, raw)),
        ),
    )


def _is_of_image(program: Expression, raw: Expression) -> Expression:
    """`_is_of_image` of `program`, which the container `raw` runs."""
    by_name = (expression(PROGRAM_FOLDERS) + _search_paths(raw)).join(":").split(":")

    def is_own(path: Expression) -> Expression:
        mounts = get(raw, "volumeMounts", []).map(lambda m: clean_path(m.mountPath) + "/")
        is_mounted = let(
            clean_path(path) + "/",
            lambda t: mounts.exists(lambda m: t.startsWith(m.replace("//", "/"))),
        )
        return all_of(
            any_of(path.startsWith("/"), mounts.all(lambda m: m.matches(DATA_PATTERN))),
            not_(path.split("/").exists(lambda s: is_in(s, sorted(FOREIGN_PARTS)))),
            not_(is_mounted),
        )

    def folders(folder: Expression) -> Expression:
        is_usual = is_in(clean_path(folder), PROGRAM_FOLDERS)
        return choose(
            (folder == "", by_name),
            (all_of(folder.startsWith("/"), is_usual), PROGRAM_FOLDERS),
            (folder.startsWith("/"), [folder]),
            otherwise=[get(raw, "workingDir", ".") + "/" + folder],
        )

    # With the slash at its end; so only a program without one has no folder.
    folder = program.substring(0, program.lastIndexOf("/") + 1)
    name = program.substring(program.lastIndexOf("/") + 1)
    paths = let(folder, folders).map(lambda f: f + "/" + name)
    return paths.all(is_own)


def _fits(value: Expression, pattern: str | Expression) -> Expression:
    whole = f"^(?:{pattern})$" if isinstance(pattern, str) else "^(?:" + pattern + ")$"
    return all_of(value.size() <= MAX_COMMAND_CHARACTERS, value.matches(whole))


def _may_be_code(path: Expression) -> Expression:
    return any_of(path.contains(PARENT), clean_path(path).matches(CODE_PATTERN))
