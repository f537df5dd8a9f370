"""The words about what a pod has to do with GPUs: the twins of `rules.placement.gpu_nodes`.

`$evidence` is `gpu_evidence`: of the strongest sign a list with `Evidence.pod`, `Evidence.devices`,
and the text `certain` or `perhaps`; an empty list if there is none.
"""

from collections.abc import Iterator

from rules.in_process.components import image_grants_gpus
from rules.in_process.images import is_agent_of_other_maker, maker_of_image
from rules.in_process.nodes import PREFERRED_TERMS, has_only_gpu_nodes, selected_labels, tolerates
from rules.in_process.statement import any_of, cel, concat, shown
from rules.in_process.variables import shown_variable
from rules.in_process.vocabulary import Variable, resolve, variable_name
from rules.placement.gpu_nodes import (
    ACCELERATOR_WORD,
    DRIVER_VARIABLE_PREFIXES,
    DRIVER_VARIABLE_SUFFIX,
    GPU_MAKERS,
    GPU_VARIABLE_PREFIXES,
    GPU_WORD,
    OTHER_VARIABLE_PREFIXES,
    VALUES_HIDING_GPUS,
)
from rules.profile.platforms.cards import CARDS, MAX_NAME_CHARACTERS
from rules.profile.profile import Profile

_NONE, _CERTAIN, _PERHAPS = "[]", '"certain"', '"perhaps"'
_MODELS = sorted(card.model.lower() for card in CARDS)


def evidence(profile: Profile, *, old: bool) -> Iterator[Variable]:
    """The variables; those of `vocabulary` come before them."""
    texts = {
        "driverVariable": _visible_variable(DRIVER_VARIABLE_PREFIXES, DRIVER_VARIABLE_SUFFIX),
        "otherVariable": _visible_variable(OTHER_VARIABLE_PREFIXES),
        "hintedKey": _hinted_key(profile),
        "signs": f"$isDaemon ? {_signs_of_agents()} : {_signs_of_gpus()}",
        "evidence": (
            f"$requestsGpu ? {_request_evidence()}"
            f' : $nodeLabel != "" ? {_evidence_of_label()} : $signs'
        ),
    }
    for name, text in texts.items():
        yield Variable(variable_name(name, old=old), resolve(text, old=old))


def _evidence(pod: str, devices: str = cel(GPU_WORD), certainty: str = _CERTAIN) -> str:
    """One `Evidence`; all three are CEL."""
    return f"[{pod}, {devices}, {certainty}]"


def _request_evidence() -> str:
    first = '$containers.filter(c, c.first != "")'
    claim = '$containers.all(c, !c.requestsGpu || (c.hasClaims && c.first == ""))'
    is_gpu = (
        'string(c.first).contains("gpu") || c.devices.exists(d, d.name == c.first'
        f" && d.facts[0].vendor in {cel(GPU_MAKERS)})"
    )
    word = f"({is_gpu}) ? {cel(GPU_WORD)} : {cel(ACCELERATOR_WORD)}"
    asked = _evidence(concat(cel("a pod that asks for "), shown("c.first")), word)
    return (
        f"({claim} ? {_evidence(cel('a pod with a resource claim, which may be for a GPU'))}"
        f" : {first}.size() == 0 ? {_evidence(cel('a pod that asks for a part of a GPU'))}"
        f" : [{first}[0]].map(c, {asked})[0])"
    )


def _evidence_of_label() -> str:
    pod = concat(cel("a pod for nodes with the label "), shown("$nodeLabel"))
    return _evidence(pod, _device_word("$nodeLabel"))


def _signs_of_gpus() -> str:
    runtime = "$spec.runtimeClassName"
    tolerated = concat(cel("a pod that prefers or tolerates nodes with "), shown("$hintedKey"))
    of_runtime = concat(cel("a pod with the runtime class "), shown(runtime))
    return (
        f"($usesGpuRuntime ? {_evidence(of_runtime, _device_word(runtime))}"
        f" : $withMaker.size() > 0 ? {_evidence_of_image('$withMaker[0]')}"
        f' : $driverVariable != "" ? {_evidence_of_variable("$driverVariable")}'
        f' : $hintedKey != "" ? {_evidence(tolerated, _device_word("$hintedKey"), _PERHAPS)}'
        f' : $otherVariable != "" ? {_evidence_of_variable("$otherVariable", _PERHAPS)}'
        f" : {_NONE})"
    )


