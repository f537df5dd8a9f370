"""Twins of `rules.gpu.visibility`: what variables show of GPUs, in CEL.

`$name` in a text is the variable `name` of the policy: `rules.in_process.vocabulary`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from rules.gpu.visibility import CUDA_VERSION, IN_EXEC, NVIDIA_VISIBLE_DEVICES
from rules.in_process.bounds import MAX_CHARACTERS, MAX_COUNTS
from rules.in_process.patterns import matches_any, regex_of, stem_of
from rules.in_process.statement import Statement, any_of, cel, concat, shown
from rules.profile.profile import Profile, VisibleDevices

_INDICES = list(range(MAX_COUNTS["GPU variables"]))
_READABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_REFERENCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


def completed(profile: Profile) -> Iterator[Mapping[str, str]]:
    """The variables that a prefix and a key may form, as `visible-devices-envfrom` has them."""
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
        "vendors": known.vendors,
        "hides": known.hides,
        "overrides": known.overrides,
        "driverOnly": [known.driver_only] if known.driver_only else [],
        "hidden": [known.hiding_value] if known.hiding_value is not None else [],
        "exclusive": ["exclusive"] if profile.is_exclusive(known.vendors) else [],
        "fromAnnotation": ["yes"] if known.from_annotation else [],
        "emptyGrants": ["yes"] if known.empty_grants else [],
    }


def is_gpu_variable(profile: Profile, variables: Collection[str]) -> str:
    """Return, as CEL, whether a rule reads the variable `e` of `env`, or it fits `variables`."""
    names = sorted(n for n in profile.visible_devices if "*" not in n)
    stems = {stem_of(n) for n in profile.visible_devices if "*" in n}
    stems |= {stem_of(n) for n in profile.alternative_variables if "*" in n}
    alternatives = [n for n in profile.alternative_variables if "*" not in n]
    exact = dict.fromkeys((*names, *alternatives, CUDA_VERSION), True)
    return any_of(
        (
            f"e.name in {cel(exact)}",
            'e.name.startsWith("NVIDIA_")',
            *(f"e.name.startsWith({cel(stem)})" for stem in sorted(stems)),
            *([matches_any("e.name", variables)] if variables else []),
        )
    )


def gpu_variables() -> str:
    """The entries `env` of the container `c`, each with its state, its setting and its facts."""
    found = (
        "n in variables.visible ? [variables.visible[n]]"
        " : variables.visiblePatterns.filter(p, n.startsWith(p.prefix[0])"
        " && n.matches(p.pattern[0]))"
    )
    # The last entry of a name decides, so a name counts where it stands last.
    last = (
        "env.size() == 0 ? []"
        " : [env.map(e, string(e.name))].map(names, "
        f"{cel(_INDICES)}.filter(i, i < names.size() && names.lastIndexOf(names[i]) == i))[0]"
    )
    raw = (
        f'{{"name": dyn(n), "entry": dyn(env[i]), "known": dyn({found}),'
        ' "count": dyn(env.filter(e, e.name == n).size())}'
    )
    value = '(v.entry.?valueFrom.hasValue() ? "" : v.entry.?value.orValue(""))'
    known = "(v.known.size() > 0 ? v.known[0] : variables.alternative)"
    first_kind = " : ".join(
        f'v.entry.?valueFrom.?{kind}.hasValue() ? "{kind}"' for kind in _REFERENCES
    )
    first_stage = {
        "name": "v.name",
        "entry": "v.entry",
        "count": "v.count",
        "isVisible": "v.known.size() > 0",
        "facts": known,
        "isReference": "v.entry.?valueFrom.hasValue()",
        "value": value,
        "shown": shown_variable("v.name"),
        "shownValue": shown(value),
        "kind": f'({first_kind} : "reference")',
    }
    own_request = (
        f"c.devices.size() == 0 ? (v.facts.name[0] == {cel(NVIDIA_VISIBLE_DEVICES)}"
        ' && (c.first != "" || c.hasClaims || c.isTarget))'
        " : c.vendors.exists(x, x in v.facts.vendors)"
    )
    second_stage = {name: f"v.{name}" for name in first_stage} | {
        "state": _state(),
        "isForRequest": f"({own_request})",
        "foreign": f'(c.hasClaims || ({own_request}) ? "" : c.first)',
        "setting": concat(
            '(v.isReference ? "takes " + string(v.shown) + " from a " + string(v.kind)',
            '"" : "sets " + string(v.shown) + "=" + string(v.shownValue))',
        ),
    }
    stages = [
        ", ".join(f'"{name}": dyn({text})' for name, text in stage.items())
        for stage in (first_stage, second_stage)
    ]
    return (
        f"({last}).map(i, [env[i].name].map(n, {raw})[0])"
        f".map(v, {{{stages[0]}}}).map(v, {{{stages[1]}}})"
    )


def shown_variable(name: str) -> str:
    """`display_variable` of the CEL `name`."""
    return f"({name}.size() <= 60 && {name}.matches({cel(_READABLE)}) ? {name} : {shown(name)})"


def _state() -> str:
    """`parse_visibility`, and that of a reference."""
    longest = MAX_CHARACTERS["value of a GPU variable"]
    # What stands outside of `$(…)`: behind the last `)` everything, and before it what follows the
    # first `)` of each piece between two `$(`.
    outside = (
        '[string(v.value)].map(t, t.contains("$(") ? [t.lastIndexOf(")") + 1].map(end, '
        '(")" + t.substring(0, end)).split("$(").map(s, '
        's.contains(")") ? s.substring(s.indexOf(")") + 1) : "").join("$(") + t.substring(end))[0]'
        " : t)[0]"
    )
    tokens = f'({outside}).split(",").map(s, s.trim()).filter(s, s != "")'
    decides = '[tokens.filter(s, s == "all" || s in v.facts.driverOnly)]'
    driver_only = f"{decides}.exists(d, d.size() > 0 && d[0] in v.facts.driverOnly)"
    return (
        '(v.isReference ? "reference"'
        f' : v.value.size() > {longest} ? "granted"'
        ' : v.value == "" && v.facts.emptyGrants.size() > 0 ? "granted"'
        f" : [{tokens}].map(tokens,"
        ' tokens.exists(s, s in v.facts.overrides) ? "hidden"'
        ' : v.value.contains("$(") ? "granted"'
        ' : tokens.all(s, s in v.facts.hides) ? "hidden"'
        f' : {driver_only} ? "driver only" : "granted")[0])'
    )


def has_prefix(variable: str, within: str = "") -> str:
    """`matching_prefixes`: whether a prefix of the container `c` and a key can form `variable`."""
    return f"{prefixes_of(variable, within)}.size() > 0"


def last_prefix(variable: str, within: str = "") -> str:
    """The last of these prefixes."""
    found = prefixes_of(variable, within)
    return f"[{found}].map(found, found[found.size() - 1].prefix)[0]"


def prefixes_of(variable: str, within: str = "") -> str:
    """The entries of `envFrom` whose prefix and some key can form `variable`."""
    begins = f" && s.prefix.startsWith({cel(within)})" if within else ""
    stem, star, _ = variable.partition("*")
    forms = [f"{cel(stem)}.startsWith(s.prefix)"]
    forms += [f"s.prefix.startsWith({cel(stem)})"] if star else []
    return f"c.prefixes.filter(s, s.prefix != {cel(variable)} && ({any_of(forms)}){begins})"


def has_variable(name: str) -> str:
    """Return, as CEL, whether `env` of the container `c` sets the variable `name`."""
    return f"c.variables.exists(v, v.name == {cel(name)})"


def has_no_device() -> str:
    """`has_no_device`."""
    hidden = (
        f'c.variables.exists(v, v.name == {cel(NVIDIA_VISIBLE_DEVICES)} && v.state == "hidden")'
    )
    return f"({hidden} && !c.requestsGpu)"


def looks_legacy() -> str:
    """`looks_legacy`."""
    is_set = (
        f'c.variables.exists(v, v.name == {cel(CUDA_VERSION)} && (v.isReference || v.value != ""))'
    )
    prefixed = f"!{has_variable(CUDA_VERSION)} && {has_prefix(CUDA_VERSION)}"
    required = (
        'c.variables.exists(v, v.name == "NVIDIA_REQUIRE_CUDA" && !v.isReference'
        ' && v.value != "" && !v.value.contains("$("))'
    )
    return f"(({is_set} || ({prefixed})) && !{required})"


def is_beside_request() -> str:
    """`action_beside_request` of the variable `v`; `"deny"` if no foreign GPU is requested."""
    names_node = '($spec.?nodeName.orValue("") != "" && request.operation == "CREATE")'
    is_apart = (
        '(c.devices.exists(d, d.name == v.foreign && d.facts[0].exclusive != "")'
        " || v.facts.exclusive.size() > 0)"
    )
    return f'(v.foreign != "" && !{names_node} && {is_apart} ? "warn" : "deny")'


def foreign_message(setting: str) -> str:
    """`message_about_foreign_variable` of the variable `v`, with the CEL `setting`."""
    return concat(
        'c.text + " asks for "',
        shown("string(v.foreign)"),
        '" and "',
        setting,
        '", which only the container runtime for " + v.facts.maker[0]',
        cel(" cards reads: its image or its settings are for another maker's cards"),
    )


def advice_beside_request() -> str:
    """`advice_beside_request` about the variable `v`."""
    end = ": the devices of a claim do not depend on it"
    return (
        f"(c.fromPlugin ? {cel('remove the variable: the device plugin sets it')}"
        f" : v.facts.hidden.size() == 0 ? {cel('remove the variable' + end)}"
        f' : "set the variable to " + v.facts.hidden[0] + {cel(end)})'
    )


def remove_and_request_advice(removal: str, request: str, otherwise: str = '""') -> str:
    """`remove_and_request_advice` of the container `c`; all three are CEL."""
    return (
        f'(c.role == "ephemeral" ? {removal} + {otherwise} + {cel(": " + IN_EXEC)}'
        f' : {removal} + " and " + {request} + {otherwise})'
    )


def is_platform_reference() -> str:
    """`is_platform_reference` of the variable `v`; `$references` are the profile's."""
    field = 'v.entry.?valueFrom.?fieldRef.?fieldPath.orValue("")'
    annotation = f'c.devices.exists(d, {field} == "metadata.annotations[\'" + d.name + "\']")'
    reference = "v.entry.?valueFrom.?configMapKeyRef"
    name = f'{reference}.?name.orValue("")'
    written = (
        f'{name}.matches("-i?[0-9]+$") && variables.references.exists(r, r.variable == v.name'
        f' && {reference}.?key.orValue("") == r.key'
        ' && $annotations[?r.annotation].orValue("-") =='
        f' {name}.substring(0, {name}.lastIndexOf("-")))'
    )
    return f"(v.count == 1 && (v.facts.fromAnnotation.size() > 0 ? {annotation} : {written}))"


def prefix_statement(
    variable: str, effect: str, where: str, *, within: str = "", remedy: str = "", subject: str = ""
) -> Statement:
    """`prefix_findings` of the containers that `where` fits; `subject` follows their names."""
    name = variable.removesuffix("*")
    message = concat(
        "c.text",
        cel(f"{subject} takes variables with the prefix "),
        shown(f"string({last_prefix(variable, within)})"),
        cel(f", which a key can complete to {name}{effect}"),
    )
    test = f"{has_prefix(variable, within)} && {where}"
    advice = cel(f"choose a prefix that {name} does not begin with{remedy}")
    return Statement("container", test, message, advice)
