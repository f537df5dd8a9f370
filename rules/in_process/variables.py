"""Twins of `rules.gpu.visibility`: what variables show of GPUs, in CEL."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from rules.gpu.visibility import (
    CLAIMS_IGNORE_IT,
    CUDA_VERSION,
    IN_EXEC,
    MAP_NUMBER_PATTERN,
    NVIDIA_VISIBLE_DEVICES,
    READABLE_NAME_PATTERN,
    REMOVE_VARIABLE,
    REQUEST_IN_LIMITS_ADVICE,
    THE_PLUGIN_SETS_IT,
    message_about_foreign_variable,
    prefix_advice,
    prefix_message,
    set_variable_advice,
)
from rules.in_process.bounds import MAX_CHARACTERS, MAX_COUNTS
from rules.in_process.expression import (
    OBJECT,
    POLICY,
    REQUEST,
    Expression,
    Value,
    all_of,
    any_of,
    choose,
    entry,
    expression,
    get,
    has,
    is_in,
    let,
    not_,
    record,
    string,
    text,
)
from rules.in_process.patterns import matches_any, regex_of, stem_of
from rules.in_process.statement import CONTAINER, VARIABLE, Statement, shown
from rules.profile.platforms.makers import advice_to_request
from rules.profile.profile import Profile, VisibleDevices

_INDICES = list(range(MAX_COUNTS["GPU variables"]))
_MOST_SHOWN = 60
_REFERENCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


def completed(profile: Profile) -> Iterator[Mapping[str, str]]:
    """Yield the variables that a prefix and a key may form, as `visible-devices-envfrom` does."""
    alternatives = sorted(profile.alternative_variables, key=lambda name: "*" in name)
    for name in dict.fromkeys((*profile.visible_devices, *alternatives)):
        is_alternative = name not in profile.visible_devices
        is_known = not is_alternative or name in profile.chosen_alternatives
        yield {
            "name": name,
            "stem": stem_of(name),
            "star": "*" if "*" in name else "",
            "alternative": "alternative" if is_alternative else "",
            "unknown": "unknown" if "*" in name and not is_known else "",
        }


def variable_facts(known: VisibleDevices, profile: Profile) -> Mapping[str, Sequence[str]]:
    """Return the facts about a variable that makes GPUs visible."""
    return {
        "name": [known.name],
        "prefix": [stem_of(known.name)],
        "pattern": [regex_of(known.name)],
        "maker": [known.maker],
        "request": [advice_to_request(known.vendors)],
        "vendors": known.vendors,
        "hides": known.hides,
        "overrides": known.overrides,
        "driverOnly": [known.driver_only] if known.driver_only else [],
        "hidden": [known.hiding_value] if known.hiding_value is not None else [],
        "exclusive": ["exclusive"] if profile.is_exclusive(known.vendors) else [],
        "fromAnnotation": ["yes"] if known.from_annotation else [],
        "emptyGrants": ["yes"] if known.empty_grants else [],
    }


def is_gpu_variable(e: Expression, profile: Profile, variables: Collection[str]) -> Expression:
    """Return whether a rule reads the variable `e` of `env`, or it fits one of `variables`."""
    names = sorted(n for n in profile.visible_devices if "*" not in n)
    stems = {stem_of(n) for n in profile.visible_devices if "*" in n}
    stems |= {stem_of(n) for n in profile.alternative_variables if "*" in n}
    alternatives = [n for n in profile.alternative_variables if "*" not in n]
    exact = dict.fromkeys((*names, *alternatives, CUDA_VERSION), True)
    return any_of(
        is_in(e.name, exact),
        e.name.startsWith("NVIDIA_"),
        *(e.name.startsWith(stem) for stem in sorted(stems)),
        *([matches_any(e.name, variables)] if variables else []),
    )


def gpu_variables(container: Expression, env: Expression) -> Expression:
    """Return the entries of `env` of `container`, each with its state, setting and facts."""

    def last_entries(names: Expression) -> Expression:
        # The last entry of a name decides, so a name counts where it stands last.
        return expression(_INDICES).filter(
            lambda i: all_of(i < names.size(), names.lastIndexOf(names[i]) == i)
        )

    places = choose(
        (env.size() == 0, []),
        otherwise=let(env.map(lambda e: string(e.name)), last_entries),
    )
    return (
        places.map(lambda i: let(env[i].name, lambda n: _known(n, env[i], env)))
        .map(lambda v: record(**_read(v)))
        .map(lambda v: record(**_judged(v, container)))
    )


def _known(n: Expression, entry: Expression, env: Expression) -> Expression:
    """Return the variable `n` with what the profile says about it."""
    known = choose(
        (is_in(n, POLICY.visible), [POLICY.visible[n]]),
        otherwise=POLICY.visiblePatterns.filter(
            lambda p: all_of(n.startsWith(p.prefix[0]), n.matches(p.pattern[0]))
        ),
    )
    return record(name=n, entry=entry, known=known, count=env.filter(lambda e: e.name == n).size())


def _read(v: Expression) -> dict[str, Value]:
    """Return the members of the variable `v`, one of `_known`, with its value."""
    is_reference = has(v.entry, "valueFrom")
    value = choose((is_reference, ""), otherwise=get(v.entry, "value", ""))
    kinds = ((has(v.entry, f"valueFrom.{kind}"), kind) for kind in _REFERENCES)
    return {
        "name": v.name,
        "entry": v.entry,
        "count": v.count,
        "isVisible": v.known.size() > 0,
        "facts": choose((v.known.size() > 0, v.known[0]), otherwise=POLICY.alternative),
        "isReference": is_reference,
        "value": value,
        "shown": shown_variable(v.name),
        "shownValue": shown(value),
        "kind": choose(*kinds, otherwise="reference"),
    }


def _judged(v: Expression, c: Expression) -> dict[str, Value]:
    """Return the members of the variable `v`, one of `_read`, with what it does in `c`."""
    asks = all_of(
        v.facts.name[0] == NVIDIA_VISIBLE_DEVICES, any_of(c.first != "", c.hasClaims, c.isTarget)
    )
    is_for_request = choose(
        (c.devices.size() == 0, asks),
        otherwise=c.vendors.exists(lambda x: is_in(x, v.facts.vendors)),
    )
    return {word: getattr(v, word) for word in _read(v)} | {
        "state": _state(v),
        "isForRequest": is_for_request,
        "foreign": choose((any_of(c.hasClaims, is_for_request), ""), otherwise=c.first),
        "setting": choose(
            (v.isReference, text(f"takes {string(v.shown)} from a {string(v.kind)}")),
            otherwise=text(f"sets {string(v.shown)}={string(v.shownValue)}"),
        ),
    }


def shown_variable(name: Expression) -> Expression:
    """`display_variable` of `name`."""
    is_readable = all_of(name.size() <= _MOST_SHOWN, name.matches(f"^{READABLE_NAME_PATTERN}$"))
    return choose((is_readable, name), otherwise=shown(name))


def _state(v: Expression) -> Expression:
    """`parse_visibility` of the variable `v`, and that of a reference."""
    facts, value = v.facts, v.value

    def state(tokens: Expression) -> Expression:
        def is_driver_only(s: Expression) -> Expression:
            return is_in(s, facts.driverOnly)

        deciding = tokens.filter(lambda s: any_of(s == "all", is_driver_only(s)))
        is_driver = expression([deciding]).exists(
            lambda d: all_of(d.size() > 0, is_driver_only(d[0]))
        )
        return choose(
            (tokens.exists(lambda s: is_in(s, facts.overrides)), "hidden"),
            (value.contains("$("), "granted"),
            (tokens.all(lambda s: is_in(s, facts.hides)), "hidden"),
            (is_driver, "driver only"),
            otherwise="granted",
        )

    tokens = _without_references(string(value)).split(",").map(lambda s: s.trim())
    return choose(
        (v.isReference, "reference"),
        (value.size() > MAX_CHARACTERS["value of a GPU variable"], "granted"),
        (all_of(value == "", facts.emptyGrants.size() > 0), "granted"),
        otherwise=let(tokens.filter(lambda s: s != ""), state),
    )


def _without_references(value: Expression) -> Expression:
    """Return what stands outside of `$(…)`.

    Behind the last `)` that is everything, and before it what follows the first `)` of each piece
    between two `$(`.
    """

    def outside(t: Expression) -> Expression:
        def behind_first(s: Expression) -> Expression:
            return choose((s.contains(")"), s.substring(s.indexOf(")") + 1)), otherwise="")

        return let(
            t.lastIndexOf(")") + 1,
            lambda end: (
                (")" + t.substring(0, end)).split("$(").map(behind_first).join("$(")
                + t.substring(end)
            ),
        )

    return let(value, lambda t: choose((t.contains("$("), outside(t)), otherwise=t))


def has_prefix(variable: str, container: Expression = CONTAINER, *, within: str = "") -> Expression:
    """`matching_prefixes`: whether a prefix of `container` and a key can form `variable`."""
    return _prefixes_of(variable, container, within).size() > 0


def last_prefix(variable: str, *, within: str = "") -> Expression:
    """Return the last of these prefixes of the container."""
    return let(
        _prefixes_of(variable, CONTAINER, within), lambda found: found[found.size() - 1].prefix
    )


def _prefixes_of(variable: str, container: Expression, within: str) -> Expression:
    """Return the entries of `envFrom` whose prefix and some key can form `variable`."""
    stem, star, _ = variable.partition("*")

    def can_form(s: Expression) -> Expression:
        forms = [expression(stem).startsWith(s.prefix)]
        forms += [s.prefix.startsWith(stem)] if star else []
        begins = [s.prefix.startsWith(within)] if within else []
        return all_of(s.prefix != variable, any_of(*forms), *begins)

    return container.prefixes.filter(can_form)


def has_variable(name: str, container: Expression = CONTAINER) -> Expression:
    """Return whether `env` of `container` sets the variable `name`."""
    return container.variables.exists(lambda v: v.name == name)


def has_no_device(container: Expression) -> Expression:
    """`has_no_device` of `container`."""
    is_hidden = container.variables.exists(
        lambda v: all_of(v.name == NVIDIA_VISIBLE_DEVICES, v.state == "hidden")
    )
    return all_of(is_hidden, not_(container.requestsGpu))


def looks_legacy(container: Expression) -> Expression:
    """`looks_legacy` of `container`."""
    variables = container.variables
    is_set = variables.exists(
        lambda v: all_of(v.name == CUDA_VERSION, any_of(v.isReference, v.value != ""))
    )
    is_prefixed = all_of(
        not_(has_variable(CUDA_VERSION, container)), has_prefix(CUDA_VERSION, container)
    )
    is_required = variables.exists(
        lambda v: all_of(
            v.name == "NVIDIA_REQUIRE_CUDA",
            not_(v.isReference),
            v.value != "",
            not_(v.value.contains("$(")),
        )
    )
    return all_of(any_of(is_set, is_prefixed), not_(is_required))


def action_beside_request() -> Expression:
    """`action_beside_request` of the variable; `deny` if no foreign GPU is requested."""
    c, v = CONTAINER, VARIABLE
    names_node = all_of(get(OBJECT.spec, "nodeName", "") != "", REQUEST.operation == "CREATE")
    is_apart = any_of(
        c.devices.exists(lambda d: all_of(d.name == v.foreign, d.facts[0].exclusive != "")),
        v.facts.exclusive.size() > 0,
    )
    return choose((all_of(v.foreign != "", not_(names_node), is_apart), "warn"), otherwise="deny")


def foreign_message(setting: Value) -> Expression:
    """`message_about_foreign_variable` of the variable."""
    v = VARIABLE
    resource = shown(string(v.foreign))
    setting = expression(setting)
    return text(message_about_foreign_variable(CONTAINER.text, setting, v.facts.maker[0], resource))


def advice_beside_request() -> Expression:
    """`advice_beside_request` about the variable."""
    hidden = VARIABLE.facts.hidden
    return choose(
        (CONTAINER.fromPlugin, f"{REMOVE_VARIABLE}{THE_PLUGIN_SETS_IT}"),
        (hidden.size() == 0, f"{REMOVE_VARIABLE}{CLAIMS_IGNORE_IT}"),
        otherwise=text(f"{set_variable_advice(hidden[0])}{CLAIMS_IGNORE_IT}"),
    )


def remove_and_request_advice(
    removal: Value, request: Value = REQUEST_IN_LIMITS_ADVICE, otherwise: Value = ""
) -> Expression:
    """`remove_and_request_advice` of the container."""
    removal, request, otherwise = map(expression, (removal, request, otherwise))
    return choose(
        (CONTAINER.role == "ephemeral", text(f"{removal}{otherwise}: {IN_EXEC}")),
        otherwise=text(f"{removal} and {request}{otherwise}"),
    )


def is_platform_reference() -> Expression:
    """`is_platform_reference` of the variable; `POLICY.references` are the profile's."""
    v = VARIABLE
    path = get(v.entry, "valueFrom.fieldRef.fieldPath", "")
    of_annotation = CONTAINER.devices.exists(
        lambda d: path == "metadata.annotations['" + d.name + "']"
    )
    map_name = get(v.entry, "valueFrom.configMapKeyRef.name", "")
    key = get(v.entry, "valueFrom.configMapKeyRef.key", "")
    stem = map_name.substring(0, map_name.lastIndexOf("-"))
    is_written = all_of(
        map_name.matches(MAP_NUMBER_PATTERN),
        POLICY.references.exists(
            lambda r: all_of(
                r.variable == v.name,
                key == r.key,
                entry(OBJECT.annotations, r.annotation, "-") == stem,
            )
        ),
    )
    is_made = choose((v.facts.fromAnnotation.size() > 0, of_annotation), otherwise=is_written)
    return all_of(v.count == 1, is_made)


def prefix_statement(
    variable: str,
    effect: str,
    where: Value,
    *,
    within: str = "",
    remedy: str = "",
    subject: str = "",
) -> Statement:
    """`prefix_findings` of the containers that `where` fits; `subject` follows their names."""
    prefix = string(last_prefix(variable, within=within))
    return Statement(
        "container",
        all_of(has_prefix(variable, within=within), where),
        text(prefix_message(f"{CONTAINER.text}{subject}", shown(prefix), variable, effect)),
        prefix_advice(variable, remedy),
    )