def _evidence_of_variable(name: str, certainty: str = _CERTAIN) -> str:
    is_gpu = any_of(f"{name}.startsWith({cel(prefix)})" for prefix in GPU_VARIABLE_PREFIXES)
    pod = concat(cel("a pod with the variable "), shown_variable(name))
    return _evidence(pod, f"({is_gpu} ? {cel(GPU_WORD)} : {cel(ACCELERATOR_WORD)})", certainty)


def _signs_of_agents() -> str:
    is_sign = f"c.hasCudaImage ? {image_grants_gpus('c')} : !{is_agent_of_other_maker()}"
    evidence_of_first = _evidence_of_image("found[0]", _PERHAPS)
    return (
        f"[$withMaker.filter(c, {is_sign})]"
        f".map(found, found.size() > 0 ? {evidence_of_first} : {_NONE})[0]"
    )


def _evidence_of_image(container: str, certainty: str = _CERTAIN) -> str:
    pod = concat(
        cel("a pod with the image "),
        shown("c.image"),
        cel(", which uses "),
        "string(maker.shown[0])",
    )
    found = _evidence(pod, "string(maker.shown[1])", certainty)
    return f"[{container}].map(c, [{maker_of_image()}].map(maker, {found})[0])[0]"


def _device_word(name: str) -> str:
    """`_device_word` of the CEL `name`."""
    lower = f"[{name}].map(t, t.lowerAscii())"
    makers = any_of(f"t.contains({cel(word)})" for word in ("gpu", *GPU_MAKERS))
    longest = MAX_NAME_CHARACTERS
    words = (
        f'[(t.size() > {longest} ? t.substring(0, {longest}) : t).findAll("[a-z0-9.]+")]'
        f'.exists(words, !("mig" in words) && words.exists(w, w in {cel(_MODELS)}))'
    )
    word = f"({makers} || {words}) ? {cel(GPU_WORD)} : {cel(ACCELERATOR_WORD)}"
    return f"{lower}.map(t, {word})[0]"


def _visible_variable(prefixes: tuple[str, ...], suffix: str = "") -> str:
    """The name that `_visible_variable` returns; the last entry of a name decides."""
    signs = [f"e.name.startsWith({cel(prefix)})" for prefix in prefixes]
    signs += [f"e.name.endsWith({cel(suffix)})"] if suffix else []
    known = 'c.variables.filter(v, v.isVisible && v.state in ["hidden", "driver only"])'
    is_list = f"e.name.endsWith({cel(DRIVER_VARIABLE_SUFFIX)})"
    value = '(l.?valueFrom.hasValue() ? "x" : l.?value.orValue(""))'
    last = "lists.filter(o, o.name == e.name)"
    hiding = (
        "lists.filter(e, !c.variables.exists(v, v.name == e.name && v.isVisible)"
        f" && [{last}].map(s, s[s.size() - 1]).exists(l, {value} in {cel(VALUES_HIDING_GPUS)}))"
    )
    named = (
        f"$containers.map(c, [c.raw.?env.orValue([]).filter(e, {is_list})].map(lists,"
        f" {known}.map(v, string(v.name)) + {hiding}.map(e, string(e.name)))"
        f".map(hidden, c.raw.?env.orValue([]).filter(e, ({any_of(signs)}) && !(e.name in hidden))"
        ".map(e, string(e.name)))[0])"
    )
    return (
        f"[{named}.filter(names, names.size() > 0)]"
        '.map(found, found.size() == 0 ? "" : found[0][0])[0]'
    )


def _hinted_key(profile: Profile) -> str:
    labels = f"{PREFERRED_TERMS}.map(t, {selected_labels('t.?preference.?matchExpressions')})"
    preferred = f"{labels}.filter(found, found.size() > 0).map(found, found[0])"
    of_taints = any_of(map(tolerates, dict.fromkeys(profile.taints)))
    known = (
        "t.key in variables.resources || variables.resourcePatterns"
        ".exists(p, t.key.startsWith(p.prefix) && t.key.matches(p.pattern))"
    )
    meant = any_of((has_only_gpu_nodes("t.key"), f't.key.contains("gpu") && ({known})', of_taints))
    tolerated = f'$spec.?tolerations.orValue([]).filter(t, t.?key.orValue("") != "" && ({meant}))'
    return (
        f"[{preferred} + {tolerated}.map(t, t.key)]"
        '.map(found, found.size() > 0 ? string(found[0]) : "")[0]'
    )
